"""Which value groups may be tiled in a state: the kernels behind `DecisionSpace.options`.

open_tiles         of (group, dim, axis) triples, those that would still decide something
pending_bytes      values that hold parts of a sum, which a tile would turn into a reduce_scatter
argument_dims      how an axis tiles the arguments
in_use             whether an axis tiles anything
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.mapping_table import MappingArrays
from autopart.core.propagation import GraphArrays, StateArrays, dim_to_tile, result_entry, slicing, tiling


@kernel
def open_tiles(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
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
            if dim_to_tile(graph, maps, state, sizes, shapes, ranks, members[i], dim[c], axis[c]) >= 0:
                out[c] = True
                break


@kernel
def pending_bytes(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    group_of: np.ndarray,
    bytes_of: np.ndarray,
    axis: int,
    out: np.ndarray,
) -> None:
    """Adds to out[group] the bytes of values with a reduction pending on `axis` that no use and no action resolves."""
    for op in range(state.mapping.shape[0]):
        mapping = state.mapping[op, axis]
        if mapping < 0 or graph.is_argument[op]:
            continue
        for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
            entry = result_entry(graph, maps, op, mapping, value - graph.result_ptr[op])
            pends = LAST_TILE < entry <= LAST_TILE + 6 and state.action[value, axis] == 0
            if pends and slicing(graph, maps, state, value, axis) == 0:
                out[group_of[value]] += bytes_of[value]


@kernel
def argument_dims(
    graph: GraphArrays, maps: MappingArrays, state: StateArrays, arguments: np.ndarray, axis: int, out: np.ndarray
) -> None:
    """out[i]: the dim of argument i that `axis` tiles, or -1."""
    for i in range(arguments.shape[0]):
        out[i] = tiling(graph, maps, state, arguments[i], axis)


@kernel
def in_use(state: StateArrays, axis: int) -> bool:
    """True if the axis tiles anything."""
    for op in range(state.mapping.shape[0]):
        if state.mapping[op, axis] >= 0:
            return True
    tiled = False
    for value in range(state.action.shape[0]):
        tiled = tiled or state.action[value, axis] > 0
    return tiled
