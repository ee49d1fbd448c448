"""Ops that propagation left in conflict, though all that is read of them is tiles: they compute the tile.

    dy [{},{B}]    x [{},{B}]                   both tile the gradient, on dims that exclude each other: a conflict
    %g = dot_general dy, x                      no loop over "B": both are gathered, and all of %g is computed
    %t = transpose %g         loop "B"          its tile of %g is all that is read of it
    -> %g = dot_general       loop "B"          the loop that makes that tile: dy is gathered, x is read as it is

What an operand is needed for is then at most what it was needed for before, and the op does a part of the work. The
table stays as it is: a later tactic may still settle the conflict. Readers come first, so chains of such ops follow.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.table.loop_nests import (
    NO_MAPPING,
    LoopNests,
    decided_at,
    divides,
    mapping_row,
    result_entry,
    tiling,
)


@kernel
def divide_undecided(nests: LoopNests, is_output: np.ndarray) -> None:
    """Adds the loops of such ops to `state`, a copy for the lowering; they enter the nest as those of their readers."""
    graph, state = nests.graph, nests.state
    ops, axes = state.mapping.shape
    for op in range(ops - 1, -1, -1):
        first = graph.result_ptr[op]
        if graph.is_argument[op] or first == graph.result_ptr[op + 1]:
            continue
        for axis in range(axes):
            if state.mapping[op, axis] >= 0 or graph.closed[op, axis]:
                continue
            if tile_read(nests, is_output, first, axis) < 0:
                continue
            mapping = _mapping_read(nests, is_output, op, axis)
            if mapping >= 0:
                state.mapping[op, axis] = mapping
                state.op_stamp[op, axis] = read_at(nests, first, axis)


@kernel
def read_at(nests: LoopNests, value: int, axis: int) -> int:
    """The stamp of the tile of a value that is read: its own, or that of the first reader's loop."""
    graph, state = nests.graph, nests.state
    if state.action[value, axis] != 0:
        return state.value_stamp[value, axis]
    reader = graph.use_op[graph.user[graph.user_ptr[value]]]
    return decided_at(state, reader, graph.result_ptr[reader], axis)


@kernel
def _mapping_read(nests: LoopNests, is_output: np.ndarray, op: int, axis: int) -> int:
    """The first mapping that tiles each result as it is read, or NO_MAPPING.

    No other is tried where it does not divide: then loops over other axes only ever take such a loop away, and a bound
    knows from the start which ops may have one.
    """
    graph, maps = nests.graph, nests.maps
    row = maps.first[graph.op_spec[op]]
    for mapping in range(maps.first[graph.op_spec[op] + 1] - row):
        fits = not maps.alone[row + mapping] and maps.after[row + mapping] < 0
        for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
            entry = result_entry(nests, op, mapping, value - graph.result_ptr[op])
            fits = fits and entry < LAST_TILE and entry == tile_read(nests, is_output, value, axis)
        if fits:
            return mapping if divides(nests, op, mapping, axis) else NO_MAPPING
    return NO_MAPPING


@kernel
def tile_read(nests: LoopNests, is_output: np.ndarray, value: int, axis: int) -> int:
    """The dim on which the value waits in tiles, or on which every reader takes its tile of it; else -1."""
    graph, state = nests.graph, nests.state
    if is_output[value] or state.action[value, axis] != 0:
        return tiling(nests, value, axis)
    dim = -1
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        read = _tile_of_use(nests, graph.user[i], axis)
        if read < 0 or (dim >= 0 and dim != read):
            return -1
        dim = read
    return dim


@kernel
def _tile_of_use(nests: LoopNests, use: int, axis: int) -> int:
    """The dim on which a use takes a tile; -1 if it reads all, or a stretch."""
    graph, maps, state = nests.graph, nests.maps, nests.state
    op = graph.use_op[use]
    if graph.is_argument[op]:
        return tiling(nests, graph.result_ptr[op], axis)
    mapping = state.mapping[op, axis]
    if mapping < 0:
        return -1
    entry = mapping_row(nests, op, mapping) + use - graph.operand_ptr[op]
    return maps.entries[entry] if maps.stretch[entry] == 0 else -1
