"""Views that repeat what they read: it is moved first, and repeated in the layout that is read.

    %r [{B},{}]                             f32[8192,3]
    %b = broadcast %r      loop "B": columns    f32[8192,8192,3]; %r is read as it is
    subtract %a, %b        loop "B": rows       reads %b in rows: an exchange of 100 MB
    -> loop "B": rows                           all_gather %r, 98 kB, and each device makes its rows

So is what is transposed or reshaped, where its operand is gathered too: one gather for both, as for x.T @ x. And so are
reversals of a stored weight that convolutions alone read: a convolution turns its window around, but not through a
gather that stands between the two.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.table.loop_nests import NO_MAPPING, divides, operand_entry, result_entry
from autopart.spmd.lowering.gathered_slices import reads_tile
from autopart.spmd.lowering.undecided_ops import read_at, tile_read
from autopart.spmd.sums.pending_prices import Given, elements_without


@kernel
def move_before_views(given: Given) -> None:
    """Gives such ops the loops of their readers, or takes them away; changes `given.nests.state`, a copy.

    Readers come first, so a chain of such ops follows.
    """
    graph, state = given.nests.graph, given.nests.state
    ops, axes = state.mapping.shape
    for op in range(ops - 1, -1, -1):
        spec, value = graph.op_spec[op], graph.result_ptr[op]
        repeats = given.nests.maps.repeats[spec] > 0
        moves = given.nests.maps.moves[spec]
        if not (repeats or moves or given.passages.reverses[spec]) or given.is_output[value]:
            continue
        for axis in range(axes):
            now = state.mapping[op, axis]
            if now < 0 or operand_entry(given.nests, op, now, 0) < 0 or state.action[value, axis] != 0:
                continue
            if repeats:
                _move(given, op, axis)
            elif _is_read_whole(given, value, axis) and (
                (moves and _is_gathered_too(given, op, axis)) or _is_turned_weight(given, op)
            ):
                state.mapping[op, axis] = NO_MAPPING


@kernel
def _move(given: Given, op: int, axis: int) -> None:
    """Has an op that repeats make what is read of it: the whole, or another tile where an exchange of tiles moves
    more."""
    graph, maps, state = given.nests.graph, given.nests.maps, given.nests.state
    value, now = graph.result_ptr[op], state.mapping[op, axis]
    read = tile_read(given.nests, given.is_output, value, axis)
    if read == result_entry(given.nests, op, now, 0) or (read < 0 and not _is_read_whole(given, value, axis)):
        return
    gathered = elements_without(given, axis, graph.operands[graph.operand_ptr[op]])
    if read >= 0 and gathered >= elements_without(given, axis, value) / given.nests.sizes[axis]:
        return
    stamp = read_at(given.nests, value, axis)
    state.mapping[op, axis] = NO_MAPPING
    first = maps.first[graph.op_spec[op]]
    for mapping in range(maps.first[graph.op_spec[op] + 1] - first):
        entry = result_entry(given.nests, op, mapping, 0)
        if read >= 0 and entry == read and entry < LAST_TILE and divides(given.nests, op, mapping, axis):
            state.mapping[op, axis], state.op_stamp[op, axis] = mapping, stamp


@kernel
def _is_read_whole(given: Given, value: int, axis: int) -> bool:
    """True if no reader takes a tile of the value."""
    graph = given.nests.graph
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        if graph.is_argument[graph.use_op[use]] or reads_tile(given, use, axis):
            return False
    return graph.user_ptr[value + 1] > graph.user_ptr[value]


@kernel
def _is_gathered_too(given: Given, op: int, axis: int) -> bool:
    """True if another op reads all of what this one reads."""
    graph = given.nests.graph
    value = graph.operands[graph.operand_ptr[op]]
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        reader = graph.use_op[use]
        if reader != op and not graph.is_argument[reader] and not reads_tile(given, use, axis):
            return True
    return False


@kernel
def _is_turned_weight(given: Given, op: int) -> bool:
    """True for a reversal of what is stored that convolutions alone read."""
    graph, passages, value = given.nests.graph, given.passages, given.nests.graph.result_ptr[op]
    turned = passages.reverses[graph.op_spec[op]] and given.stored[graph.operands[graph.operand_ptr[op]]]
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        turned = turned and passages.windows[graph.op_spec[graph.use_op[graph.user[i]]]]
    return turned
