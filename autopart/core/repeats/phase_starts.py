"""Where a layer begins in each phase, whose chains follow each other in the program, over and over.

    arguments   c1 a2 b2  c2 a3 b3  c3       a phase is found from any of its chains on, here from c
    layers      1  1  1   2  2  2   3        and begins with each of them as well: a, b, c of 2 are one layer then
    or          1  2  2   2  3  3   3

Those layers are whole that every chain has an op in. A phase of arguments begins where most layers are: where it begins
later, the first layer inside the stack may have an argument that an op outside it reads. For ops that would be no gain,
since the ops that they read would be a layer farther away.
"""

from __future__ import annotations

import numpy as np

BY = np.array([0, -1, 1])
"""By how many layers a phase may be moved when it begins with another chain."""


def middles(phase: np.ndarray, least: np.ndarray, sizes: np.ndarray, usual: int) -> np.ndarray:
    """int64[phases]: by how much a phase is off: chains begin at `least`, one of `usual` ops should at 0.

    `phase`, from 0 on, is in order. Most of the chains of `usual` ops decide; where there are none, the middle does.
    """
    first = np.flatnonzero(np.diff(phase, prepend=-1))
    found = (np.minimum.reduceat(least, first) + np.maximum.reduceat(least + sizes, first) - usual) // 2
    full, low = sizes == usual, least.min()
    span = least.max() - low + 1
    keys, counts = np.unique(phase[full] * span + least[full] - low, return_counts=True)
    rarest_first = np.lexsort((-keys, counts))
    found[keys[rarest_first] // span] = keys[rarest_first] % span + low
    return found


def later_starts(phase: np.ndarray, turn: np.ndarray, least: np.ndarray, sizes: np.ndarray, usual: int) -> np.ndarray:
    """int64[chains]: how many layers each is moved by, so that as many of `usual` layers as may be are whole.

    Chains of a phase, which have layers from `least` on, are in the order of the program.
    """
    moved, first = np.zeros(len(phase), np.int64), np.flatnonzero(np.diff(phase, prepend=-1))
    lacks = np.maximum(np.maximum.reduceat(least, first), 0)
    lacks += np.maximum(usual - np.minimum.reduceat(least + sizes, first), 0)
    for number in np.flatnonzero(lacks).tolist():
        chains = slice(first[number], first[number + 1] if number + 1 < len(first) else None)
        moved[chains] = _moved(int(turn[first[number]]), least[chains], least[chains] + sizes[chains] - usual)
    return moved


def _moved(turn: int, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The same for the chains of one phase: those before the new start join the layer that the others have before.

    A layer lacks a chain where the chain begins after 0, or ends (`end`) before it.
    """
    from_start, to_end = np.maximum.accumulate(begin), np.maximum.accumulate(begin[::-1])[::-1]
    latest = np.maximum(np.append(-np.inf, from_start[:-1]) - turn, to_end)
    from_start, to_end = np.minimum.accumulate(end), np.minimum.accumulate(end[::-1])[::-1]
    earliest = np.minimum(np.append(np.inf, from_start[:-1]) - turn, to_end)
    lacking = np.maximum(latest + BY[:, None], 0) - np.minimum(earliest + BY[:, None], 0)
    by, start = np.unravel_index(lacking.argmin(), lacking.shape)
    return BY[by] - turn * (np.arange(len(begin)) < start)
