"""Propagation: one mesh axis, to a fixed point, by what the neighbours already do.

    x tiled on 0 -> dot(x, w)        fitting: b (0, WHOLE) -> tile 0          exactly one: the op takes it
    w tiled on 1 as well             fitting: b and n                         several: a conflict, left alone

An op without a mapping on the axis looks at how its operands are tiled and at how consumers slice its results. If
exactly one mapping fits these (`fitting_mappings`), the op takes it, and that is evidence for its neighbours. A mapping
that agrees with some operands slices the other operands too (inference). Where none fits, though an operand is tiled,
a mapping may be drawn by the tile (`drawn_tiles`). Propagation undoes nothing and consults no cost.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.table.fitting_mappings import fitting_mappings
from autopart.core.table.loop_nests import (
    ATOMIC,
    LoopNests,
    StateArrays,
    operand_entry,
    set_action,
    set_mapping,
    slicing,
    tiling,
    ways,
)


class Scratch(NamedTuple):
    """Room for propagation over one program.

    heap[i], queued[op]   the ops to look at, the earliest first, and which these are; none between two propagations
    found                 as `fitting_mappings` wants it
    """

    heap: np.ndarray
    queued: np.ndarray
    found: np.ndarray


@kernel
def propagate(
    nests: LoopNests, axis: int, stamp: int, size: int, scratch: Scratch, blocked: np.ndarray, stuck: int
) -> int:
    """Spreads `axis` from the `size` ops in the heap to a fixed point, always at the earliest op that may change.

    An op is looked at after every earlier op that may change. The order matters only where each of two ops has exactly
    one mapping that fits: the earlier op takes its mapping first. Ops that are left in conflict are written to
    `blocked`, in which an op may stand more than once, from `stuck` on; returns where they end.
    """
    graph, state, found = nests.graph, nests.state, scratch.found
    while size > 0:
        op = scratch.heap[0]
        size = _pop(scratch.heap, size)
        scratch.queued[op] = False
        if state.mapping[op, axis] >= 0:
            continue
        count = fitting_mappings(nests, op, axis, found)
        if count > 1 and stuck < blocked.shape[0]:
            blocked[stuck] = op
            stuck += 1
        if count != 1:
            continue
        set_mapping(state, op, axis, found[0], stamp)
        for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
            if operand_entry(nests, op, found[0], use - graph.operand_ptr[op]) < 0:
                continue
            value = graph.operands[use]
            if state.action[value, axis] == 0:
                size = _push(graph.value_op[value], state, axis, scratch, size)
        for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
            if state.action[value, axis] == ATOMIC:
                continue
            for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
                size = _push(graph.use_op[graph.user[i]], state, axis, scratch, size)
    return stuck


@kernel
def _push(op: int, state: StateArrays, axis: int, scratch: Scratch, size: int) -> int:
    """Adds an op that has no mapping yet to the binary heap; returns its new size."""
    heap, queued = scratch.heap, scratch.queued
    if queued[op] or state.mapping[op, axis] >= 0:
        return size
    queued[op] = True
    at = size
    while at > 0 and heap[(at - 1) // 2] > op:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = op
    return size + 1


@kernel
def _pop(heap: np.ndarray, size: int) -> int:
    """Drops the smallest op; returns the heap's new size."""
    size -= 1
    op, at = heap[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= op:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = op
    return size


@kernel
def dim_to_tile(
    nests: LoopNests,
    shapes: np.ndarray,
    ranks: np.ndarray,
    value: int,
    dim: int,
    axis: int,
) -> int:
    """`dim` if tile<value, dim, axis> is legal and would decide something, else -1; for dim -1 the first that is.

    A value that is computed, and that all its uses slice on that dim already, is not worth an action.
    """
    graph, state, sizes = nests.graph, nests.state, nests.sizes
    if state.action[value, axis] != 0 or tiling(nests, value, axis) >= 0:
        return -1
    for d in range(ranks[value]):
        if shapes[value, d] == 0:
            return -1
    first, last = (0, ranks[value]) if dim < 0 else (dim, min(dim + 1, ranks[value]))
    for d in range(first, last):
        if shapes[value, d] % (sizes[axis] * ways(nests, value, d)) != 0:
            continue
        if graph.is_argument[graph.value_op[value]] or slicing(nests, value, axis) != 1 << d:
            return d
    return -1


@kernel
def tiled_dims(nests: LoopNests, values: np.ndarray, axis: int, out: np.ndarray) -> None:
    """out[i]: the dim of values[i] that `axis` tiles, or -1."""
    for i in range(values.shape[0]):
        out[i] = tiling(nests, values[i], axis)


@kernel
def propagate_and_tile(
    nests: LoopNests,
    shapes: np.ndarray,
    ranks: np.ndarray,
    seeds: np.ndarray,
    values: np.ndarray,
    dims: np.ndarray,
    axis: int,
    stamp: int,
    scratch: Scratch,
    tiled: np.ndarray,
    blocked: np.ndarray,
) -> tuple[int, int, int]:
    """Propagates from `seeds`, then tiles each value that may still be tiled (see `dim_to_tile`), propagating after it.

    Writes (value, dim) into `tiled` and ops left in conflict into `blocked`; returns how many there are of each, and
    the last stamp. `stamp` is the last one used.
    """
    graph, state = nests.graph, nests.state
    count, stuck, size = 0, 0, 0
    for op in seeds:
        size = _push(op, state, axis, scratch, size)
    if seeds.shape[0] > 0:
        stamp += 1
        stuck = propagate(nests, axis, stamp, size, scratch, blocked, stuck)
    for i in range(values.shape[0]):
        value = values[i]
        dim = dim_to_tile(nests, shapes, ranks, value, dims[i], axis)
        if dim < 0:
            continue
        stamp += 1
        set_action(state, value, axis, dim + 1, stamp)
        tiled[count, 0], tiled[count, 1] = value, dim
        count += 1
        size = _push(graph.value_op[value], state, axis, scratch, 0)
        for k in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
            size = _push(graph.use_op[graph.user[k]], state, axis, scratch, size)
        stamp += 1
        stuck = propagate(nests, axis, stamp, size, scratch, blocked, stuck)
    return count, stuck, stamp
