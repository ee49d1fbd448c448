"""Prints our collectives beside the paper's Table 2 and writes them to `results.json` beside this file.

python -m experiments.table2            all rows
python -m experiments.table2 T32 UNet   rows of some models
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from experiments.table2.rows import KINDS, MESH, MODELS, ROWS, counts

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
    if not models:
        RESULTS.write_text(json.dumps({"mesh": MESH.shape, "rows": results}, indent=1) + "\n")
    equal = sum(row["ours"] == row["paper"] for row in results)
    print(f"\n{equal} of {len(results)} rows equal the paper's")


if __name__ == "__main__":
    main(sys.argv[1:])
