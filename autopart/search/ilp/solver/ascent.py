"""Climbs towards the best bound: sweeps of messages, and prices that follow what the decoded choices use.

    prices 0    the choice uses 180 of 100 at times 40..60    bound 44.6
    prices up there, messages adjust, ...                     bound 79.7 -> 82.4 -> 84.0
    the last choices use 99 to 101 of 100: the prices are near what memory is worth at each time

A step goes along the smoothed overuse, as far as Polyak's rule says for the gap to the best known cost, shortened each
time the bound has not risen for a while; then the prices go back to the best.
"""

from __future__ import annotations

import numpy as np

from autopart.search.ilp.solver.dual import decoded, no_messages, reprice, sweep
from autopart.search.ilp.solver.network import Network, price_while_live, used_over_time
from autopart.search.ilp.solver.problem import Floats, Ints

PATIENCE = 10
"""Steps without a better bound before a shorter step is tried from the best prices."""

SHORTER, LONGER, LONGEST, SHORTEST = 0.85, 1.1, 1.5, 1e-4
SMOOTHING = 0.7
"""Weight of the directions before in the next."""

WARM_UP = 10
"""Sweeps to and fro before the first prices: until the messages have arrived, a bound says little."""


class Ascent:
    """The best bound and prices so far; `climb` goes on."""

    def __init__(self, net: Network, price: Floats | None = None):
        self.net, self.messages = net, no_messages(net)
        self.price = np.zeros(len(net.room)) if price is None else price.copy()
        reprice(net, self.messages, self.price)
        self.bound, self.best_price = -np.inf, self.price
        self._direction, self._length, self._waited = np.zeros(len(net.room)), 1.0, 0
        for _ in range(WARM_UP):
            self._sweep()

    def _sweep(self) -> None:
        """To and fro, and the bound that results."""
        sweep(self.net, self.messages, True)
        total = sweep(self.net, self.messages, False)
        bound = float(total - (self.price * self.net.room).sum())
        self._waited += 1
        if bound > self.bound + 1e-7 * abs(bound):
            self._waited, self._length = 0, min(LONGEST, self._length * LONGER)
        if bound > self.bound:
            self.bound, self.best_price = bound, self.price.copy()
        self._last = bound

    def climb(self, steps: int, target: float) -> Ints:
        """So many steps; `target` is the best known cost, or a guess. Returns the last decoded choice."""
        choice = self.choice()
        for _ in range(steps):
            self._step(choice, target)
            self._sweep()
            choice = self.choice()
        return choice

    def choice(self) -> Ints:
        """What the messages say now: often within a few per cent of the room, and maybe forbidden."""
        return decoded(self.net, self.messages, price_while_live(self.net, self.price))

    def _step(self, choice: Ints, target: float) -> None:
        if self._waited > PATIENCE:
            self._waited, self._length = 0, max(SHORTEST, self._length * SHORTER)
            self._direction[:] = 0.0
            self._set(self.best_price)
        over = used_over_time(self.net, choice) - self.net.room
        self._direction = SMOOTHING * self._direction + (1 - SMOOTHING) * over
        along = np.where((self.price <= 0) & (self._direction < 0), 0.0, self._direction)
        square = float((along**2).sum())
        if square > 0:
            gap = max(target - self._last, 1e-4 * abs(target))
            self._set(np.maximum(0.0, self.price + self._length * gap / square * along))

    def _set(self, price: Floats) -> None:
        reprice(self.net, self.messages, price - self.price)
        self.price = price.copy()
