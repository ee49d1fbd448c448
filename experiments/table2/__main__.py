"""Prints our collectives beside the paper's Table 2 and writes them to `results.json` beside this file.

python -m experiments.table2            all rows
python -m experiments.table2 T32 UNet   rows of some models
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from experiments.kept import write
from experiments.table2.rows import ANEW, KINDS, MESH, MODELS, ROWS, counts, in_order, lowered

RESULTS = Path(__file__).with_name("results.json")


def main(models: list[str]) -> None:
    unknown = set(models) - set(MODELS)
    if unknown:
        raise SystemExit(f"unknown models {sorted(unknown)}; known: {', '.join(MODELS)}")
    print(f"Collectives on mesh {MESH}; ours, then the paper's where it differs\n")
    print(f"{'model':6} {'schedule':14}" + "".join(f"{kind:>19}" for kind in KINDS) + f"{'lowered in':>12}")
    results = []
    for row in ROWS:
        if models and row.model not in models:
            continue
        start = time.perf_counter()
        ours = counts(row)
        lower_s = time.perf_counter() - start
        cells = (f"{a}" if a == b else f"{a} ({b})" for a, b in zip(ours, row.paper, strict=True))
        print(f"{row.model:6} {row.name:14}" + "".join(f"{cell:>19}" for cell in cells) + f"{lower_s:10.1f} s")
        results.append(
            {
                "model": row.model,
                "schedule": row.name,
                "ours": dict(zip(KINDS, ours, strict=True)),
                "paper": dict(zip(KINDS, row.paper, strict=True)),
            }
        )
    anew = _gathered_anew() if not models or "T32" in models else []
    if not models:
        kept = {"mesh": MESH.shape, "rows": results, "gathered_anew": anew}
        write(RESULTS, kept)
    equal = sum(row["ours"] == row["paper"] for row in results)
    print(f"\n{equal} of {len(results)} rows equal the paper's")


def _gathered_anew() -> list[dict[str, object]]:
    """Prints what sharing gathers is worth in the rows where the paper gathers an activation for each use."""
    print("\nactivations gathered once for all uses, and anew for each use as in the paper")
    found = []
    for row in ANEW:
        for name, regather in (("once", False), ("anew", True)):
            low = lowered(replace(row, regather=regather))
            assert low.estimate is not None, MESH
            ours, estimate = in_order(low), low.estimate
            counted = "  ".join(f"{count} {kind}" for count, kind in zip(ours, KINDS, strict=True) if count)
            step, peak = estimate.step_s, estimate.peak_bytes
            print(f"{row.model:6} {row.name:14} {name}  {step:8.3f} s  {peak / 1e9:7.2f} GB  {counted}")
            found.append({"schedule": row.name, "gathered": name, "ours": ours, "step_s": step, "peak_bytes": peak})
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
