"""Which uses read stretches instead of tiles: a number per use, from the loops of its op.

    convolution, dims 1 and 2 of its input tiled      stretch[use] = (1 + s) << 20 | 1 + t
                                                      s, t: numbers of (dim, stretch) in the table

A use reads stretches of at most three dims, in the order of the op's mappings.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from dataclasses import replace

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.stretch import Stretch
from autopart.core.table.loop_nests import LoopNests
from autopart.core.table.mapping_table import MappingTable

BITS = 20
_MASK = (1 << BITS) - 1

SHARED = 1 << 3 * BITS
"""With it pairs of numbers stand for stretches, each from where the first of a pair begins to where the second ends."""

SHARED_BITS = 15
"""Of each number of such a pair."""

MOST_DIMS = 3
"""Dims of one operand that may be read in stretches: so many numbers fit."""


def unpacked(table: MappingTable, packed: int) -> tuple[tuple[int, Stretch], ...]:
    """The (dim, stretch) pairs of a use."""
    if packed & SHARED:
        mask, pairs = (1 << SHARED_BITS) - 1, (packed >> 2 * SHARED_BITS, packed)
        numbers = [(pair >> SHARED_BITS & mask, pair & mask) for pair in pairs]
        ends = [(table.stretches[a - 1], table.stretches[b - 1]) for a, b in numbers if a]
        return tuple((dim, replace(a, reach=a.low + b.reach - b.low)) for (dim, a), (_, b) in ends)
    found = []
    while packed:
        found.append(table.stretches[(packed & _MASK) - 1])
        packed >>= BITS
    return tuple(reversed(found))


@kernel
def read_stretches(
    nests: LoopNests,
    passing: np.ndarray,
    stretch: np.ndarray,
) -> None:
    """Fills in stretch[use], in place of 0: the packed stretches that it reads instead of its tile.

    An axis of size 1 reads all.
    """
    graph, maps, state, sizes = nests.graph, nests.maps, nests.state, nests.sizes
    for op in range(state.mapping.shape[0]):
        spec, taken = graph.op_spec[op], 0
        for axis in range(state.mapping.shape[1]):
            mapping = state.mapping[op, axis]
            if mapping >= 0 and sizes[axis] > 1 and passing[op] >> axis & 1 == 0:
                taken |= 1 << mapping
        if taken == 0:
            continue
        for row in range(maps.first[spec], maps.first[spec + 1]):
            if taken >> (row - maps.first[spec]) & 1:
                for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
                    number = maps.stretch[maps.start[row] + use - graph.operand_ptr[op]]
                    if number > 0:
                        stretch[use] = stretch[use] << BITS | number
