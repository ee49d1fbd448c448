"""Sweeps the meshes of 64 H100s for a decoder, and searches one of them directly.

python -m experiments.mesh_sweep          results.json: minutes
python -m experiments.mesh_sweep --quick  two layers; nothing written
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

import jax

import autopart as ap
from experiments.models import t32

RESULTS = Path(__file__).with_name("results.json")
DEVICES, DEVICE = 64, "h100"
MESH = ap.Mesh({"batch": 32, "model": 2}, device=DEVICE)
BUDGET = ap.Budget(evaluations=400)


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.mesh_sweep")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    config = dataclasses.replace(t32.Config(batch=256), layers=2 if quick else 32)
    found = measured(config, ap.Budget(evaluations=40) if quick else BUDGET)
    print(found.pop("table"))
    for name in ("direct", "row", "row_over_direct", "row_over_named"):
        print(name, found[name])
    if not quick:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def measured(config: t32.Config, budget: ap.Budget) -> dict[str, Any]:
    """The sweep's rows, the direct search on `MESH`, and how the two compare."""
    step, args = t32.step(config), t32.abstract_args(config)
    settings: dict[str, Any] = {"donate_argnums": (0, 1)}
    swept = ap.sweep(step, args, devices=DEVICES, device=DEVICE, budget=budget, cache=False, **settings)
    search = ap.AutomaticPartition(list(MESH.axis_names), budget=budget, cache=False, progress=False)
    report = ap.jit(step, MESH, [search], **settings).lower(*args).metadata.tactics[0].report
    row = next(row for row in swept.rows if row.mesh.shape == MESH.shape)
    assert row.step_s is not None
    named = min(b["step_s"] for b in report["baselines"] if b["fits"])
    return {
        "date": datetime.date.today().isoformat(),
        "jax": jax.__version__,
        "layers": config.layers,
        "evaluations": budget.evaluations,
        "table": str(swept),
        "rows": [row.plain() | {"actions": len(row.actions)} for row in swept.rows],
        "row": figures(row.step_s, row.peak_bytes, row.fits) | {"searched": row.searched},
        "direct": figures(report["best"]["step_s"], report["best"]["peak_bytes"], report["best"]["fits"]),
        "row_over_direct": row.step_s / report["best"]["step_s"],
        "row_over_named": row.step_s / named,
    }


def figures(step_s: float | None, peak_bytes: float | None, fits: bool | None) -> dict[str, Any]:
    return {"step_s": step_s, "peak_bytes": peak_bytes, "fits": fits}


if __name__ == "__main__":
    main()
