"""What the simulator says of our programs beside what the compiler says of them.

The simulator's rules were chosen on other programs, and larger ones: what only holds for models of ordinary size
shows here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.against_xla.cases import CASES
from experiments.against_xla.compare import by_kind
from experiments.against_xla.compiled import KEPT

WITHIN = {"compute": (0.8, 1.25), "memory": (0.85, 1.4)}
"""Ours over the compiler's, where a search can trust it."""

FEWEST_STATES = 3
"""Of fewer programs of a model no rank correlation is taken."""

Rows = dict[str, dict[str, float]]


def rows(results: dict[str, Any]) -> Rows:
    """By case: ours over the compiler's, and both steps in seconds, each with its own account of the links."""
    programs, found = KEPT.read(), {}
    for name, pair in results["compiled"].items():
        theirs = programs.get(pair["ours"], {})
        if name in CASES and "estimate" in pair and "compute_s" in theirs:
            ours = pair["estimate"]
            links_s = sum(s for _, _, s in by_kind(CASES[name], theirs).values())
            found[name] = {
                "compute": ours["compute_s"] / theirs["compute_s"],
                "memory": ours["peak_bytes"] / theirs["peak_bytes"],
                "step_s": ours["compute_s"] + ours["collective_s"],
                "compiler_step_s": theirs["compute_s"] + links_s,
            }
    return found


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Of what searches found and of written schedules: how many ratios lie within the bounds, and the extremes."""
    by_origin: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name, row in rows(results).items():
        by_origin["found" if CASES[name].schedule == "found" else "written"].append(row)
    return {
        **{origin: {figure: _spread(of, figure) for figure in WITHIN} for origin, of in by_origin.items()},
        "step_spearman": _ranks(rows(results)),
    }


def _spread(of: list[dict[str, float]], figure: str) -> dict[str, float]:
    ratio, (least, most) = np.array([row[figure] for row in of]), WITHIN[figure]
    within = (ratio >= least) & (ratio <= most)
    return {
        "pairs": len(of),
        "geomean": float(np.exp(np.log(ratio).mean())),
        "least": float(ratio.min()),
        "most": float(ratio.max()),
        "within": float(within.mean()),
    }


def _ranks(found: Rows) -> dict[str, float]:
    """By model and topology: the rank correlation of steps among its schedules."""
    steps: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, row in found.items():
        steps[f"{CASES[name].model} {CASES[name].topology}"].append((row["step_s"], row["compiler_step_s"]))
    columns = {name: np.array(of).T for name, of in steps.items() if len(of) >= FEWEST_STATES}
    return {name: float(spearmanr(ours, theirs)[0]) for name, (ours, theirs) in columns.items()}


def line(results: dict[str, Any], name: str) -> str:
    """A row of the table."""
    row = rows(results).get(name)
    if row is None:
        return f"| {name} | not compiled as it is emitted now |"
    return f"| {name} | {row['compute']:.2f} | {row['memory']:.2f} |"


def table(results: dict[str, Any]) -> str:
    """Every estimate over the compiler's."""
    head = ["| program, schedule, topology | compute, estimate over compiler | memory |", "|---|---|---|"]
    return "\n".join([*head, *(line(results, name) for name in rows(results)), "", str(summary(results))])
