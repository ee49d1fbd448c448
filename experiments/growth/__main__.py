"""Fits how each stage grows with the program, family by family: writes `results.json`.

    python -m experiments.growth                              five sizes from 3,000 to 300,000 ops: hours of CPU
    python -m experiments.growth --sizes 1000 4000            smaller ones, printed and not kept
    python -m experiments.growth --families branches scans    these families

Each program has a process of its own (`stages.py`). An exponent is the slope of the least squares line through the
logarithms of ops and CPU seconds; seconds below `LEAST_S` are left out, since they tell of the machine. With the sizes
that are not named, each family is kept as it ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.growth.families import FAMILIES
from experiments.kept import write

SIZES = (3_000, 10_000, 30_000, 100_000, 300_000)
RESULTS = Path(__file__).with_name("results.json")
BAR, LEAST_S = 1.15, 0.05


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.growth")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--families", nargs="+", choices=[*FAMILIES], default=[*FAMILIES])
    options = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}, "exponents": {}}
    for name in options.families:
        rows = [_measured(name, size) for size in options.sizes]
        exponents = _exponents([row for row in rows if "failed" not in row])
        _print(name, rows, exponents)
        if tuple(options.sizes) == SIZES:
            kept = {
                "bar": BAR,
                "rows": {**kept["rows"], name: rows},
                "exponents": {**kept["exponents"], name: exponents},
            }
            write(RESULTS, kept)


def _print(name: str, rows: Sequence[dict[str, Any]], exponents: dict[str, float]) -> None:
    print(f"{name}: {[row.get('ops', row.get('failed')) for row in rows]}", flush=True)
    for stage, exponent in exponents.items():
        seconds = " ".join(f"{row['seconds'][stage]:8.2f}" for row in rows if "failed" not in row)
        print(f"  {stage:26} {seconds} s   n^{exponent:.2f}{'  above the bar' if exponent > BAR else ''}", flush=True)


def _measured(family: str, ops: int) -> dict[str, Any]:
    """What `stages.py` prints of one program; what failed is kept with the last line that says why."""
    command = [sys.executable, "-m", "experiments.growth.stages", family, str(ops)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return {"failed": (run.stderr.strip().splitlines() or [f"exit {run.returncode}"])[-1]}
    return json.loads(run.stdout.splitlines()[-1])


def _exponents(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Stage -> the exponent of its CPU seconds, of stages that take long enough in two programs."""
    found: dict[str, float] = {}
    for stage in rows[-1]["seconds"] if rows else ():
        points = [(row["ops"], row["seconds"][stage]) for row in rows if row["seconds"][stage] >= LEAST_S]
        if len({ops for ops, _ in points}) > 1:
            ops, seconds = np.log(np.array(points)).T
            found[stage] = round(float(np.polyfit(ops, seconds, 1)[0]), 2)
    return found


if __name__ == "__main__":
    main()
