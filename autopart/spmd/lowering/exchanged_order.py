"""The order of axes on a dim to which a tile came by an exchange: it is the minor one.

    %x [{"b"},{"a"}]                "a" was decided before "b"
    %s = sort %x along dim 1        loop "a": tiles dim 0, for which those of dim 1 are exchanged
    -> %s [{"b","a"}]               one all_to_all; with "a" the major one, as decided, tiles would also change places

What reads it keeps that order, and so does what is repeated for that.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.table.loop_nests import LoopNests, decided_at, operand_entry, tiling


@kernel
def order_exchanged(nests: LoopNests, turned: np.ndarray) -> None:
    """Changes the order of loops in `nests.state`, a copy for the lowering; `turned`: room for a uint8 for each op."""
    graph, state = nests.graph, nests.state
    ops, axes = state.mapping.shape
    for op in range(ops):
        turned[op] = 0
    for op in range(ops):
        if graph.is_argument[op] or graph.result_ptr[op] == graph.result_ptr[op + 1]:
            continue
        for a in range(axes):
            for b in range(axes):
                first, second = state.op_stamp[op, a], state.op_stamp[op, b]
                if first >= second or not _is_minor(nests, op, a, b, turned):
                    continue
                state.op_stamp[op, a], state.op_stamp[op, b], turned[op] = second, first, 1
                for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
                    maker = graph.value_op[graph.operands[use]]
                    repeats = nests.maps.repeats[graph.op_spec[maker]] > 0
                    if repeats and not turned[maker] and state.op_stamp[maker, a] < state.op_stamp[maker, b]:
                        stamp = state.op_stamp[maker, a]
                        state.op_stamp[maker, a], state.op_stamp[maker, b] = state.op_stamp[maker, b], stamp
                        turned[maker] = 1


@kernel
def _is_minor(nests: LoopNests, op: int, a: int, b: int, turned: np.ndarray) -> bool:
    """True if tiles of `a` are exchanged for the dim that `b` tiles already, or are minor to those of `b` in what is
    read, since they were exchanged before."""
    graph, state = nests.graph, nests.state
    if state.mapping[op, a] < 0 or state.mapping[op, b] < 0:
        return False
    for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
        value = graph.operands[graph.operand_ptr[op] + k]
        maker, dim = graph.value_op[value], tiling(nests, value, b)
        read = operand_entry(nests, op, state.mapping[op, b], k)
        if dim < 0 or dim != read or read != operand_entry(nests, op, state.mapping[op, a], k):
            continue
        before = tiling(nests, value, a)
        if before != dim and before >= 0:
            return True
        behind = decided_at(state, maker, value, a) > decided_at(state, maker, value, b)
        if before == dim and turned[maker] > 0 and behind:
            return True
    return False
