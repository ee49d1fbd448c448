"""Choices that fit: trees of moves where one does not yet, then trees of moves everywhere.

decoded choice    2 % over at times 40..50, 3,415 forbidden pairs
repair            trees from the nodes that live then, or are in such a pair; prices rise where it is over
improve           trees from anywhere, at prices x 1, 0.9, .. 0: room that is left goes where it saves most
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autopart.pairwise.network import Network, cost_of, largest_cost, paid, used_over_time
from autopart.pairwise.pairwise_problem import Floats, Ints
from autopart.pairwise.tree_moves import scratch, tree_moves

WEIGHTS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)
"""Shares of the prices, in turn: at 1 memory is freed that at 0 is spent."""

TREE = 30
"""The most nodes in a tree."""

LARGEST_TREE = 500
REPAIRS = 60
"""Rounds of a repair, with trees that grow from TREE to LARGEST_TREE."""

RISE = 1.2
"""By what a price grows in a round of a repair while what is used is over."""

UNWATCHED = 50_000
"""Nodes of trees that are moved between two looks at the clock."""

FORBIDDEN = 1e4
"""What a forbidden pair costs while a choice is repaired, in largest costs."""


class LocalSearch:
    """The best choice that fits so far, and the one that moves go on from; it ends early once `more` says False."""

    def __init__(self, net: Network, seed: int, more: Callable[[], bool] = lambda: True):
        self._more = more
        finite = np.isfinite(net.edge_cost)
        self.net, self._memory = net, scratch(net, seed)
        self._soft = net._replace(edge_cost=np.where(finite, net.edge_cost, FORBIDDEN * largest_cost(net)))
        self.choice: Ints | None = None
        self.best: Ints | None = None
        self.cost = math.inf

    def offer(self, choice: Ints) -> bool:
        """Takes a choice to go on from, if it is allowed, fits and none better is known here."""
        if not math.isfinite(cost_of(self.net, choice)) or not self._fits(choice):
            return False
        if self.choice is None or cost_of(self.net, choice) < cost_of(self.net, self.choice):
            self.choice = choice.copy()
        self._note(choice)
        return True

    def repair(self, choice: Ints, price: Floats) -> Ints | None:
        """A choice near the given one that is allowed and fits; None if prices did not lead to one."""
        choice, price, most, before = choice.copy(), price.copy(), float(TREE), len(choice) + 1
        used = used_over_time(self.net, choice)
        lowest = 1e-3 * float(price.max(initial=0.0)) or largest_cost(self.net) / (
            float(self.net.usage.max(initial=0.0)) or 1.0
        )
        for _ in range(REPAIRS):
            if not self._more():
                return None
            over = used > self.net.room
            wrong = _ends_of_forbidden(self.net, choice)
            if not (len(wrong) or over.any()):
                return choice
            roots = wrong if len(wrong) else _live_while(self.net, over)
            price = np.where(over, price * RISE + lowest, price)
            stuck, before = 0 < len(wrong) >= before, len(wrong)
            net = self._soft._replace(room=np.full_like(used, np.inf)) if stuck else self._soft
            self._move(net, choice, used, self.net.cost + paid(self.net, price), roots, len(roots), int(most))
            most = min(LARGEST_TREE, most * RISE)
        return None

    def improve(self, price: Floats, choice: Ints | None = None) -> float:
        """Tree moves at falling prices, from the current choice or another. Returns the cost that they end at."""
        choice = self.choice if choice is None else choice
        if choice is None:
            return math.inf
        used, all_paid = used_over_time(self.net, choice), paid(self.net, price)
        everywhere = np.arange(len(choice))
        for weight in WEIGHTS:
            moves = 1 + len(choice) // 4
            self._move(self._soft, choice, used, self.net.cost + weight * all_paid, everywhere, moves, TREE)
        self._note(choice)
        return cost_of(self.net, choice)

    def _move(self, net: Network, choice: Ints, used: Floats, own: Floats, roots: Ints, moves: int, most: int) -> None:
        """`tree_moves`, as many at a time as the clock may wait for."""
        at_a_time = max(1, UNWATCHED // most)
        for first in range(0, moves, at_a_time):
            if self._more():
                count = min(at_a_time, moves - first)
                tree_moves(net, self._memory, choice, used, own, roots, count, most)

    def _note(self, choice: Ints) -> None:
        cost = cost_of(self.net, choice)
        if cost < self.cost and self._fits(choice):
            self.best, self.cost = choice.copy(), cost

    def _fits(self, choice: Ints) -> bool:
        return not (used_over_time(self.net, choice) > self.net.room).any()


def _ends_of_forbidden(net: Network, choice: Ints) -> Ints:
    """The nodes whose strategies are forbidden together, ascending."""
    width = net.start[net.v + 1] - net.start[net.v]
    wrong = np.isinf(net.edge_cost[net.edge_start[:-1] + choice[net.u] * width + choice[net.v]])
    return np.unique(np.concatenate([net.u[wrong], net.v[wrong]]))


def _live_while(net: Network, times: NDArray[np.bool_]) -> Ints:
    """The nodes with several strategies that live at one of these times."""
    before = np.concatenate([[0], np.cumsum(times)])
    live = np.repeat(np.arange(len(net.part) - 1), np.diff(net.part))[before[net.end] > before[net.begin]]
    return np.intersect1d(live, np.flatnonzero(np.diff(net.start) > 1))
