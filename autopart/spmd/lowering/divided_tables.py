"""Look-ups in a parameter that is stored in parts: gather the table, or look up in every part and sum what is found.

    %r = gather %table [{B},{}], %i [{B}]      loop "B" over rows looked up: all_gather %table, 131 MB
    -> loop "B" over rows of the table         all_gather %i, reduce_scatter %r: 17 MB, and no table is held whole

The table is an argument, or one that was cast: parameters in f32 are looked up in bf16.
Of 4,096 tokens in a vocabulary of 32,000 a device has 1,024 to look up. It is given the numbers of all, looks up those
that are among its 8,000 rows, and the sums go to the devices that asked. Where as many rows are looked up as there are,
the table is gathered, and where another use is so near that both share the gather. Decided by bytes on a device, times
the runs of a loop, as `pending.py` decides where a sum is reduced.

The other way round, of any array: where a look-up in tiled rows is read in tiles, and there are no more rows than are
looked up, all rows are gathered, and each device looks up its own. A shuffle moves the same by either way; this one
writes less.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.op import OR, WHOLE
from autopart.core.table.loop_nests import NO_MAPPING, divides, operand_entry, result_entry, tiling
from autopart.spmd.lowering.undecided_ops import read_at, tile_read
from autopart.spmd.sums.pending_prices import Given, elements_without


@kernel
def divide_tables(given: Given, share_within: int) -> None:
    """Has look-ups loop over the rows of their table where that moves less; changes `given.nests.state`, a copy.

    share_within   uses at most so many ops apart share a gather; 0 if none do
    """
    graph, state = given.nests.graph, given.nests.state
    for table in range(graph.value_op.shape[0]):
        if not given.stored[table]:
            continue
        for axis in range(state.mapping.shape[1]):
            rows = tiling(given.nests, table, axis)
            if rows < 0:
                continue
            for i in range(graph.user_ptr[table], graph.user_ptr[table + 1]):
                use = graph.user[i]
                mapping = _over_rows(given, use, rows, axis)
                if mapping < 0 or not _moves_less(given, use, axis):
                    continue
                if not _shares_a_gather(given, i, axis, share_within):
                    state.mapping[graph.use_op[use], axis] = mapping


@kernel
def gather_tables(given: Given) -> None:
    """Has look-ups loop over what is looked up where that moves no more; changes `given.nests.state`, a copy."""
    graph, maps, state, passages = given.nests.graph, given.nests.maps, given.nests.state, given.passages
    ops, axes = state.mapping.shape
    for op in range(ops):
        spec, made = graph.op_spec[op], graph.result_ptr[op]
        if not maps.looks_up[spec]:
            continue
        table = graph.operands[graph.operand_ptr[op]]
        for axis in range(axes):
            now = state.mapping[op, axis]
            if now < 0 or graph.closed[op, axis] or not LAST_TILE < result_entry(given.nests, op, now, 0) <= OR:
                continue
            tile = tile_read(given.nests, given.is_output, made, axis)
            if tile < 0 or _is_tiled_elsewhere(given, table, axis):
                continue
            found = elements_without(given, axis, made) * passages.element_bytes[made]
            if elements_without(given, axis, table) * passages.element_bytes[table] > found:
                continue
            for mapping in range(maps.first[spec + 1] - maps.first[spec]):
                fits = (
                    operand_entry(given.nests, op, mapping, 0) == WHOLE and not maps.alone[maps.first[spec] + mapping]
                )
                if (
                    fits
                    and result_entry(given.nests, op, mapping, 0) == tile
                    and divides(given.nests, op, mapping, axis)
                ):
                    state.mapping[op, axis], state.op_stamp[op, axis] = mapping, read_at(given.nests, made, axis)


@kernel
def _is_tiled_elsewhere(given: Given, value: int, axis: int) -> bool:
    """True if another axis tiles the value: bytes are compared axis by axis, and one gather is for both."""
    elsewhere = False
    for other in range(given.nests.sizes.shape[0]):
        elsewhere = elsewhere or (other != axis and tiling(given.nests, value, other) >= 0)
    return elsewhere


@kernel
def _shares_a_gather(given: Given, place: int, axis: int, share_within: int) -> bool:
    """True if another op reads all of the table, so near that one gather is for both; `place` of the use in `user`.

    Users of a value stand in the order of their ops: the near ones are beside the use.
    """
    graph = given.nests.graph
    table = graph.operands[graph.user[place]]
    first, end, op = graph.user_ptr[table], graph.user_ptr[table + 1], graph.use_op[graph.user[place]]
    for step in (-1, 1):
        i = place + step
        while first <= i < end and abs(graph.use_op[graph.user[i]] - op) <= share_within:
            if graph.use_op[graph.user[i]] != op and _reads_whole(given, graph.user[i], axis):
                return True
            i += step
    return False


@kernel
def _reads_whole(given: Given, use: int, axis: int) -> bool:
    """True if the loop of a use's op over an axis takes the operand whole."""
    op = given.nests.graph.use_op[use]
    now = given.nests.state.mapping[op, axis]
    return now < 0 or operand_entry(given.nests, op, now, use - given.nests.graph.operand_ptr[op]) == WHOLE


@kernel
def _over_rows(given: Given, use: int, rows: int, axis: int) -> int:
    """The mapping of the use's op that slices this operand alone, on dim `rows`, and leaves a sum; else NO_MAPPING.

    The op's loop of now must take the operand whole, and every reader of its one result must take the tile of now.
    """
    graph, maps, state = given.nests.graph, given.nests.maps, given.nests.state
    op = graph.use_op[use]
    table, made, now = use - graph.operand_ptr[op], graph.result_ptr[op], state.mapping[op, axis]
    if now < 0 or graph.closed[op, axis] or graph.result_ptr[op + 1] != made + 1:
        return NO_MAPPING
    kept = result_entry(given.nests, op, now, 0)
    if operand_entry(given.nests, op, now, table) != WHOLE or kept >= LAST_TILE:
        return NO_MAPPING
    if tile_read(given.nests, given.is_output, made, axis) != kept:
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
def _moves_less(given: Given, use: int, axis: int) -> bool:
    """True if the table that the use reads has more bytes than what is looked up in it and the numbers of the rows."""
    graph, passages = given.nests.graph, given.passages
    op, table = graph.use_op[use], graph.operands[use]
    runs, made = passages.runs[passages.scope[op]], graph.result_ptr[op]
    moved = elements_without(given, axis, made) * passages.element_bytes[made] * runs
    for other in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
        value = graph.operands[other]
        if other != use and tiling(given.nests, value, axis) >= 0:
            moved += elements_without(given, axis, value) * passages.element_bytes[value] * runs
    gathers = runs if given.sharded_loops else 1
    return moved < elements_without(given, axis, table) * passages.element_bytes[table] * gathers
