"""Slices of one value of which most is read whole: the value is gathered once for all of them.

    %w [{B},{}]    %a = slice %w [:512]    %b = slice %w [512:]    loops "B": stretches of %w are exchanged
    %a and %b are read whole                                       and then gathered
    -> no loop     all_gather %w, once, and slices of it

The table stays as it is: propagation tiled the slices since their operand is, before it was known who reads them.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.core.loop_nests import NO_MAPPING, mapping_row, tiling
from autopart.spmd.pending import Given, elements_without
from autopart.spmd.undecided_ops import tile_read


@kernel
def gather_sliced(given: Given) -> None:
    """Takes away the loops of such slices; changes `given.nests.state`, a copy.

    Only of values that are gathered once for all uses; what is stored in parts is gathered for each of them.
    """
    graph, state = given.nests.graph, given.nests.state
    for value in range(graph.value_op.shape[0]):
        if given.stored[value] or graph.user_ptr[value + 1] - graph.user_ptr[value] < 2:
            continue
        for axis in range(state.mapping.shape[1]):
            if tiling(given.nests, value, axis) >= 0 and _mostly_whole(given, value, axis):
                for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
                    if _is_exchanged_slice(given, graph.user[i], axis):
                        state.mapping[graph.use_op[graph.user[i]], axis] = NO_MAPPING


@kernel
def _mostly_whole(given: Given, value: int, axis: int) -> bool:
    """True if the slices that are read whole have at least half of the value's elements."""
    graph, whole = given.nests.graph, 0.0
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        if _is_exchanged_slice(given, use, axis):
            made = graph.result_ptr[graph.use_op[use]]
            if tile_read(given.nests, given.is_output, made, axis) < 0:
                whole += elements_without(given, axis, made)
    return whole > 0 and 2 * whole >= elements_without(given, axis, value)


@kernel
def _is_exchanged_slice(given: Given, use: int, axis: int) -> bool:
    """True if the use is the only one of its op, and reads a stretch in a loop over the axis."""
    graph, maps, state = given.nests.graph, given.nests.maps, given.nests.state
    op = graph.use_op[use]
    mapping = state.mapping[op, axis]
    if mapping < 0 or graph.operand_ptr[op + 1] - graph.operand_ptr[op] != 1:
        return False
    return maps.stretch[mapping_row(given.nests, op, mapping)] > 0
