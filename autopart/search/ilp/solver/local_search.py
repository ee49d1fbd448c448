"""Choices that fit: forest moves at rising prices until one does, then tree moves that stay within the room.

    decoded choice    2 % over at times 40..50, three forbidden pairs
    forest moves      at prices that rise where it is over: fits
    tree moves        nothing forbidden any more
    improve           tree moves at prices x 1, 0.9, .. 0: room that is left goes where it saves most
"""

from __future__ import annotations

import math

import numpy as np

from autopart.search.ilp.solver.network import Network, cost_of, price_while_live, used_over_time
from autopart.search.ilp.solver.problem import Floats, Ints
from autopart.search.ilp.solver.tree_moves import forest_move, scratch, tree_moves

WEIGHTS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)
"""Shares of the prices, in turn: at 1 memory is freed that at 0 is spent."""

TREE = 30
"""The most nodes in a tree."""

SETTLE, REPAIRS = 5, 150
"""Moves of a repair, and those of them after which prices of zero rise too."""

RISE = 1.05

FORBIDDEN = 1e4
"""What a forbidden pair costs while a choice is repaired, in largest costs."""


class LocalSearch:
    """The best choice that fits so far, and the one that moves go on from."""

    def __init__(self, net: Network, seed: int):
        finite = np.isfinite(net.edge_cost)
        self.net, self._memory = net, scratch(net, seed)
        self._soft = net._replace(edge_cost=np.where(finite, net.edge_cost, FORBIDDEN * _largest(net)))
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
        choice, price = choice.copy(), price.copy()
        used = used_over_time(self.net, choice)
        for step in range(REPAIRS):
            unit = price_while_live(self.net, price)
            if (used > self.net.room).any():
                forest_move(self._soft, self._memory, choice, unit)
                used = used_over_time(self.net, choice)
                least = 1e-3 * float(price.max(initial=0.0)) or _largest(self.net) / float(self.net.usage.max())
                price = np.where(used > self.net.room, price * RISE + (least if step >= SETTLE else 0.0), price)
            elif not math.isfinite(cost_of(self.net, choice)):
                tree_moves(self._soft, self._memory, choice, used, unit, len(choice), TREE)
            else:
                return choice
        return None

    def improve(self, price: Floats, choice: Ints | None = None) -> float:
        """One round of tree moves at falling prices, from the current choice or another. Returns the cost it ends at."""
        choice = self.choice if choice is None else choice
        if choice is None:
            return math.inf
        used, unit = used_over_time(self.net, choice), price_while_live(self.net, price)
        for weight in WEIGHTS:
            tree_moves(self._soft, self._memory, choice, used, weight * unit, 1 + len(choice) // 4, TREE)
        self._note(choice)
        return cost_of(self.net, choice)

    def _note(self, choice: Ints) -> None:
        cost = cost_of(self.net, choice)
        if cost < self.cost and self._fits(choice):
            self.best, self.cost = choice.copy(), cost

    def _fits(self, choice: Ints) -> bool:
        return not (used_over_time(self.net, choice) > self.net.room).any()


def _largest(net: Network) -> float:
    """The largest cost of a strategy or pair."""
    finite = net.edge_cost[np.isfinite(net.edge_cost)]
    return float(max(np.abs(net.cost).max(initial=0.0), np.abs(finite).max(initial=0.0))) or 1.0
