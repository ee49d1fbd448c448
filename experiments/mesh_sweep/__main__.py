"""Sweeps the meshes of 64 H100s for a decoder, and searches one of them directly.

python -m experiments.mesh_sweep          results.json: minutes
python -m experiments.mesh_sweep --quick  two layers; nothing written
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax

import autopart as ap
from experiments.kept import write
from experiments.models import t32

RESULTS = Path(__file__).with_name("results.json")
DEVICES, DEVICE = 64, "h100"
MESH = ap.Mesh({"batch": 32, "model": 2}, device=DEVICE)
BUDGET = ap.Budget(evaluations=400)
DECODER = t32.Config(layers=8, model_dim=8192, heads=64, batch=256)
"""6.7 billion parameters, as T32 has, in a quarter of its layers: a sweep takes minutes."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.mesh_sweep")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    config = dataclasses.replace(DECODER, layers=2) if quick else DECODER
    found = measured(config, ap.Budget(evaluations=40) if quick else BUDGET)
    print(found.pop("table"))
    for name in ("direct", "row", "row_over_direct", "row_over_named"):
        print(name, found[name])
    if not quick:
        write(RESULTS, found)


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
