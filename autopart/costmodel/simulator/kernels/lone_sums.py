"""The vector work of a reduction that its kernel computes alone, of what is there or of what is there widened.

%m = reduce_max %s             %s is written by a product: the work of %m
%t = reduce_sum (convert %x)   %x in bf16: that of %t and of the conversion
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.simulator.facts.cut_arrays import NESTED
from autopart.costmodel.simulator.facts.op_classes import REDUCE


@kernel
def lone_sum_flop(program: ProgramArrays, local: LocalArrays, op: int) -> float:
    """The most vector work of a kernel that is one reduction, `op`; 0 for any other op.

    A view of what is reduced is part of the kernel, and so is what lays parts beside each other: then it is no
    reduction alone.
    """
    if program.ops.op_class[op] != REDUCE:
        return 0.0
    operand, own = program.uses.operands[program.operand_ptr[op]], local.ops.vector_flop[op]
    source = program.values.value_op[operand]
    if program.ops.is_view[source] or program.values.laid[operand] == NESTED:
        return 0.0
    if program.operand_ptr[source + 1] - program.operand_ptr[source] == 1:
        given = program.uses.operands[program.operand_ptr[source]]
        if program.values.element_bytes[given] < program.values.element_bytes[operand]:
            own += local.ops.vector_flop[source]
    return own
