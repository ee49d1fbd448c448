"""Which values are never written to memory: a fusion heuristic after XLA's.

    %h = dot %x %w
    %e = exp %h               computed inside each of the dots that read it, twice if there are two
    %p = dot %e %v

An op is *fused away* when it is computed inside its consumers: it is elementwise or a slice, its consumers are all in
the same scope and take fusible operands, none is a collective or an output. Through a view (a reshape) the view's
consumers count. What remains, the roots, are the kernels that run; `multi_output.py` then joins some of those.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from autopart.costmodel.simulator.op_classes import CONV, EXPENSIVE, MATMUL

LIMIT = 200
"""Most ops computed inside one kernel: XLA limits operands to a similar number; it also bounds our own time."""


@njit(cache=True)
def fused_away_values(p, here, into_matmul, duplicate):
    """bool[values]: True where the value is computed inside its consumers; views of such values too.

    into_matmul  whether matmuls and convolutions take elementwise operands (TPU; not cuBLAS)
    duplicate    whether an expensive elementwise op is computed again for each consumer
    """
    values = p.values.shape[0]
    able = _able(p, here, into_matmul)
    fused_away, members = np.zeros(values, np.bool_), np.zeros(values)
    for op in range(p.ops.shape[0]):
        if p.result_ptr[op + 1] - p.result_ptr[op] != 1 or p.ops.is_argument[op]:
            continue
        value, inside = p.result_ptr[op], 1.0
        for use in range(p.operand_ptr[op], p.operand_ptr[op + 1]):
            operand = p.uses.operands[use]
            if operand < value and fused_away[operand]:
                if inside + members[operand] > LIMIT:
                    fused_away[operand] = False
                else:
                    inside += members[operand]
        members[value] = inside
        if able[value]:
            users = p.user_ptr[value + 1] - p.user_ptr[value]
            fused_away[value] = users < 2 or p.ops.weight[op] < EXPENSIVE or duplicate
    return fused_away


@njit(cache=True)
def _able(p, here, into_matmul):
    """bool[values]: every consumer could compute the value itself; through a view, every consumer of the view."""
    able = np.zeros(p.values.shape[0], np.bool_)
    is_output = np.zeros(p.values.shape[0], np.bool_)
    for i in range(p.outputs.shape[0]):
        is_output[p.outputs.output_value[i]] = True
    for op in range(p.ops.shape[0] - 1, -1, -1):
        if not (p.ops.fuses[op] or p.ops.is_view[op]) or p.result_ptr[op + 1] - p.result_ptr[op] != 1:
            continue
        value = p.result_ptr[op]
        ok = here.values.at_def[value] < 0 and not is_output[value]
        for i in range(p.user_ptr[value], p.user_ptr[value + 1]):
            use = p.user[i]
            consumer = p.uses.use_op[use]
            unmoved = here.uses.of_use[use] < 0 or here.moves.moves_nothing[here.uses.of_use[use]]
            if not unmoved or p.uses.use_scope[use] != p.ops.op_scope[op] or p.ops.is_argument[consumer]:
                ok = False
            elif p.ops.is_view[consumer]:
                ok = ok and able[p.result_ptr[consumer]]
            elif p.ops.op_class[consumer] == MATMUL or p.ops.op_class[consumer] == CONV:
                ok = ok and (into_matmul or p.values.is_splat[value])
            else:
                ok = ok and p.ops.takes[consumer]
            if not ok:
                break
        able[value] = ok
    return able
