"""Climbs towards the best bound: sweeps of messages, and prices that follow what the decoded choices use.

    prices 0    the choice uses 180 of 100 at times 40..60    bound 44.6
    prices up there, messages adjust, ...                     bound 79.7 -> 82.4 -> 84.0
    the last choices use 99 to 101 of 100: the prices are near what memory is worth at each time

A step goes along the overuse, as far as Polyak's rule says for the gap to the best known cost, and steps get shorter by
and by. Where the bound has not risen for long, the prices go back to the best, and from then on, or no longer, the
direction is smoothed: that helps where a few prices swing against each other, and lags where many have far to go.
"""

from __future__ import annotations

import numpy as np

from autopart.search.ilp.solver.dual import decoded, no_messages, reprice, sweep
from autopart.search.ilp.solver.network import Network, price_while_live, used_over_time
from autopart.search.ilp.solver.pairwise_problem import Floats, Ints

PATIENCE = 100
"""Steps without a better bound before the prices go back to the best."""

HALVED = 50
"""Steps after which a step is half as long as the first, after as many more a third, and so on."""

SMOOTHING = 0.7
"""Weight of the directions before in the next."""

RISE = 1e-6
"""By what share a bound must be better to count as risen."""

WARM_UP = 10
"""Sweeps to and fro before the first prices: until the messages have arrived, a bound says little."""


class Ascent:
    """The best bound and prices so far; `climb` goes on."""

    def __init__(self, net: Network, price: Floats | None = None):
        self.net, self.messages = net, no_messages(net)
        self.price = np.zeros(len(net.room)) if price is None else price.copy()
        reprice(net, self.messages, self.price)
        self.bound, self.best_price = -1e300, self.price.copy()
        self._direction, self._smoothing, self._steps, self._waited = np.zeros(len(net.room)), 0.0, 0, 0
        for _ in range(WARM_UP):
            self._sweep()

    def _sweep(self) -> None:
        """To and fro, and the bound that results."""
        sweep(self.net, self.messages, True)
        total = sweep(self.net, self.messages, False)
        bound = float(total - (self.price * self.net.room).sum())
        self._waited = 0 if bound > self.bound + RISE * abs(self.bound) else self._waited + 1
        if bound > self.bound:
            self.bound, self.best_price = bound, self.price.copy()

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
            self._waited, self._smoothing = 0, SMOOTHING - self._smoothing
            self._direction[:] = 0.0
            self._set(self.best_price)
        over = used_over_time(self.net, choice) - self.net.room
        self._direction = self._smoothing * self._direction + (1 - self._smoothing) * over
        along = np.where((self.price <= 0) & (self._direction < 0), 0.0, self._direction)
        square = float((along**2).sum())
        if square > 0:
            gap = max(target - self.bound, 1e-4 * abs(target))
            length = gap / square / (1 + self._steps / HALVED)
            self._set(np.maximum(0.0, self.price + length * along))
        self._steps += 1

    def _set(self, price: Floats) -> None:
        reprice(self.net, self.messages, price - self.price)
        self.price = price.copy()
