"""Mappings of an op that fit its neighbours on one axis.

    x tiled on 0 -> dot(x, w)        evidence: operand 0 sliced on dim 0
                                     fitting: b (0, WHOLE) -> tile 0
    w tiled on 1 as well             fitting: b and n

A mapping fits if it agrees with the tile of an operand, or with a consumer that slices a result, and its extent is a
multiple of the axis. Atomic values are no evidence.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.table.drawn_tiles import drawn_mapping, not_drawn, with_itself
from autopart.core.table.loop_nests import ATOMIC, LoopNests, divides, result_entry, slicing, tiling


@kernel
def fitting_mappings(
    nests: LoopNests,
    op: int,
    axis: int,
    found: np.ndarray,
) -> int:
    """Writes the mappings of `op` that fit its neighbours on `axis` into `found`; returns how many there are.

    `found` has an entry for each mapping of a spec, and `drawn_tiles.MOST_FOLLOWED` more; until all are known, 1 marks
    those that agree with a neighbour.
    """
    graph, maps, state = nests.graph, nests.maps, nests.state
    spec = graph.op_spec[op]
    first_operand, operand_count = graph.operand_ptr[op], graph.operand_ptr[op + 1] - graph.operand_ptr[op]
    first_result, result_count = graph.result_ptr[op], graph.result_ptr[op + 1] - graph.result_ptr[op]
    if graph.closed[op, axis] or (graph.is_argument[op] and state.action[first_result, axis] == ATOMIC):
        return 0
    first, mappings, agree = maps.first[spec], maps.first[spec + 1] - maps.first[spec], 0
    for mapping in range(mappings):
        found[mapping] = 0
    for k in range(operand_count):
        dim = tiling(nests, graph.operands[first_operand + k], axis)
        if dim >= 0:
            for mapping in range(mappings):
                fits = found[mapping] == 0 and maps.entries[maps.start[first + mapping] + k] == dim
                if fits and not maps.alone[first + mapping]:
                    found[mapping] = 1
                    agree += 1
    for r in range(result_count):
        if agree == mappings:
            break
        bits = slicing(nests, first_result + r, axis)
        if bits != 0:
            for mapping in range(mappings):
                entry = maps.entries[maps.start[first + mapping] + operand_count + r]
                if found[mapping] == 0 and entry < LAST_TILE and bits >> entry & 1 and not maps.alone[first + mapping]:
                    found[mapping] = 1
                    agree += 1
    count = 0
    if agree > 0:
        for mapping in range(mappings):
            if found[mapping] == 1 and divides(nests, op, mapping, axis):
                found[count] = mapping
                count += 1
    if count == 0 and maps.drawn[spec]:
        count = drawn_mapping(nests, op, axis, found)
    if count > 1:
        count = not_drawn(nests, op, axis, found, count)
    if count > 0 and with_itself(nests, op) and (count > 1 or result_entry(nests, op, found[0], 0) > LAST_TILE):
        first = found[0]
        if drawn_mapping(nests, op, axis, found) == 0:
            found[0] = first
        else:
            count = 1
    return count


@kernel
def fitting_each(
    nests: LoopNests,
    ops: np.ndarray,
    axis: int,
    found: np.ndarray,
    counts: np.ndarray,
) -> None:
    """`fitting_mappings` of each of `ops` that has no mapping on the axis: counts[i] of them, in the row found[i]."""
    state = nests.state
    for i in range(ops.shape[0]):
        counts[i] = 0
        if state.mapping[ops[i], axis] < 0:
            counts[i] = fitting_mappings(nests, ops[i], axis, found[i])
