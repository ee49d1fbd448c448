"""Look-ups in a parameter that is stored in parts: gather the table, or look up in every part and sum what is found.

    %r = gather %table [{B},{}], %i [{B}]      loop "B" over rows looked up: all_gather %table, 131 MB
    -> loop "B" over rows of the table         all_gather %i, reduce_scatter %r: 17 MB, and no table is held whole

Of 4,096 tokens in a vocabulary of 32,000 a device has 1,024 to look up. It is given the numbers of all, looks up those
that are among its 8,000 rows, and the sums go to the devices that asked. Where as many rows are looked up as there are,
the table is gathered. Decided by bytes on a device, times the runs of a loop, as `pending.py` decides where a sum is
reduced.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.loop_nests import NO_MAPPING, divides, operand_entry, result_entry, tiling
from autopart.core.op import OR, WHOLE
from autopart.spmd.pending import Given, elements_without
from autopart.spmd.undecided_ops import tile_read


@kernel
def divide_tables(given: Given) -> None:
    """Has look-ups loop over the rows of their table where that moves less; changes `given.nests.state`, a copy."""
    graph, state = given.nests.graph, given.nests.state
    ops, axes = state.mapping.shape
    for op in range(ops):
        if graph.result_ptr[op + 1] != graph.result_ptr[op] + 1 or graph.is_argument[op]:
            continue
        for axis in range(axes):
            if state.mapping[op, axis] < 0 or graph.closed[op, axis]:
                continue
            for operand in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
                mapping = _over_rows(given, op, axis, operand)
                if mapping >= 0 and _moves_less(given, op, axis, operand):
                    state.mapping[op, axis] = mapping
                    break


@kernel
def _over_rows(given: Given, op: int, axis: int, table: int) -> int:
    """The mapping that slices this operand alone, as it is stored, and leaves a sum; NO_MAPPING if it is not to be.

    The operand must be an argument that the loop of now takes whole, and every reader must take the tile of now.
    """
    graph, maps, state = given.nests.graph, given.nests.maps, given.nests.state
    value, made, now = graph.operands[graph.operand_ptr[op] + table], graph.result_ptr[op], state.mapping[op, axis]
    if not graph.is_argument[graph.value_op[value]] or operand_entry(given.nests, op, now, table) != WHOLE:
        return NO_MAPPING
    rows, kept = tiling(given.nests, value, axis), result_entry(given.nests, op, now, 0)
    if rows < 0 or kept >= LAST_TILE or tile_read(given.nests, given.is_output, made, axis) != kept:
        return NO_MAPPING
    first = maps.first[graph.op_spec[op]]
    for mapping in range(maps.first[graph.op_spec[op] + 1] - first):
        fits = not maps.alone[first + mapping] and LAST_TILE < result_entry(given.nests, op, mapping, 0) <= OR
        for operand in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
            fits = fits and operand_entry(given.nests, op, mapping, operand) == (rows if operand == table else WHOLE)
        if fits and divides(given.nests, op, mapping, axis):
            return mapping
    return NO_MAPPING


@kernel
def _moves_less(given: Given, op: int, axis: int, table: int) -> bool:
    """True if the table has more bytes than what is looked up in it and the numbers of the rows."""
    graph, passages = given.nests.graph, given.passages
    runs = passages.runs[passages.scope[op]]
    value, made, first = graph.operands[graph.operand_ptr[op] + table], graph.result_ptr[op], graph.operand_ptr[op]
    moved = elements_without(given, axis, made) * passages.element_bytes[made] * runs
    for operand in range(graph.operand_ptr[op + 1] - first):
        other = graph.operands[first + operand]
        if operand != table and tiling(given.nests, other, axis) >= 0:
            moved += elements_without(given, axis, other) * passages.element_bytes[other] * runs
    gathers = runs if given.sharded_loops else 1
    return moved < elements_without(given, axis, value) * passages.element_bytes[value] * gathers
