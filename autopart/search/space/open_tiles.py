"""Which value groups may be tiled in a state: the kernels behind `DecisionSpace.options`.

open_tiles         of (group, dim, axis) triples, those that would still decide something
pending_bytes      values that hold parts of a sum, which a tile would turn into a reduce_scatter
conflicting_bytes  the dims of value groups that the mappings tile of ops in conflict
undecided_values   values about which nothing is decided
in_use             whether an axis tiles anything
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.table.loop_nests import LoopNests, StateArrays, result_entry, slicing, tiling
from autopart.core.table.propagation import dim_to_tile


@kernel
def open_tiles(
    nests: LoopNests,
    shapes: np.ndarray,
    ranks: np.ndarray,
    pointer: np.ndarray,
    members: np.ndarray,
    group: np.ndarray,
    dim: np.ndarray,
    axis: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[c]: some value of group[c] may be tiled on dim[c] along axis[c]."""
    for c in range(group.shape[0]):
        out[c] = False
        for i in range(pointer[group[c]], pointer[group[c] + 1]):
            if dim_to_tile(nests, shapes, ranks, members[i], dim[c], axis[c]) >= 0:
                out[c] = True
                break


@kernel
def pending_bytes(
    nests: LoopNests,
    group_of: np.ndarray,
    bytes_of: np.ndarray,
    axes: np.ndarray,
    out: np.ndarray,
) -> None:
    """Adds to out[i, group] the bytes of values with a reduction pending on axes[i] that nothing resolves."""
    graph, state = nests.graph, nests.state
    for i in range(axes.shape[0]):
        axis = axes[i]
        for op in range(state.mapping.shape[0]):
            mapping = state.mapping[op, axis]
            if mapping < 0 or graph.is_argument[op]:
                continue
            for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
                entry = result_entry(nests, op, mapping, value - graph.result_ptr[op])
                pends = LAST_TILE < entry <= LAST_TILE + 6 and state.action[value, axis] == 0
                if pends and slicing(nests, value, axis) == 0:
                    out[i, group_of[value]] += bytes_of[value]


@kernel
def conflicting_bytes(
    nests: LoopNests,
    ops: np.ndarray,
    found: np.ndarray,
    counts: np.ndarray,
    group_of: np.ndarray,
    bytes_of: np.ndarray,
    out: np.ndarray,
) -> None:
    """Adds to out[group, dim] the bytes of results that a mapping tiles so; -1 where none does, before and after.

    ops, found, counts   fields of `Undecided`
    """
    graph = nests.graph
    for i in range(ops.shape[0]):
        for value in range(graph.result_ptr[ops[i]], graph.result_ptr[ops[i] + 1]):
            for m in range(counts[i]):
                dim = result_entry(nests, ops[i], found[i, m], value - graph.result_ptr[ops[i]])
                if dim < LAST_TILE:
                    out[group_of[value], dim] = max(out[group_of[value], dim], 0.0) + bytes_of[value]


@kernel
def undecided_values(nests: LoopNests, values: np.ndarray, axes: np.ndarray, out: np.ndarray) -> None:
    """out[i, j]: nothing is decided about values[j] along axes[i]."""
    state = nests.state
    for i in range(axes.shape[0]):
        for j in range(values.shape[0]):
            decided = state.action[values[j], axes[i]] != 0 or tiling(nests, values[j], axes[i]) >= 0
            out[i, j] = not decided


def in_use(state: StateArrays, axis: int) -> bool:
    """True if the axis tiles anything."""
    return bool((state.mapping[:, axis] >= 0).any() or (state.action[:, axis] > 0).any())
