"""Estimates the runs that others have published.

python -m experiments.published_runs            all: results.json, the table of README.md, docs/published-runs.svg
python -m experiments.published_runs v5p        those whose name contains this; nothing is written
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
FIGURE = HERE.parents[1] / "docs/published-runs.svg"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean error, the least and the most ratio, and Spearman's rank correlation of tokens per second."""
    from scipy import stats

    ratios = [row["ratio"] for row in rows]
    published, estimated = ([row[key] for row in rows] for key in ("published", "estimated"))
    return {
        "runs": len(rows),
        "mean_error": round(sum(abs(r - 1) for r in ratios) / len(ratios), 4),
        "least": min(ratios),
        "most": max(ratios),
        "spearman": round(float(stats.spearmanr(published, estimated).statistic), 4),
    }


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """A row a run."""
    lines = [
        "| run | mesh | source | published tokens/s per device | estimated | ratio | peak GB, of it kept on the host |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        mesh = ", ".join(f"{axis} {size}" for axis, size in row["mesh"].items())
        memory = f"{row['peak_gb']}" + (f", {row['offloaded_gb']}" if row["offloaded_gb"] else "")
        cells = row["name"], mesh, row["source"], f"{row['published']:,.0f}", f"{row['estimated']:,.0f}"
        lines.append("| " + " | ".join([*cells, f"{row['ratio']:.2f}", memory]) + " |")
    return "\n".join(lines)


def said(found: Mapping[str, Mapping[str, float]]) -> str:
    """The summaries as a table."""
    lines = ["| | runs | mean error | ratios | Spearman |", "|---|---|---|---|---|"]
    for name, of in found.items():
        ratios = f"{of['least']:.2f} to {of['most']:.2f}"
        lines.append(f"| {name} | {of['runs']} | {of['mean_error']:.1%} | {ratios} | {of['spearman']:.3f} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    """Estimates the runs whose name contains a word, or all of them, which are then kept."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from experiments.kept import write
    from experiments.published_runs import figure
    from experiments.published_runs.runs import runs
    from experiments.simulator_accuracy.__main__ import written

    asked = {name: run for name, run in runs().items() if not words or any(word in name for word in words)}
    rows = [run.row() for run in asked.values()]
    print(table(rows))
    if words:
        return
    cohorts = {name: run.cohort for name, run in asked.items()}
    kinds = {of: [row for row in rows if cohorts[row["name"]] == of] for of in dict.fromkeys(cohorts.values())}
    found = {name: summary(of) for name, of in (*kinds.items(), ("all", rows))}
    print(said(found))
    write(RESULTS, {"summary": found, "rows": rows})
    page = HERE / "README.md"
    page.write_text(written(page.read_text(), rows=table(rows), summary=said(found)))
    figure.draw(rows, FIGURE)


if __name__ == "__main__":
    main(sys.argv[1:])
