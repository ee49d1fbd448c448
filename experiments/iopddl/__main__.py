"""Solves contest instances and sets the answers beside what others published.

python -m experiments.iopddl                            the two stored instances, to proved optima
python -m experiments.iopddl --instances FOLDER         every .json and .json.gz of a folder

Each run replaces its rows in `results.json`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from autopart.pairwise import read_problem, solve
from experiments.iopddl.published import PUBLISHED

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
COLUMNS = "instance  nodes   cost              bound             gap     status    wall s  CPU s  / winner  / XLA"


def solved(path: Path, seconds: float) -> dict[str, Any]:
    """One row: what `solve` gives for the file in so many seconds, and its ratios to what was published."""
    problem = read_problem(path)
    cpu = sum(os.times()[:4])
    answer = solve(problem, seconds)
    known = PUBLISHED.get(path.name.split(".")[0][-1:])
    return {
        "instance": problem.name,
        "nodes": problem.nodes,
        "cost": answer.cost if answer.choice is not None else None,
        "bound": answer.bound,
        "gap": answer.gap if answer.choice is not None else None,
        "status": answer.status,
        "limit_s": seconds,
        "wall_s": round(answer.seconds, 1),
        "cpu_s": round(sum(os.times()[:4]) - cpu, 1),
        "fits": answer.choice is not None and problem.fits(answer.choice),
        "over_winner": round(answer.cost / known.winner, 4) if known and answer.choice is not None else None,
        "over_xla": round(answer.cost / known.xla, 4) if known and known.xla and answer.choice is not None else None,
        "published_bound": known.bound if known else None,
        "notes": list(answer.notes),
    }


def line(row: dict[str, Any]) -> str:
    """The row for readers."""
    shown = {k: "-" if v is None else v for k, v in row.items()}
    gap = "-" if row["gap"] is None else f"{row['gap']:.2%}"
    cost = "-" if row["cost"] is None else f"{row['cost']:.0f}"
    return (
        f"{row['instance'][-8:]:9} {row['nodes']:<7} {cost:<17} {row['bound']:<17.0f} {gap:7} {row['status']:9} "
        f"{row['wall_s']:<7} {row['cpu_s']:<6} {shown['over_winner']!s:9} {shown['over_xla']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=Path, default=HERE / "data", help="a folder, or one file")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each instance")
    options = parser.parse_args()
    where: Path = options.instances
    files = [where] if where.is_file() else sorted([*where.glob("*.json"), *where.glob("*.json.gz")])
    print(COLUMNS, flush=True)
    for path in files:
        row = solved(path, options.seconds)
        print(line(row), flush=True)
        known = {r["instance"]: r for r in json.loads(RESULTS.read_text())} | {row["instance"]: row}
        RESULTS.write_text(json.dumps([known[name] for name in sorted(known)], indent=1) + "\n")


if __name__ == "__main__":
    main()
