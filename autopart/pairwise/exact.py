"""Solves small problems to the end by an integer program: HiGHS in a process of its own.

    network --integer_program--> arrays --stdin--> highs_process.py --stdout--> incumbents and bounds, as they come

HiGHS is highspy's (the extra `ilp`); where that is missing, crashed or was killed, a solver of PuLP's or SciPy's is
asked. Whatever happens to the solver's process, what it had found is kept, and what happened is said in `notes`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from autopart.pairwise.integer_program import IntegerProgram, choice_of, integer_program, values_of
from autopart.pairwise.network import Network, used_over_time
from autopart.pairwise.pairwise_problem import Floats, Ints

WORKER = Path(__file__).with_name("highs_process.py")
GRACE_S = 5.0
"""How long HiGHS may take beyond its time limit before its process is ended."""

News = Callable[[Ints | None, float], None]
"""Called with a choice, which need not fit, or None, and the bound."""


@dataclass
class Exact:
    """What an integer program gave: the best choice or None, a bound, and whether the search ended by itself."""

    choice: Ints | None = None
    bound: float = -math.inf
    done: bool = False
    infeasible: bool = False
    notes: list[str] = field(default_factory=list[str])

    def say(self, note: str) -> None:
        """Keeps a note, once."""
        self.notes += [note] if note not in self.notes else []


def solve_exactly(
    net: Network,
    times: Ints,
    seconds: float,
    begin: Ints | None = None,
    seed: int = 0,
    absolute_gap: float = 0.0,
    news: News = lambda choice, bound: None,
) -> Exact:
    """The optimum of a network, or how far the solver came in so many seconds.

    It begins with the room of some times, and adds those at which the answer is over until there are none: each
    answer's bound holds. `begin` is a choice to start from. The search ends when cost and bound differ by at most
    `absolute_gap`.
    """
    answer, deadline = Exact(), time.monotonic() + seconds
    times = np.unique(times)
    while True:
        answer = replace(answer, choice=None, done=False)
        _solve_relaxed(net, times, answer, deadline, begin, seed, absolute_gap, news)
        if not answer.done or answer.choice is None:
            return answer
        over = used_over_time(net, answer.choice) - net.room
        if not (over > 0).any():
            return answer
        times = np.union1d(times, _worst(over))


def _worst(over: Floats) -> Ints:
    """The time of each stretch of times over the room at which it is over by most."""
    at = np.flatnonzero(over > 0)
    return np.array([stretch[over[stretch].argmax()] for stretch in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)])


def _solve_relaxed(
    net: Network,
    times: Ints,
    answer: Exact,
    deadline: float,
    begin: Ints | None,
    seed: int,
    absolute_gap: float,
    news: News,
) -> None:
    """Fills the answer with the optimum within the room of some times."""
    scale = scale_of(net)
    program = integer_program(net, times)
    program = program._replace(cost=program.cost * scale)
    if importlib.util.find_spec("highspy") is None:
        answer.say("HiGHS is not installed (pip install 'autopart[ilp]'): PuLP's solver or SciPy's instead")
        ways = ["others"]
    else:
        ways = ["highspy", "others"]
    for way in ways:
        left = deadline - time.monotonic()
        if left <= 0 or _by_highs(way, net, program, answer, scale, left, begin, seed, absolute_gap, news):
            return


def _by_highs(
    way: str,
    net: Network,
    program: IntegerProgram,
    answer: Exact,
    scale: float,
    seconds: float,
    begin: Ints | None,
    seed: int,
    absolute_gap: float,
    news: News,
) -> bool:
    """Fills the answer from the process of one of the two, and says whether that ended well; if not, a note is left."""
    model = io.BytesIO()
    options = {"seconds": seconds, "seed": seed, "threads": 1, "gap": absolute_gap * scale}
    arrays: dict[str, Any] = {
        **program._asdict(),
        **options,
        "begin": np.zeros(0) if begin is None else values_of(net, begin),
    }
    np.savez(model, **arrays)
    process = subprocess.Popen([sys.executable, str(WORKER), way], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
            _hear(net, json.loads(line), answer, scale, news)
    except BrokenPipeError:
        pass
    except json.JSONDecodeError:  # half a line: it died while it wrote
        process.kill()
    finally:
        timer.cancel()
        if sys.exc_info()[0] is not None:
            process.kill()
        with contextlib.suppress(BrokenPipeError):  # what a process that is gone did not read
            stdin.close()
        stdout.close()
        code = process.wait()
    if answer.done or code == 0:
        return True
    who, instead = ("HiGHS", ": PuLP's solver or SciPy's instead") if way == "highspy" else ("what came instead", "")
    if late.is_set():
        answer.say(f"{who} went on {GRACE_S:g} s after its time limit, and was ended")
    else:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        answer.say(f"{who} {how}{instead}")
    return False


def _hear(net: Network, said: dict[str, Any], answer: Exact, scale: float, news: News) -> None:
    """Takes in one line of HiGHS's process."""
    bound = said.get("bound")
    if isinstance(bound, float) and math.isfinite(bound):
        answer.bound = max(answer.bound, bound / scale)
    choice = None
    if said.get("ones"):
        values = np.zeros(len(net.cost))
        values[said["ones"]] = 1.0
        answer.choice = choice = choice_of(net, values)
    answer.infeasible = said.get("status") == "infeasible"
    answer.done = said.get("status") in ("optimal", "infeasible")
    news(choice, answer.bound)


def scale_of(net: Network) -> float:
    """A power of two that brings the larger costs near a million: solvers' tolerances are absolute, about 1e-7."""
    costs = np.abs(np.concatenate([net.cost, net.edge_cost]))
    costs = costs[np.isfinite(costs) & (costs > 0)]
    return 2.0 ** round(20 - math.log2(float(np.quantile(costs, 0.9)))) if len(costs) else 1.0
