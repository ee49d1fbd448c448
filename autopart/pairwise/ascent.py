"""Climbs towards the best bound: sweeps of messages, and prices that follow what the decoded choices use.

    price small everywhere    the choice uses 180 of 100 at times 40..60    bound 44.6
    price x 2.7 up there      130 of 100                                    bound 60.1
    x 2.5, x 1.1, ..          the last choices use 99 to 101 of 100         bound 84.0

Prices are multiplied, as multiplicative weights for packing programs are (Plotkin, Shmoys and Tardos 1995): by e to the
power of the share by which the choice is over or under what there is room for, times a step that gets shorter. So a
price is of the right size after a few steps, whatever costs are counted in, and no guess of the optimum is needed.
"""

from __future__ import annotations

import numpy as np

from autopart.pairwise.dual import decoded, no_messages, sweep
from autopart.pairwise.network import Network, largest_cost, paid, used_over_time
from autopart.pairwise.pairwise_problem import Floats, Ints

FIRST = 0.1
"""What all room is worth at the first prices, as a share of the bound without prices."""

STEP, LONGEST = 3.0, 1.0
"""The power of e in the first step, for a share of 1 that is over; and the largest power in any step."""

HALVED = 50
"""Steps after which a step is half as long as the first, after as many more a third, and so on."""

FLOOR = 1e-4
"""Where a choice is over, a price is at least this share of the highest."""

WARM_UP = 10
"""Sweeps to and fro before the first prices: until the messages have arrived, a bound says little."""


class Ascent:
    """The best bound and prices so far; `climb` goes on."""

    def __init__(self, net: Network):
        self.net, self.messages = net, no_messages(net)
        self.price, self._paid, self._steps = np.zeros(len(net.room)), np.zeros(len(net.cost)), 0
        self.bound, self.best_price = -1e300, self.price
        for _ in range(WARM_UP):
            self._sweep()

    def _sweep(self) -> None:
        """To and fro, and the bound that results."""
        sweep(self.net, self.messages, True)
        total = sweep(self.net, self.messages, False)
        bound = float(total - (self.price * self.net.room).sum())
        if bound > self.bound:
            self.bound, self.best_price = bound, self.price

    def climb(self, steps: int) -> Ints:
        """So many steps. Returns the last decoded choice."""
        choice = self.choice()
        for _ in range(steps):
            self._step(choice)
            self._sweep()
            choice = self.choice()
        return choice

    def choice(self) -> Ints:
        """What the messages say now: often within a few per cent of the room, and maybe forbidden."""
        return decoded(self.net, self.messages, self.net.cost + self._paid)

    def _step(self, choice: Ints) -> None:
        room = self.net.room
        if not len(room):
            return
        over = used_over_time(self.net, choice) / np.maximum(room, 1e-9 * room.max(initial=1.0)) - 1.0
        if not self._steps:
            if not (over > 0).any():
                return
            worth = FIRST * max(abs(self.bound), largest_cost(self.net))
            self._set(np.full(len(room), worth / max(room.sum(), 1e-300)))
        power = STEP / (1 + self._steps / HALVED) * over
        price = self.price * np.exp(power.clip(-LONGEST, LONGEST))
        self._set(np.maximum(price, np.where(over > 0, FLOOR * price.max(), 0.0)))
        self._steps += 1

    def _set(self, price: Floats) -> None:
        now = paid(self.net, price)
        self.messages.theta[:] += now - self._paid
        self.price, self._paid = price, now
