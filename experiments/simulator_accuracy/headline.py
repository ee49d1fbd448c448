"""What decides: is the state that the estimate likes best the compiler's best, are states in its order, does it fit?

regret   the compiler's step of the state that we like best over its best of that program's states, less one
order    of pairs of states of a program whose steps are 3 % or more apart by the compiler: how many we order so
fits     over limits of a device's memory, whole and halved up to six times: for how many pairs we say what the
         compiler says
compute  our seconds over the compiler's: the share within 0.8 to 1.25, and the mean of the absolute logarithm
memory   the same logarithm of peak bytes
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

Rows = Sequence[dict[str, Any]]

WITHIN = (0.8, 1.25)
APART = 1.03
HALVED = 6


def headline(rows: Rows) -> dict[str, float]:
    """The figures over rows of pairs, each with model, step_s, compute_s, peak_bytes, hbm_bytes and the compiler's."""
    states = [of for of in _by_model(rows).values() if len(of) > 1]
    regrets, ordered = [_regret(of) for of in states], [right for of in states for right in _ordered(of)]
    limits = [row["hbm_bytes"] / 2**halved for row in rows for halved in range(HALVED + 1)]
    fits = [
        (row["peak_bytes"] <= limit) == (row["compiler_peak_bytes"] <= limit)
        for row, limit in zip((row for row in rows for _ in range(HALVED + 1)), limits, strict=True)
    ]
    compute = [row["compute_s"] / row["compiler_compute_s"] for row in rows]
    memory = [row["peak_bytes"] / row["compiler_peak_bytes"] for row in rows]
    return {
        "pairs": len(rows),
        "programs_with_states": len(states),
        "regret_mean": _mean(regrets),
        "regret_most": max(regrets, default=0.0),
        "pairs_of_states": len(ordered),
        "ordered": _mean(ordered),
        "fits": _mean(fits),
        "compute_within": _mean([WITHIN[0] <= ratio <= WITHIN[1] for ratio in compute]),
        "compute_off": _mean([abs(math.log(ratio)) for ratio in compute]),
        "memory_off": _mean([abs(math.log(ratio)) for ratio in memory]),
    }


def _by_model(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["model"]].append(row)
    return found


def _regret(states: Rows) -> float:
    liked = min(states, key=lambda row: row["step_s"])
    return liked["compiler_step_s"] / min(row["compiler_step_s"] for row in states) - 1


def _ordered(states: Rows) -> list[bool]:
    found = []
    for a, b in itertools.combinations(states, 2):
        theirs = a["compiler_step_s"] / b["compiler_step_s"]
        if max(theirs, 1 / theirs) >= APART:
            found.append((theirs > 1) == (a["step_s"] > b["step_s"]))
    return found


def _mean(of: Sequence[float]) -> float:
    return sum(of) / len(of) if of else 0.0
