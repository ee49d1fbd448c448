"""Fits the GPU entries of the device registry and reports their error on rows no fit has seen.

python -m experiments.collective_accuracy            writes results.json, prints the table and the entries
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.fabric import CollectiveCurve
from experiments.collective_accuracy.fitting import fit_curve, fit_matmul, predict, predict_matmul
from experiments.collective_accuracy.measured import (
    KINDS,
    SMALL_BYTES,
    UNSEEN_GROUPS,
    Collectives,
    collectives,
    matmuls,
)

DEVICES = {"sm_90": "h100", "sm_100_B200": "b200", "sm_100_GB200": "gb200"}
IN_SWITCH_GROUP = {"h100": 8, "b200": 8, "gb200": 8}
"""From this many devices on all_reduce is fitted apart: the table shows the switch's own reduction there."""

PEAKS = {name: device(name).peak_flop_per_s for name in ("h100", "b200")}
HBM = {"h100": 3.35e12, "b200": 8.0e12}
"""Nominal. The entry of b200 has the 7.67 TB/s that a driver reports; fitted with those, bf16 and f32 keep their shares
of the peak (0.66, 0.68) and fp8 has 0.62 for 0.66."""
MATMUL_TYPES = {"bf16": "bf16xbf16->bf16", "f32": "f32xf32->f32", "f8": "f8e4m3fnxf8e4m3fn->bf16"}


def curves_to_fit(name: str, xla: str) -> dict[str, tuple[str, Collectives]]:
    """Curve name to (kind, its rows)."""
    todo = {kind: (kind, collectives(xla, kind)) for kind in KINDS.values()}
    kind, rows = todo["all_reduce"]
    todo["all_reduce"] = (kind, rows.where(rows.group < IN_SWITCH_GROUP[name]))
    todo["all_reduce_in_switch"] = (kind, rows.where(rows.group >= IN_SWITCH_GROUP[name]))
    return todo


def errors(kind: str, curve: CollectiveCurve, rows: Collectives) -> dict[str, float]:
    error = np.abs(predict(kind, curve, rows) / rows.seconds - 1)
    return {"rows": len(error), "median": float(np.median(error)), "p90": float(np.percentile(error, 90))}


def collective_results() -> dict:
    results = {}
    for xla, name in DEVICES.items():
        for curve_name, (kind, rows) in curves_to_fit(name, xla).items():
            curve = fit_curve(kind, rows.where(rows.seen))
            large = rows.whole_bytes >= SMALL_BYTES
            results[f"{name} {curve_name}"] = {
                "curve": curve.__dict__,
                "fitted_on": errors(kind, curve, rows.where(rows.seen)),
                "unseen": errors(kind, curve, rows.where(large & ~rows.seen)),
                "small": errors(kind, curve, rows.where(~large)),
                "unseen_groups": errors(kind, curve, rows.where(large & np.isin(rows.group, UNSEEN_GROUPS)))
                if np.isin(rows.group, UNSEEN_GROUPS).any() else None,
            }  # fmt: skip
    return results


def matmul_results() -> dict:
    results = {}
    for xla, name in DEVICES.items():
        for dtype, types in MATMUL_TYPES.items() if name in PEAKS else ():
            rows = matmuls(xla, types)
            launch_s, e, h = fit_matmul(rows.where(rows.seen), PEAKS[name][dtype], HBM[name])
            unseen = rows.where(~rows.seen)
            error = np.abs(predict_matmul(unseen, launch_s, e * PEAKS[name][dtype], h * HBM[name]) / unseen.seconds - 1)
            results[f"{name} {dtype}"] = {
                "launch_s": launch_s, "matmul_efficiency": e, "hbm_efficiency": h, "rows": len(error),
                "median": float(np.median(error)), "p90": float(np.percentile(error, 90)),
            }  # fmt: skip
    return results


def per_kind(results: dict) -> dict[str, float]:
    """Median over devices' rows of the unseen error, per kind."""
    table = {}
    for kind in KINDS.values():
        found = []
        for xla, name in DEVICES.items():
            for curve_name, (k, rows) in curves_to_fit(name, xla).items():
                if k == kind:
                    curve = CollectiveCurve(**results[f"{name} {curve_name}"]["curve"])
                    rows = rows.where((rows.whole_bytes >= SMALL_BYTES) & ~rows.seen)
                    found.append(np.abs(predict(kind, curve, rows) / rows.seconds - 1))
        table[kind] = float(np.median(np.concatenate(found)))
    return table


def main() -> None:
    fitted = collective_results()
    report = {"per_kind_median_unseen": per_kind(fitted), "collectives": fitted, "matmuls": matmul_results()}
    Path(__file__).with_name("results.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'curve':<32}{'rows':>6}{'median':>9}{'p90':>7}   unseen rows from {SMALL_BYTES} bytes")
    for name, entry in fitted.items():
        print(f"{name:<32}{entry['unseen']['rows']:>6}{entry['unseen']['median']:>9.1%}{entry['unseen']['p90']:>7.0%}")
    print("per kind:", {k: f"{v:.1%}" for k, v in report["per_kind_median_unseen"].items()})
    for name, entry in report["matmuls"].items():
        print(f"matmul {name:<10}", {k: round(v, 9) for k, v in entry.items()})
    for name, entry in fitted.items():
        c = {k: v for k, v in entry["curve"].items() if v not in (0.0, float("inf"))}
        print(name, "CollectiveCurve(" + ", ".join(f"{k}={v:.4g}" for k, v in c.items()) + ")")


if __name__ == "__main__":
    main()
