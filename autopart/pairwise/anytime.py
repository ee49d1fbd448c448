"""Solves a pairwise problem: exactly if it is small enough, else as well as the time allows, always with a bound.

    reduce                        a problem with the same optimum, often a tenth of the size
    rounds of  climb, search      the bound rises with the prices; choices are made at those prices, and improved
    integer program               after a few rounds, where what is left is small: HiGHS starts from the best choice
    restore                       a choice for the problem as it was given

The answer depends on the problem, the start, the seed, and on how many rounds the time allows. Time limits are
looked at between rounds, and do not count the seconds in which kernels are compiled, once on a machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from autopart.base.arguments import FLAG, NONE, check, function_of, number, whole
from autopart.pairwise.ascent import Ascent
from autopart.pairwise.contraction import Contraction, contracted
from autopart.pairwise.exact import Exact, solve_exactly
from autopart.pairwise.local_search import LocalSearch
from autopart.pairwise.network import Network, network, used_over_time
from autopart.pairwise.pairwise_error import PairwiseError
from autopart.pairwise.pairwise_problem import Floats, Ints, PairwiseProblem
from autopart.pairwise.reduction import NO_ROOM, Reduction, least_usage, reduced
from autopart.pairwise.shared_costs import Groups, Shared, level
from autopart.pairwise.solution import Incumbent, Solution, Status

SMALL = 150_000
"""Allowed pairs of strategies up to which an integer program is tried."""

FEW_TIMES = 200
"""The integer program begins with the room of at most so many times, the dearest ones."""

ROUNDS_BEFORE_EXACT = 6
CLIMB = 20
"""Steps of the bound a round."""

NEARLY = 1.02
"""A decoded choice is worth a repair when it uses at most so many times the room; or after 1, 2, 4, 8, .. rounds."""

FRESH = 1e-3
"""A decoded choice is repaired when the bound has risen by this share since the last one."""

INTERRUPTED = "stopped by Ctrl-C"
"""The note of a solution that Ctrl-C ended: whoever solves many problems goes no further."""

STALLED, PATIENCE = 2e-4, 3
"""Where only a bound is asked for, the climb ends when a round raises it by less than this share; with prices, which
may rise for nothing at first, when so many in turn do."""

OPTIMAL = 1e-9
"""A cost that is within this share of the bound is the least there is."""

Progress = Callable[[Incumbent], None]


def solve(
    problem: PairwiseProblem,
    seconds: float = 60.0,
    start: ArrayLike | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    gap: float = 0.0,
    only_bound: bool = False,
) -> Solution:
    """The best choice found in so many seconds, with a bound; see `Solution`.

    `start` is a choice int[n] that is known: the answer is never worse than it if it fits; with `seconds=0` it is the
    answer. The search ends when the bound is within the share `gap` of the cost. `progress` is called with an
    `Incumbent` when the cost or the bound is better than before. Ctrl-C ends the search, and what is known then is the
    answer. With `only_bound` no choice is looked for unless that takes little, and a bound that hardly rises any more
    is the answer.

    >>> problem = PairwiseProblem.of(
    ...     costs=[[3, 5], [0, 1, 9]], usages=[[8, 2], [6, 4, 0]], intervals=[[0, 4], [2, 6]],
    ...     edges=[(0, 1, [[0, 7, 7], [7, 0, 2]])], usage_limit=10,
    ... )
    >>> answer = solve(problem)
    >>> answer.choice.tolist(), answer.cost, answer.bound, answer.status
    ([1, 1], 6.0, 6.0, 'optimal')
    """
    check("solve", PairwiseError, seconds=(seconds, number(0)), seed=(seed, whole(0)), gap=(gap, number(0)))
    check("solve", PairwiseError, progress=(progress, NONE | function_of(1)), only_bound=(only_bound, FLAG))
    load_kernels()
    run = _Run(problem, seconds, seed, progress, gap, only_bound)
    try:
        run.begin(start)
        if seconds > 0:
            run.solve()
    except KeyboardInterrupt:
        run.notes.append(INTERRUPTED)
    return run.solution()


class _Run:
    """One call of `solve`: what is known so far, in terms of the given problem."""

    def __init__(
        self,
        problem: PairwiseProblem,
        seconds: float,
        seed: int,
        progress: Progress | None,
        gap: float,
        only_bound: bool,
    ):
        self.problem, self.seconds, self.seed, self.progress, self.gap = problem, seconds, seed, progress, gap
        self.only_bound = only_bound
        self.began = time.monotonic()
        self.choice: Ints | None = None
        self.cost, self.bound = math.inf, _sum_of_least(problem)
        self.infeasible, self.least_usage = False, None
        self.incumbents: list[Incumbent] = []
        self.notes: list[str] = []
        entries = np.concatenate([problem.cost, problem.edge_cost])
        entries = entries[np.isfinite(entries)]
        self.whole = bool((entries == np.round(entries)).all())

    def begin(self, start: ArrayLike | None) -> None:
        """Takes in a start; one that does not fit, or takes what is forbidden, is no answer, which is said."""
        if start is None:
            return
        given = self.problem.checked(start)
        if not self.problem.fits(given):
            used, limit = self.problem.usage_of(given), self.problem.usage_limit
            self.notes.append(f"the start uses {used:g} of {limit:g}: it is no answer")
        elif not math.isfinite(self.problem.cost_of(given)):
            self.notes.append("the start takes something forbidden: it is no answer")
        else:
            self.learn(given, -math.inf)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.began + self.seconds - time.monotonic()

    @property
    def closed(self) -> bool:
        """True if nothing can be better than the best choice, or by no more than is asked for."""
        return self.choice is not None and self.cost - self.bound <= max(OPTIMAL, self.gap) * abs(self.cost)

    def learn(self, choice: Ints | None, bound: float) -> None:
        """Takes in a choice for the given problem or None, and a bound; tells `progress` if one of them is better."""
        better = False
        if choice is not None:
            cost = self.problem.cost_of(choice)
            if cost < self.cost and self.problem.fits(choice):
                self.choice, self.cost, better = choice, cost, True
        if self.whole and math.isfinite(bound):
            bound = float(math.ceil(bound - 1e-6 * max(1.0, 1e-6 * abs(bound))))
        bound = min(bound, self.cost)
        if better or bound > self.bound:
            self.bound = max(self.bound, bound)
            self.incumbents.append(Incumbent(time.monotonic() - self.began, self.cost, self.bound))
            if self.progress is not None:
                self.progress(self.incumbents[-1])

    def solve(self) -> None:
        """Reduces, then rounds and the integer program."""
        state = reduced(self.problem)
        if state.infeasible:
            self.infeasible = True
            self.notes.append(self.why(state))
        elif not len(state.nodes):
            self.learn(state.restored(np.zeros(0, np.int64)), state.offset)
        else:
            self.search(state)

    def why(self, state: Reduction) -> str:
        """Why nothing is feasible; the least usage where that is it."""
        limit = self.problem.usage_limit
        if state.infeasible != NO_ROOM or limit is None:
            return state.infeasible
        self.least_usage = least_usage(self.problem)
        return f"every choice uses at least {self.least_usage:g} at some time; the limit is {limit:g}"

    def search(self, state: Reduction) -> None:
        """Rounds on what is left after reductions."""
        rest = state.rest()
        fewer = contracted(rest, state.room)
        if fewer is None:
            self.infeasible = True
            self.notes.append("no choice avoids all pairs that are forbidden")
            return
        net = fewer.net
        small = int(np.isfinite(net.edge_cost).sum()) <= SMALL
        ascent = Ascent(net)
        if self.only_bound and not small:
            self.climb(state, ascent)
            return
        local = LocalSearch(net, self.seed, lambda: self.left > 0)
        if self.choice is not None:
            local.offer(fewer.narrowed(state.narrowed(self.choice)))
        self.learn(None, state.offset + ascent.bound)
        tried_at, turn = -math.inf, 0
        while self.left > 0 and not self.closed:
            decoded = ascent.climb(CLIMB)
            turn += 1
            fresh = ascent.bound - tried_at > FRESH * abs(ascent.bound)
            if (fresh or local.choice is None) and (nearly_fits(net, decoded) or turn & (turn - 1) == 0):
                tried_at = ascent.bound
                repaired = local.repair(decoded, ascent.best_price)
                if repaired is not None:
                    local.improve(ascent.best_price, repaired)
                    local.offer(repaired)
            local.improve(ascent.best_price)
            best = None if local.best is None else fewer.expanded(local.best)
            self.learn(None if best is None else state.restored(best), state.offset + ascent.bound)
            if small and turn == ROUNDS_BEFORE_EXACT and self.finish(state, fewer, ascent.best_price, local.best):
                return

    def climb(self, state: Reduction, ascent: Ascent) -> None:
        """The bound alone, as long as it rises."""
        self.learn(None, state.offset + ascent.bound)
        stalled, most = 0, PATIENCE if len(ascent.net.room) else 1
        while self.left > 0 and stalled < most:
            before = self.bound
            ascent.climb(CLIMB)
            self.learn(None, state.offset + ascent.bound)
            stalled = 0 if self.bound - before > STALLED * abs(self.bound) else stalled + 1

    def finish(self, state: Reduction, fewer: Contraction, price: Floats, best: Ints | None) -> bool:
        """The integer program on what is left. True if it came to an end."""

        def restored(choice: Ints) -> Ints:
            return state.restored(fewer.expanded(choice))

        times = np.arange(len(price)) if len(price) <= FEW_TIMES else np.argsort(-price, kind="stable")[:FEW_TIMES]
        answer: Exact = solve_exactly(
            fewer.net,
            times,
            self.left,
            best,
            self.seed,
            max(0.999 if self.whole else 0.0, self.gap * abs(self.cost) if self.choice is not None else 0.0),
            lambda choice, bound: self.learn(None if choice is None else restored(choice), state.offset + bound),
        )
        self.notes += answer.notes
        self.infeasible = answer.infeasible and self.choice is None
        if answer.done and answer.choice is not None:
            choice = restored(answer.choice)
            self.learn(choice, state.offset + answer.bound if self.gap else self.problem.cost_of(choice))
        return answer.done

    def solution(self) -> Solution:
        """What is known now."""
        found = self.choice is not None
        status: Status = "infeasible" if self.infeasible else "feasible" if found else "unknown"
        if found and self.cost - self.bound <= OPTIMAL * abs(self.cost):
            status = "optimal"
        return Solution(
            self.choice,
            self.cost,
            math.inf if self.infeasible else self.bound,
            status,
            time.monotonic() - self.began,
            tuple(self.incumbents),
            tuple(self.notes),
            self.least_usage,
        )


@cache
def load_kernels() -> None:
    """Compiles the kernels, or loads what was compiled before, so that this is no part of anyone's seconds."""
    costs = [[0.0, 2.0], [2.0, 1.0]]
    two = PairwiseProblem.of(costs, costs, [[0, 1], [0, 1]], [(0, 1, costs), (1, 0, costs)], 3)
    state = reduced(two)
    net = network(two, np.ones(1))
    ascent, local = Ascent(net), LocalSearch(net, 0)
    local.repair(ascent.climb(1), ascent.best_price)
    local.improve(ascent.best_price, np.zeros(2, np.int64))
    state.rest()
    one, two = np.zeros(1, np.int64), np.full(1, 2)
    start, kind, parts = np.array([0, 4]), np.zeros(4, np.int64), np.ones((1, 2, 1))
    shared = Shared(one, np.ones(1, np.bool_), two, start, np.ones(4), kind, parts)
    level(net, ascent.messages, Groups.of([shared]))


def nearly_fits(net: Network, choice: Ints) -> bool:
    """True if a choice uses little more than there is room for, at any time."""
    return bool((used_over_time(net, choice) <= NEARLY * net.room).all())


def _sum_of_least(problem: PairwiseProblem) -> float:
    """The least cost of each node and edge, together."""
    parts = ((problem.cost, problem.strategy_start), (problem.edge_cost, problem.edge_start))
    return float(sum(np.minimum.reduceat(v, at[:-1]).sum() for v, at in parts if len(at) > 1))
