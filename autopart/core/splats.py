"""A value whose elements are all one constant, seen behind broadcasts and views that spread it.

%z = broadcast_in_dim(constant 0)      ->      splat_behind(program, %z) == 0
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import splat_value
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Traits, View
from autopart.core.program import Program


def splat_behind(program: Program, value: int) -> np.generic | None:
    """The one number of all elements of a value; None where there is no such number, or it is not known."""
    op = int(program.value_op[value])
    while len(program.operands_of(op)) == 1 and spreads(traits_of(program.spec(op))):
        op = int(program.value_op[program.operands_of(op)[0]])
    return splat_value(program.spec(op))


def specs_behind(program: Program) -> np.ndarray:
    """int32[values]: the spec of what each value shows: that of an op behind broadcasts and views that spread it."""
    spread = np.array([len(s.operands) == 1 and spreads(traits_of(s)) for s in program.specs], np.bool_)
    found = program.op_spec[program.value_op].astype(np.int32)
    _look_behind(spread, program.op_spec, program.operand_ptr, program.operands, program.result_ptr, found)
    return found


def are_splats(program: Program, numbers: Sequence[object]) -> np.ndarray:
    """bool[numbers, specs]: all elements of a constant are the number; of other ops nothing is."""
    splats = [splat_value(spec) for spec in program.specs]
    return np.array([[s is not None and bool(s == number) for s in splats] for number in numbers], np.bool_)


@kernel
def _look_behind(
    spreads: np.ndarray,
    op_spec: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    found: np.ndarray,
) -> None:
    """Fills in found[value], the spec of its own op at first; what is spread is made before."""
    for op in range(op_spec.shape[0]):
        if spreads[op_spec[op]]:
            for value in range(result_ptr[op], result_ptr[op + 1]):
                found[value] = found[operands[operand_ptr[op]]]


def spreads(traits: Traits) -> bool:
    """True for a view, and for the broadcast of a scalar."""
    return isinstance(traits, View) or traits.cloned_per_use
