"""One program on one mesh: the best named schedule, and what searches of several budgets find.

named     the best named schedule                   1.00
200       AllAuto, 200 evaluations                  0.94 of its seconds, never more than 1
default   AllAuto, the default budget               0.90
unseeded  AllAuto, 200, shown no named schedule     1.07
long      20 times the default, where asked for     0.88
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import autopart as ap
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.search import Search, search

SEARCHES: dict[str, dict[str, Any]] = {
    "200": {"budget": ap.Budget(200)},
    "default": {"budget": ap.Budget()},
    "unseeded": {"budget": ap.Budget(200), "optimizer": ap.MCTS(seeded=False), "baselines": False},
    "long": {"budget": ap.Budget(20_000)},
}


def searched(program: Program, mesh: ap.Mesh, kind: str) -> dict[str, Any]:
    """What one search found, with its anytime curve: [evaluations, score] at each new best."""
    wanted = Search(axes=mesh.axis_names, cache=False, **SEARCHES[kind])
    cpu = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = search(Partitioning(program, mesh), wanted)
    assert found.best is not None
    baselines = found.report["baselines"]
    best_named = min(baselines, key=lambda row: row["rank"])
    return {
        "rank": list(found.best.cost.rank[:2]),
        "step_s": found.best.cost.step_s,
        "peak_bytes": found.best.cost.peak_bytes,
        "evaluations": found.report["evaluations"],
        "cpu_s": time.process_time() - cpu,
        "named": best_named,
        "named_count": len(baselines) - 1,
        "history": found.report["history"],
        "remarks": found.report["remarks"],
    }


def ratio(found: dict[str, Any], reference: list[float]) -> float:
    """The score over that of a reference; infinite where more memory is missing, 0 where less is."""
    (excess, score), (excess_there, score_there) = found["rank"], reference
    if excess != excess_there:
        return float("inf") if excess > excess_there else 0.0
    return score / score_there
