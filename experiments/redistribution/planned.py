"""Cost and height of plans against Shardy's planner, and how long planning takes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from autopart.spmd.redistribution import plan, verify, weak_shortest_path
from experiments.redistribution.problems import PAPER, UNEVEN, ProblemSet, draw
from experiments.redistribution.shardy import Shardy
from experiments.redistribution.statistics import ratios, significant

CUBE_OF_16 = ProblemSet("16x16x16, rank 6", (("x", 16), ("y", 16), ("z", 16)), 100, 0, 16, 1e9, 1e12, (6, 6))


def measure() -> dict[str, Any]:
    """Prints and returns costs, heights and planning times."""
    results = {family.name: _against_shardy(family) for family in (PAPER, UNEVEN)}
    results[CUBE_OF_16.name] = {"planning_ms": _planning_ms(CUBE_OF_16)}
    print(f"{CUBE_OF_16.name}: planning ms {results[CUBE_OF_16.name]['planning_ms']}")
    return results


def _against_shardy(family: ProblemSet) -> dict[str, Any]:
    shardy, problems = Shardy(), draw(family)
    ours, theirs, heights, their_heights, counts, bounds = [], [], [], [], [], []
    for problem in problems:
        steps, sequence = plan(*problem.types), shardy(problem)
        verify(steps)
        ours.append(steps.cost)
        theirs.append(sequence.cost)
        heights.append(steps.height)
        their_heights.append(sequence.largest / problem.largest)
        counts.append((sum(s.kind != "all_slice" for s in steps.steps), sequence.communicating))
        bounds.append(steps.cost <= weak_shortest_path(*problem.types) + problem.types[1].local_elements)
    result = {
        "problems": len(problems),
        "shardy_over_ours": ratios(theirs, ours),
        "dearer_than_shardy": sum(a > b for a, b in zip(ours, theirs, strict=True)),
        "height_max": max(heights),
        "height_max_shardy": significant(max(their_heights)),
        "collectives_mean": significant(float(np.mean([a for a, _ in counts]))),
        "collectives_mean_shardy": significant(float(np.mean([b for _, b in counts]))),
        "within_theorem_6_7": sum(bounds),
        "planning_ms": _planning_ms(family),
    }
    print(
        f"{family.name}: {len(problems)} problems, height at most {result['height_max']:g} "
        f"(Shardy {result['height_max_shardy']:g}), Shardy/ours geomean {result['shardy_over_ours']['geomean']}, "
        f"dearer than Shardy on {result['dearer_than_shardy']}, planning ms {result['planning_ms']}"
    )
    return result


def _planning_ms(family: ProblemSet) -> dict[str, float]:
    """Processor time per problem, nothing cached but the primes of the mesh."""
    taken_ms = []
    for problem in draw(family):
        source, target = problem.types
        start = time.process_time()
        plan.__wrapped__(source, target)
        taken_ms.append((time.process_time() - start) * 1e3)
    quantiles = {"median": 50, "p99": 99, "max": 100}
    return {name: significant(float(np.percentile(taken_ms, q))) for name, q in quantiles.items()}
