"""The kind of an op on one device, where its own sizes decide that.

    gather %stack, %at      f32[4,7,2048,4096], stages over four devices: each looks up one index, its stage's

XLA expands a gather or a scatter of one index to a slice or an update of one: a part that lies as the whole does, where
rows of a table at many indices are copied to lie along the lanes (`gather_expander.cc`, `scatter_expander.cc`).
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.layout_assignment.layout_constraints import Ops, Scratch, ShardedValues, local_dims
from autopart.costmodel.compiled.layout_assignment.transfers import FOLLOWS, Transfers


@kernel
def local_kind(ops: Ops, values: ShardedValues, by: Transfers, scratch: Scratch, op: int) -> int:
    """`by.kind`, or that of a slice for what reads or writes at one index."""
    spec = ops.op_spec[op]
    return FOLLOWS if has_one_index(ops, values, by, scratch, op) else by.kind[spec]


@kernel
def has_one_index(ops: Ops, values: ShardedValues, by: Transfers, scratch: Scratch, op: int) -> bool:
    """True for a gather or a scatter at one index of a device."""
    spec = ops.op_spec[op]
    counted = by.counted[spec]
    if counted == 0:
        return False
    counts = ops.operands[ops.operand_ptr[op + 1] - 1] if by.updates[spec] else ops.result_ptr[op]
    for d in range(local_dims(values, counts, scratch.dims)):
        if counted >> d & 1 and scratch.dims[d] > 1.0:
            return False
    return True
