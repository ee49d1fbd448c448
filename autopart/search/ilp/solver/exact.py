"""Solves small problems to the end by an integer program: HiGHS in a process of its own, else CBC through PuLP.

    problem --integer_program--> arrays --stdin--> highs_process.py --stdout--> incumbents and bounds, as they come
                                     \\--pulp_model.py--> CBC             where HiGHS is missing, crashed or was killed

Whatever happens to the solver's process, what it had found is kept, and what happened is said in `notes`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from autopart.search.ilp.solver.integer_program import IntegerProgram, choice_of, integer_program
from autopart.search.ilp.solver.pairwise_problem import Floats, Ints, PairwiseProblem

WORKER = Path(__file__).with_name("highs_process.py")
GRACE_S = 5.0
"""How long HiGHS may take beyond its time limit before its process is ended."""

News = Callable[[Ints | None, float], None]
"""Called with a better choice or None, and the bound."""


@dataclass
class Exact:
    """What an integer program gave: the best choice or None, a bound, and whether the search ended by itself."""

    choice: Ints | None = None
    bound: float = -math.inf
    done: bool = False
    infeasible: bool = False
    notes: list[str] = field(default_factory=list[str])


def solve_exactly(
    problem: PairwiseProblem,
    room: Floats,
    seconds: float,
    begin: Ints | None = None,
    seed: int = 0,
    absolute_gap: float = 0.0,
    news: News = lambda choice, bound: None,
) -> Exact:
    """The optimum of a problem over times [0, len(room)), or how far the solver came in so many seconds.

    `begin` is a choice to start from. The search ends when cost and bound differ by at most `absolute_gap`.
    """
    scale = scale_of(problem)
    program = integer_program(problem, room)
    program = program._replace(cost=program.cost * scale)
    answer = Exact()
    if importlib.util.find_spec("highspy") is None:
        answer.notes.append("HiGHS is not installed (pip install 'autopart[ilp]'): CBC instead")
    else:
        started = time.monotonic()
        _by_highs(problem, program, answer, scale, seconds, begin, seed, absolute_gap, news)
        seconds -= time.monotonic() - started
        if answer.done or not answer.notes or seconds <= 0:
            return answer
    from autopart.search.ilp.solver.pulp_model import solve_by_cbc  # PuLP is imported by who needs it alone

    solved = solve_by_cbc(program, seconds)
    if solved is None:
        answer.notes.append("CBC gave no answer")
    elif solved.infeasible:
        answer.infeasible = answer.done = True
    else:
        answer.choice, answer.done = choice_of(problem, solved.values), solved.optimal
        answer.bound = max(answer.bound, problem.cost_of(answer.choice) if solved.optimal else -math.inf)
        news(answer.choice, answer.bound)
    return answer


def _by_highs(
    problem: PairwiseProblem,
    program: IntegerProgram,
    answer: Exact,
    scale: float,
    seconds: float,
    begin: Ints | None,
    seed: int,
    absolute_gap: float,
    news: News,
) -> None:
    """Fills the answer from HiGHS's process; a note is left if that did not end well."""
    model = io.BytesIO()
    options = {"seconds": seconds, "seed": seed, "threads": 1, "gap": absolute_gap * scale}
    arrays: dict[str, Any] = {**program._asdict(), **options, "begin": values_of(problem, begin)}
    np.savez(model, **arrays)
    process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(max(0.0, seconds) + GRACE_S, end)
    timer.start()
    try:
        stdin.write(model.getvalue())
        stdin.close()
        for line in stdout:
            _hear(problem, json.loads(line), answer, scale, news)
    except (BrokenPipeError, json.JSONDecodeError):
        pass
    finally:
        timer.cancel()
        if sys.exc_info()[0] is not None:
            process.kill()
        stdout.close()
        code = process.wait()
    if not answer.done and late.is_set():
        answer.notes.append(f"HiGHS went on {GRACE_S:g} s after its time limit, and was ended")
    elif not answer.done and code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        answer.notes.append(f"HiGHS {how}: CBC instead")


def _hear(problem: PairwiseProblem, said: dict[str, Any], answer: Exact, scale: float, news: News) -> None:
    """Takes in one line of HiGHS's process."""
    bound = said.get("bound")
    if isinstance(bound, float) and math.isfinite(bound):
        answer.bound = max(answer.bound, bound / scale)
    choice = None
    if said.get("ones"):
        values = np.zeros(len(problem.cost))
        values[said["ones"]] = 1.0
        answer.choice = choice = choice_of(problem, values)
    answer.infeasible = said.get("status") == "infeasible"
    answer.done = said.get("status") in ("optimal", "infeasible")
    news(choice, answer.bound)


def scale_of(problem: PairwiseProblem) -> float:
    """A power of two that brings the larger costs near a million: solvers' tolerances are absolute, about 1e-7."""
    costs = np.abs(np.concatenate([problem.cost, problem.edge_cost]))
    costs = costs[np.isfinite(costs) & (costs > 0)]
    return 2.0 ** round(20 - math.log2(float(np.quantile(costs, 0.9)))) if len(costs) else 1.0


def values_of(problem: PairwiseProblem, choice: Ints | None) -> Floats:
    """The variables of the integer program for a choice; empty for None."""
    if choice is None:
        return np.zeros(0)
    chosen = np.zeros(len(problem.cost))
    chosen[problem.strategy_start[:-1] + choice] = 1.0
    u, v = problem.edge_nodes.T
    taken = np.zeros(len(problem.edge_cost))
    taken[problem.edge_start[:-1] + choice[u] * problem.strategies[v] + choice[v]] = 1.0
    return np.concatenate([chosen, taken[np.isfinite(problem.edge_cost)]])
