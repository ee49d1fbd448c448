"""The times at which a limit on usage can matter at all: usually few of many.

    a  |=======|              times 0..2 of a; b from 2 on; c from 3 on
    b      |=======|          what lives at time 0 and 1 also lives at time 2: time 2 says it all
    c        |===|            kept: 2 (a, b) and 3 (b, c)

A time is kept if something starts to live there and something ends before the next start, so its live set is in no
other (a maximal clique of the interval graph), and if the largest usages of what lives there exceed the limit.
"""

from __future__ import annotations

import numpy as np

from autopart.pairwise.field_checks import Floats, Ints


def binding_times(live: Ints, most: Floats, limit: float) -> Ints:
    """The times, ascending, that imply the limit at all others.

    live int64[n, 2] are half-open intervals, most float64[n] the largest usage of each node. All are kept that can
    exceed `limit` (a node of usage 0 is not live).
    """
    used = (live[:, 0] < live[:, 1]) & (most > 0)
    start, stop = live[used, 0], live[used, 1]
    if not len(start):
        return np.zeros(0, np.int64)
    begins = np.unique(start)
    stops = np.sort(stop)
    following = np.append(begins[1:], np.iinfo(np.int64).max)
    ended = np.searchsorted(stops, following, "right") > np.searchsorted(stops, begins, "right")
    kept = begins[ended]
    return kept[sums_at(kept, start, stop, most[used]) > limit]


def sums_at(times: Ints, start: Ints, stop: Ints, amount: Floats) -> Floats:
    """float64[times]: the sum of the amounts that are live in [start, stop) at each of the ascending times."""
    change = np.zeros(len(times) + 1)
    np.add.at(change, np.searchsorted(times, start), amount)
    np.add.at(change, np.searchsorted(times, stop), -amount)
    return np.cumsum(change)[:-1]
