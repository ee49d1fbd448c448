"""Mappings that a tile elsewhere draws, and drawn tiles that give way.

    [B, S tiled] -> [B * S]     no mapping slices S: the tile draws the one that slices B, and is exchanged for it
    [B * S] + [B, S tiled]      here both tiles fit: the drawn one is exchanged back
    [N tiled, 1] - [1, N tiled]     all pairs: both are repeated, and the first dim is tiled; the other row is gathered

See `TileMapping.drawn_by`. The tile of a broadcast gives way too, for what is broadcast is small: it is moved before it
is repeated (`spmd/lowering/moved_views.py`).
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.table.loop_nests import (
    LoopNests,
    divides,
    operand_entry,
    result_entry,
    slicing,
    tiling,
)

MOST_FOLLOWED = 100
"""Values over which a tile is followed back to what it was drawn from."""


@kernel
def drawn_mapping(
    nests: LoopNests,
    op: int,
    axis: int,
    found: np.ndarray,
) -> int:
    """Writes the first mapping of `op` that a tile of an operand draws into `found`; returns how many: 1 or 0."""
    graph, maps = nests.graph, nests.maps
    spec, first_operand = graph.op_spec[op], graph.operand_ptr[op]
    all_whole = _read_whole(nests, op, axis)
    for row in range(maps.first[spec], maps.first[spec + 1]):
        for k in range(graph.operand_ptr[op + 1] - first_operand):
            if maps.draws[maps.start[row] + k] == 0 or (all_whole and maps.stretch[maps.start[row] + k] > 0):
                continue
            dim = tiling(nests, graph.operands[first_operand + k], axis)
            if dim < 0 or maps.draws[maps.start[row] + k] >> dim & 1 == 0:
                continue
            if divides(nests, op, row - maps.first[spec], axis):
                found[0] = row - maps.first[spec]
                return 1
    return 0


@kernel
def _read_whole(nests: LoopNests, op: int, axis: int) -> bool:
    """True if every reader of the results has a loop already, in which it reads all: tiles would be gathered."""
    graph, state = nests.graph, nests.state
    first, last = graph.result_ptr[op], graph.result_ptr[op + 1]
    for value in range(first, last):
        for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
            reader, use = graph.use_op[graph.user[i]], graph.user[i]
            mapping = state.mapping[reader, axis]
            if mapping < 0 or operand_entry(nests, reader, mapping, use - graph.operand_ptr[reader]) >= 0:
                return False
    return first < last and graph.user_ptr[first] < graph.user_ptr[last]


@kernel
def not_drawn(nests: LoopNests, op: int, axis: int, found: np.ndarray, count: int) -> int:
    """Of `count` mappings in `found` that fit, leaves the one that not only tiles agree with that give way.

    Where all give way, that which keeps the most of what is repeated where it is, else the first. It must slice all
    operands that are tiled, so that they are exchanged and not gathered. Returns how many are left.
    """
    kept = -1
    for i in range(count):
        if _agrees_with_undrawn(nests, op, axis, found[i], found, count):
            if kept >= 0:
                return count
            kept = found[i]
    if kept < 0:
        most = -1.0
        for i in range(count):
            stays = _repeated(nests, op, axis, found[i])
            if stays > most:
                kept, most = found[i], stays
    if result_entry(nests, op, kept, 0) > LAST_TILE or not _slices_all(nests, op, axis, kept):
        for i in range(count):
            if result_entry(nests, op, found[i], 0) < LAST_TILE and _slices_all(nests, op, axis, found[i]):
                kept = found[i]
    if not _slices_all(nests, op, axis, kept):
        return count
    found[0] = kept
    return 1


@kernel
def _slices_all(nests: LoopNests, op: int, axis: int, mapping: int) -> bool:
    """True if the mapping slices every operand that the axis tiles."""
    graph = nests.graph
    for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
        value = graph.operands[graph.operand_ptr[op] + k]
        if operand_entry(nests, op, mapping, k) < 0 and tiling(nests, value, axis) >= 0:
            return False
    return True


@kernel
def with_itself(nests: LoopNests, op: int) -> bool:
    """True for a product of one array, or of two views of it, some times a number, with itself, of which a tile may
    draw a mapping."""
    graph = nests.graph
    first = graph.operand_ptr[op]
    if graph.operand_ptr[op + 1] != first + 2 or not nests.maps.drawn[graph.op_spec[op]]:
        return False
    return _source(nests, graph.operands[first]) == _source(nests, graph.operands[first + 1])


@kernel
def _source(nests: LoopNests, value: int) -> int:
    """What a value is a view of, or made of by a number."""
    graph, maps = nests.graph, nests.maps
    op = graph.value_op[value]
    while not graph.is_argument[op]:
        first = graph.operand_ptr[op]
        if maps.scales[graph.op_spec[op]]:
            if _is_number(nests, graph.operands[first]):
                first += 1
            elif not _is_number(nests, graph.operands[first + 1]):
                break
        elif not maps.moves[graph.op_spec[op]]:
            break
        value = int(graph.operands[first])
        op = graph.value_op[value]
    return value


@kernel
def _is_number(nests: LoopNests, value: int) -> bool:
    """True for a value that repeats a number."""
    graph = nests.graph
    op = graph.value_op[value]
    return nests.maps.repeats[graph.op_spec[op]] == 1.0 and not graph.is_argument[op]


@kernel
def _agrees_with_undrawn(
    nests: LoopNests,
    op: int,
    axis: int,
    mapping: int,
    scratch: np.ndarray,
    free: int,
) -> bool:
    """True if a reader of a result, or the tile of an operand that was not drawn, agrees with the mapping."""
    graph = nests.graph
    for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
        entry = result_entry(nests, op, mapping, value - graph.result_ptr[op])
        if entry < LAST_TILE and slicing(nests, value, axis) >> entry & 1:
            return True
    for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
        value, entry = graph.operands[graph.operand_ptr[op] + k], operand_entry(nests, op, mapping, k)
        agrees = entry >= 0 and tiling(nests, value, axis) == entry
        if agrees and not _gives_way(nests, value, axis, scratch, free):
            return True
    return False


@kernel
def _repeated(nests: LoopNests, op: int, axis: int, mapping: int) -> float:
    """Elements of the largest array of which an operand is a broadcast, if the mapping agrees with its tile."""
    graph, most = nests.graph, 0.0
    for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
        value, entry = graph.operands[graph.operand_ptr[op] + k], operand_entry(nests, op, mapping, k)
        if entry >= 0 and tiling(nests, value, axis) == entry:
            most = max(most, nests.maps.repeats[graph.op_spec[graph.value_op[value]]])
    return most


@kernel
def _gives_way(nests: LoopNests, value: int, axis: int, reached: np.ndarray, free: int) -> bool:
    """True for the tile of a broadcast, and for one that comes from ops alone that a tile elsewhere drew, by way of
    tiles that agree.

    Values that are reached are written to `reached`, from `free` on.
    """
    graph, state = nests.graph, nests.state
    reached[free] = value
    count, at, drawn = 1, 0, False
    if state.action[value, axis] == 0 and nests.maps.repeats[graph.op_spec[graph.value_op[value]]] > 0:
        return True
    while at < count:
        op = graph.value_op[reached[free + at]]
        mapping = state.mapping[op, axis]
        if state.action[reached[free + at], axis] != 0 or mapping < 0 or graph.is_argument[op]:
            return False
        agrees, elsewhere = False, False
        for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
            before = graph.operands[graph.operand_ptr[op] + k]
            dim = tiling(nests, before, axis)
            if dim >= 0 and dim == operand_entry(nests, op, mapping, k):
                agrees, known = True, False
                for i in range(count):
                    known = known or reached[free + i] == before
                if not known and count == MOST_FOLLOWED:
                    return False
                if not known:
                    reached[free + count] = before
                    count += 1
            elif dim >= 0:
                elsewhere = True
        drawn = drawn or (elsewhere and not agrees)
        at += 1
    return drawn
