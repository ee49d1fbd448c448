"""Slices of one value of which most is read whole: the value is gathered once for all of them.

    %w [{B},{}]    %a = slice %w [:512]    %b = slice %w [512:]    loops "B": stretches of %w are exchanged
    %a and %b are read whole                                       and then gathered
    -> no loop     all_gather %w, once, and slices of it

The table stays as it is: propagation tiled the slices since their operand is, before it was known who reads them.

Where the slices have loops over another axis, whose stretches differ, each would gather the value for its own stretch.
A value that an op passes on as it is can be gathered before that op, once:

    %v = reshape %w [{B,M},{}]         loops "B" "M"            all_gather over B for each slice
    %a, %b = slice %v                  loops "M", whole on B
    -> %v [{M},{}]                     loop "M"                 all_gather %w over B, and stretches over M of %v
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.core.table.loop_nests import NO_MAPPING, mapping_row, tiling
from autopart.spmd.lowering.undecided_ops import tile_read
from autopart.spmd.sums.pending_prices import Given, elements_without


@kernel
def gather_sliced(given: Given) -> None:
    """Takes away the loops of such slices, and of what passes their operand on; changes `given.nests.state`, a copy.

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
            if _is_gathered_apart(given, value, axis):
                state.mapping[graph.value_op[value], axis] = NO_MAPPING


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


@kernel
def _is_gathered_apart(given: Given, value: int, axis: int) -> bool:
    """True if an op only passes the value on, in a loop, and all read it whole on the axis.

    Several in stretches; or it is stored in parts, and its gather may be shared with other uses of what is stored.
    """
    graph, state = given.nests.graph, given.nests.state
    op = graph.value_op[value]
    if state.mapping[op, axis] < 0 or state.action[value, axis] != 0 or given.is_output[value]:
        return False
    if not given.passages.free[graph.op_spec[op]] or not _has_one_operand_of_its_shape(given, op, value):
        return False
    stretched = 0
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        reader, stretches = graph.use_op[use], False
        if graph.is_argument[reader] or reads_tile(given, use, axis):
            return False
        for other in range(state.mapping.shape[1]):
            stretches |= _is_exchanged_slice(given, use, other)
        stretched += stretches
    return stretched > 1 or (given.stored[graph.operands[graph.operand_ptr[op]]] and not given.stored[value])


@kernel
def _has_one_operand_of_its_shape(given: Given, op: int, value: int) -> bool:
    graph, shapes = given.nests.graph, given.shapes
    first = graph.operand_ptr[op]
    same = not graph.is_argument[op] and graph.operand_ptr[op + 1] == first + 1
    for dim in range(shapes.shape[1]):
        same = same and shapes[graph.operands[first], dim] == shapes[value, dim]
    return same


@kernel
def reads_tile(given: Given, use: int, axis: int) -> bool:
    """True if the use does not read all of the value on the axis."""
    graph, maps, state = given.nests.graph, given.nests.maps, given.nests.state
    op = graph.use_op[use]
    mapping = state.mapping[op, axis]
    if mapping < 0:
        return False
    return maps.entries[mapping_row(given.nests, op, mapping) + use - graph.operand_ptr[op]] >= 0
