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

from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.simulator.op_classes import CONV, EXPENSIVE, MATMUL

LIMIT = 200
"""Most ops computed inside one kernel: XLA limits operands to a similar number; it also bounds our own time."""


@njit(cache=True)
def fused_away_values(program: ProgramArrays, local: LocalArrays, into_matmul: bool, duplicate: bool) -> np.ndarray:
    """bool[values]: True where the value is computed inside its consumers; views of such values too.

    into_matmul  whether matmuls and convolutions take elementwise operands (TPU; not cuBLAS)
    duplicate    whether an expensive elementwise op is computed again for each consumer
    """
    values = program.values.shape[0]
    able = _able(program, local, into_matmul)
    fused_away, members = np.zeros(values, np.bool_), np.zeros(values)
    for op in range(program.ops.shape[0]):
        if program.result_ptr[op + 1] - program.result_ptr[op] != 1 or program.ops.is_argument[op]:
            continue
        value, inside = program.result_ptr[op], 1.0
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            operand = program.uses.operands[use]
            if operand < value and fused_away[operand]:
                if inside + members[operand] > LIMIT:
                    fused_away[operand] = False
                else:
                    inside += members[operand]
        members[value] = inside
        if able[value]:
            users = program.user_ptr[value + 1] - program.user_ptr[value]
            fused_away[value] = users < 2 or program.ops.weight[op] < EXPENSIVE or duplicate
    return fused_away


@njit(cache=True)
def _able(program: ProgramArrays, local: LocalArrays, into_matmul: bool) -> np.ndarray:
    """bool[values]: every consumer could compute the value itself; through a view, every consumer of the view."""
    able = np.zeros(program.values.shape[0], np.bool_)
    is_output = np.zeros(program.values.shape[0], np.bool_)
    for i in range(program.outputs.shape[0]):
        is_output[program.outputs.output_value[i]] = True
    for op in range(program.ops.shape[0] - 1, -1, -1):
        if (
            not (program.ops.fuses[op] or program.ops.is_view[op])
            or program.result_ptr[op + 1] - program.result_ptr[op] != 1
        ):
            continue
        value = program.result_ptr[op]
        ok = local.values.at_def[value] < 0 and not is_output[value]
        for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
            use = program.user[i]
            consumer = program.uses.use_op[use]
            unmoved = local.uses.of_use[use] < 0 or local.moves.moves_nothing[local.uses.of_use[use]]
            if (
                not unmoved
                or program.uses.use_scope[use] != program.ops.op_scope[op]
                or program.ops.is_argument[consumer]
            ):
                ok = False
            elif program.ops.is_view[consumer]:
                ok = ok and able[program.result_ptr[consumer]]
            elif program.ops.op_class[consumer] == MATMUL or program.ops.op_class[consumer] == CONV:
                ok = ok and (into_matmul or program.values.is_splat[value])
            else:
                ok = ok and program.ops.takes[consumer]
            if not ok:
                break
        able[value] = ok
    return able
