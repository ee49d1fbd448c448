"""What is computed of few elements is written before it is spread over more: its reader would compute it for each.

    %s = rsqrt %v        f32[8192]: a kernel of its own, 1.3 us
    %b = broadcast %s    f32[8192,512]
    %y = multiply %x %b

XLA:TPU does so for whatever is computed, a negation or a rounding too, and however few times it is read; a single
number it computes inside the reader. Found with libtpu 0.0.51 on v5e, in 24 programs of a few ops: a norm is five
kernels, two of which take a microsecond.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.core.splats import are_splats, specs_behind
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE


def spread_results(program: Program, op_class: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """bool[values]: what an elementwise op computes, and a reader spreads along a dim, perhaps behind other moves.

    op_class   of each op
    moves      bool[ops]: views, and elementwise ops that compute nothing
    """
    pointer, user = program.users
    reads, one = np.diff(program.operand_ptr), np.diff(program.result_ptr) == 1
    passes, computes = moves & (reads == 1), (op_class == ELEMENTWISE) & ~moves & (reads > 0) & one
    spreads, found = np.zeros((2, program.value_count), np.bool_)
    elements = program.value_elements
    _look_ahead(
        program.result_ptr, pointer, program.use_op[user], passes, passes & one, computes & ~_are_dropped(program),
        computes, elements, spreads, found,
    )  # fmt: skip
    return found


@kernel
def _look_ahead(
    result_ptr: np.ndarray,
    pointer: np.ndarray,
    user: np.ndarray,
    passes: np.ndarray,
    hands_on: np.ndarray,
    writes: np.ndarray,
    computes: np.ndarray,
    elements: np.ndarray,
    spreads: np.ndarray,
    found: np.ndarray,
) -> None:
    """Fills in `found`, from the end of the program.

    user[k]         the op that reads a value, for k from pointer[value] to pointer[value + 1]
    passes[op]      it hands on what it reads, as it is
    hands_on[op]    the same, with one result
    computes[op]    it computes one result, and writes[op]: which is written if it is spread
    spreads[value]  it is spread, perhaps behind what passes; False at first
    """
    for op in range(passes.shape[0] - 1, -1, -1):
        if not (hands_on[op] or computes[op]):
            continue
        value = result_ptr[op]
        for k in range(pointer[value], pointer[value + 1]):
            other = result_ptr[user[k]]
            if passes[user[k]] and (spreads[other] or elements[other] > elements[value]):
                spreads[value] = True
                break
        if spreads[value] and writes[op] and elements[value] > 1:
            found[value], spreads[value] = True, False


def _are_dropped(program: Program) -> np.ndarray:
    """bool[ops]: the op leaves one operand as it is: the maximum of a row, and of that and minus infinity."""
    numbers: dict[object, int] = {}
    neutral = np.array([_number(spec, numbers) for spec in program.specs], np.int32)[program.op_spec]
    found = np.zeros(program.op_count, np.bool_)
    if numbers:
        uses = np.flatnonzero(neutral[program.use_op] >= 0)
        readers, behind = program.use_op[uses], specs_behind(program)[program.operands[uses]]
        found[readers[are_splats(program, list(numbers))[neutral[readers], behind]]] = True
    return found


def _number(spec: OpSpec, numbers: dict[object, int]) -> int:
    """Which of `numbers`, to which it is added, an elementwise op drops; -1 for none."""
    traits = traits_of(spec)
    if not isinstance(traits, Elementwise) or traits.neutral is None:
        return -1
    return numbers.setdefault(traits.neutral, len(numbers))
