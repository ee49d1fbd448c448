"""Gradients of look-ups of which tiles are read: add up parts of a table, or every row that is in a tile of it.

    %g = scatter zeros, %i [{B}], %dy [{B},{}]    loop "B" over rows looked up: reduce_scatter %g, 66 MB
    -> loop "B" over rows of the table            all_gather %i, %dy: 8 MB, and no table is held whole

The counterpart of `divided_tables.py`, under a sharded optimizer. It is done where the sum would be reduced at once: a
sum that goes on through an add, as that of an embedding which also makes logits, is reduced with the other one.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.op import SUM, WHOLE
from autopart.core.table.loop_nests import NO_MAPPING, divides, operand_entry, result_entry, tiling
from autopart.spmd.lowering.undecided_ops import read_at, tile_read
from autopart.spmd.sums.pending_prices import Given, elements_without, goes_on

LEAST_OPERANDS = 3
"""Of such an op: a table, places in it, and what is added there."""


@kernel
def divide_scatters(given: Given) -> None:
    """Has such ops loop over rows of the table where that moves less; changes `given.nests.state`, a copy."""
    graph, state = given.nests.graph, given.nests.state
    ops, axes = state.mapping.shape
    for op in range(ops):
        made = graph.result_ptr[op]
        if graph.operand_ptr[op + 1] - graph.operand_ptr[op] < LEAST_OPERANDS or graph.result_ptr[op + 1] != made + 1:
            continue
        for axis in range(axes):
            now = state.mapping[op, axis]
            if now < 0 or graph.closed[op, axis] or result_entry(given.nests, op, now, 0) != SUM:
                continue
            rows = tile_read(given.nests, given.is_output, made, axis)
            if rows < 0 or _passes(given, axis, made):
                continue
            mapping = _over_rows(given, op, rows, axis)
            if mapping >= 0 and _moves_less(given, op, axis):
                state.mapping[op, axis] = mapping
                state.op_stamp[op, axis] = read_at(given.nests, made, axis)


@kernel
def _passes(given: Given, axis: int, value: int) -> bool:
    """True if the one op that reads the value may pass a sum on, and that may pay: what it makes is no larger, or it is
    in a loop, after which there may be one sum for all turns."""
    graph, passages = given.nests.graph, given.passages
    in_loop = passages.runs[passages.scope[graph.value_op[value]]] > 1
    while goes_on(given, axis, value):
        op = graph.use_op[graph.user[graph.user_ptr[value]]]
        spec = graph.op_spec[op]
        if passages.first[spec] == passages.first[spec + 1] or (passages.rounded[spec] and not given.rounded):
            return False
        if not passages.grows[spec]:
            return True
        if not in_loop:
            return False
        value = int(graph.result_ptr[op])
    return False


@kernel
def _over_rows(given: Given, op: int, rows: int, axis: int) -> int:
    """The mapping that makes tiles of dim `rows`, of what is read whole and a tile that any device can make."""
    graph, maps, passages = given.nests.graph, given.nests.maps, given.passages
    first = maps.first[graph.op_spec[op]]
    for mapping in range(maps.first[graph.op_spec[op] + 1] - first):
        if maps.alone[first + mapping] or result_entry(given.nests, op, mapping, 0) != rows:
            continue
        fits, tiles = True, 0
        for operand in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
            value = graph.operands[graph.operand_ptr[op] + operand]
            made = passages.from_scalars[graph.value_op[value]]
            entry = operand_entry(given.nests, op, mapping, operand)
            fits = fits and (entry == WHOLE or (made and entry < LAST_TILE))
            tiles += entry != WHOLE
        if fits and tiles <= 1 and divides(given.nests, op, mapping, axis):
            return mapping
    return NO_MAPPING


@kernel
def _moves_less(given: Given, op: int, axis: int) -> bool:
    """True if what the op reads has fewer bytes than what it makes, as far as either is to be moved."""
    graph, passages = given.nests.graph, given.passages
    moved, made = 0.0, graph.result_ptr[op]
    for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
        value = graph.operands[use]
        if tiling(given.nests, value, axis) >= 0 and not passages.from_scalars[graph.value_op[value]]:
            moved += elements_without(given, axis, value) * passages.element_bytes[value]
    return moved < elements_without(given, axis, made) * passages.element_bytes[made]
