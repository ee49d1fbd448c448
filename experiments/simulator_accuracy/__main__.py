"""Compares the simulator with the TPU compiler.

    python -m experiments.simulator_accuracy                    with the compiler's figures that are kept
    python -m experiments.simulator_accuracy --compile [NAME]   compiles first: pip install libtpu, half a minute a pair

Writes results.json and figure.png: estimate minus compiler for seconds and memory, as the paper's Figures 9 and 10; and
outside.json, the same for programs from outside under written schedules and in states of searches.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from autopart.costmodel import estimate
from experiments.simulator_accuracy.outside_pairs import OTHER_KINDS, OutsidePair, outside_pairs
from experiments.simulator_accuracy.pairs import PAIRS, Pair
from experiments.simulator_accuracy.referee import KEPT, compile_all, text_key

HERE = Path(__file__).parent

FEWEST_STATES = 3
"""Of fewer states of a program no rank correlation is taken."""


WITHIN = (0.8, 1.25)
"""Our compute over the compiler's, where search can trust it."""


def compare(pairs: Iterable[Pair | OutsidePair] = PAIRS) -> list[dict[str, Any]]:
    """A row per compiled pair: our figures and the compiler's, whose seconds are cycles and ours for the links."""
    kept, rows = json.loads(KEPT.read_text())["pairs"], []
    for pair in pairs:
        if pair.name not in kept:
            continue
        theirs, local = kept[pair.name], pair.lower().program
        ours = estimate(local)
        rows.append(
            {
                "pair": pair.name,
                "model": pair.model,
                "tuned": pair.tuned,
                "searched": isinstance(pair, OutsidePair) and pair.searched,
                "peak_bytes": ours.peak_bytes,
                "compiler_peak_bytes": theirs["peak_bytes"],
                "peak_ratio": ours.peak_bytes / theirs["peak_bytes"],
                "compute_s": ours.compute_s,
                "compiler_compute_s": theirs["compute_s"],
                "compute_ratio": ours.compute_s / theirs["compute_s"],
                "collective_s": ours.collective_s,
                "step_s": ours.serial_s,
                "compiler_step_s": theirs["compute_s"] + ours.collective_s,
                "rematerialised": theirs["rematerialised"],
                "as_emitted": theirs.get("text") == text_key(local),
            }
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the claim is about: memory ratios, and rank correlations of seconds."""
    ratio = np.array([r["peak_ratio"] for r in rows])
    column = {key: [r[key] for r in rows] for key in rows[0]}
    return {
        "pairs": len(rows),
        "peak_geomean": float(np.exp(np.log(ratio).mean())),
        "peak_least": float(ratio.min()),
        "peak_most": float(ratio.max()),
        "step_spearman": float(spearmanr(column["step_s"], column["compiler_step_s"])[0]),
        "compute_spearman": float(spearmanr(column["compute_s"], column["compiler_compute_s"])[0]),
    }


def outside_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios of compute and memory, and per program the rank correlation of steps among the states of its searches."""
    compute, peak = np.array([r["compute_ratio"] for r in rows]), np.array([r["peak_ratio"] for r in rows])
    by_model: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_model[row["model"]].append(row)
    return {
        "pairs": len(rows),
        "compute_geomean": float(np.exp(np.log(compute).mean())),
        "compute_least": float(compute.min()),
        "compute_most": float(compute.max()),
        "compute_within": float(((compute >= WITHIN[0]) & (compute <= WITHIN[1])).mean()),
        "peak_least": float(peak.min()),
        "peak_most": float(peak.max()),
        "step_spearman": {
            model: float(spearmanr([r["step_s"] for r in of], [r["compiler_step_s"] for r in of])[0])
            for model, of in by_model.items()
            if len(of) >= FEWEST_STATES
        },
    }


def outside_report() -> dict[str, Any]:
    """Programs from outside: rows, and summaries by half and by who chose the schedule."""
    rows = compare(outside_pairs())
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        half, chosen = "tuned" if row["tuned"] else "held out", "searched" if row["searched"] else "written"
        parts[f"{half} {'of other kinds' if row['model'] in OTHER_KINDS else chosen}"].append(row)
    return {"summary": {name: outside_summary(part) for name, part in parts.items()}, "rows": rows}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| program, schedule, topology | peak GB | compiler | ratio | compute ms | compiler | links ms | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['pair']} | {r['peak_bytes'] / 1e9:.2f} | {r['compiler_peak_bytes'] / 1e9:.2f} | {r['peak_ratio']:.2f} "
        f"| {r['compute_s'] * 1e3:.1f} | {r['compiler_compute_s'] * 1e3:.1f} | {r['collective_s'] * 1e3:.1f} "
        f"| {'tuned' if r['tuned'] else ''} |"
        for r in rows
    ]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 6), sharey=True)
    names = [r["pair"] for r in rows]
    colours = ["tab:grey" if r["tuned"] else "tab:blue" for r in rows]
    axes[0].barh(names, [r["step_s"] - r["compiler_step_s"] for r in rows], color=colours)
    axes[0].set_xscale("symlog", linthresh=1e-3)
    axes[0].set_xlabel("estimated - compiler's step, s")
    axes[1].barh(names, [(r["peak_bytes"] - r["compiler_peak_bytes"]) / 1e9 for r in rows], color=colours)
    axes[1].set_xlabel("estimated - compiler's peak memory, GB")
    figure.suptitle("grey: rules were chosen on it; blue: held out")
    for axis in axes:
        axis.axvline(0, color="black", linewidth=0.8)
        axis.invert_yaxis()
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(HERE / "figure.png", dpi=110)


def main() -> None:
    if "--compile" in sys.argv:
        compile_all(sys.argv[sys.argv.index("--compile") + 1 :])
    rows, kept = compare(), json.loads(KEPT.read_text())
    parts = {"all": rows, "tuned": [r for r in rows if r["tuned"]], "held_out": [r for r in rows if not r["tuned"]]}
    summaries = {name: summary(part) for name, part in parts.items()}
    report = {"date": kept["date"], "versions": kept["versions"], "summary": summaries, "rows": rows}
    (HERE / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    plot(rows)
    print(table(rows))
    outside = outside_report()
    (HERE / "outside.json").write_text(json.dumps(outside, indent=1) + "\n")
    print(table(outside["rows"]))
    print(
        f"compiled as they are emitted now: {sum(r['as_emitted'] for r in outside['rows'])} of {len(outside['rows'])}"
    )
    summaries |= outside["summary"]
    for name, figures in summaries.items():
        print(name, json.dumps(figures))


if __name__ == "__main__":
    main()
