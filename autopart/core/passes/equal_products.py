"""The pass `equal_products`: a product that is written twice, with equal operands, is computed once.

    loss, grads = jax.value_and_grad(loss_of)(params, x)         %p = dot %x %w    %h = tanh %p    ...
    logits = model(params, x)                                    %q = dot %x %w    %g = tanh %q    %q is %p, %g is %h

Products are equal if they are of one kind, stand in one scope, and read equal values; so is what is computed of them.
Compilers find this out, too, so that an estimate would be of work that nobody does, and a search would decide the same
thing twice. What is equal without any product stays as it is: it costs little, and each reader may want it in a tiling
of its own. What stands behind another barrier is another value: it is computed again on purpose.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import OpSpec
from autopart.core.ops.rule import has_effect, traits_of
from autopart.core.ops.traits import Collective, Constant, Convolution, Matmul, Structural, View
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program

FACTOR, MASK = 1_000_003, (1 << 61) - 1
"""Of the hash of an op."""


@register_pass("equal_products")
@dataclass(frozen=True)
class EqualProducts(Pass):
    """Readers of a product that was computed before, and of what is computed of it, read what was computed before."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        same = equal_values(program)
        rewriting = Rewriting(program)
        for value in np.flatnonzero(same != np.arange(len(same))).tolist():
            rewriting.replace(value, int(same[value]))
        return rewriting.program()


def equal_values(program: Program) -> np.ndarray:
    """int32[values]: the first value that is equal to each, if that is a product, or computed of equal products."""
    products = _ops(program, _is_product)
    same = np.arange(program.value_count, dtype=np.int32)
    kinds = np.stack([program.op_spec, program.op_scope])[:, products]
    if len(np.unique(kinds, axis=1).T) == products.sum():
        return same
    may_be, constant = _ops(program, _may_be_equal), _ops(program, _is_constant)
    may_be[[*program.value_op[program.arguments].tolist(), *program.owners]] = False
    taken = np.zeros(program.value_count, np.bool_)
    table = np.full(1 << (2 * program.op_count).bit_length(), -1, np.int32)
    _find(
        program.op_spec, program.op_scope, program.operand_ptr, program.operands, program.result_ptr,
        products, may_be, constant, table, same, taken,
    )  # fmt: skip
    return np.where(taken, same, np.arange(len(same), dtype=np.int32))


def _ops(program: Program, test: Callable[[OpSpec], bool]) -> np.ndarray:
    return np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec]


def _is_product(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), (Matmul, Convolution))


def _is_constant(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), Constant)


def _may_be_equal(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    apart = isinstance(traits, (Structural, Collective)) or (isinstance(traits, View) and traits.fence)
    return not apart and spec.kind != "tag" and not has_effect(spec)


@kernel
def _find(
    op_spec: np.ndarray,
    op_scope: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    products: np.ndarray,
    may_be: np.ndarray,
    constant: np.ndarray,
    table: np.ndarray,
    same: np.ndarray,
    taken: np.ndarray,
) -> None:
    """Fills in same[value], each value at first, and taken[value], False at first: a product that is equal to one
    before, and what is computed of such. Constants are equal whatever scope they stand in. Scratch: table, -1 at first:
    the ops by their hashes."""
    for op in range(op_spec.shape[0]):
        scope = -1 if constant[op] else op_scope[op]
        made, hashed = products[op], (op_spec[op] * FACTOR + scope) & MASK
        for use in range(operand_ptr[op], operand_ptr[op + 1]):
            made |= taken[operands[use]]
            hashed = (hashed * FACTOR + same[operands[use]]) & MASK
        if not may_be[op]:
            continue
        place = (hashed ^ hashed >> 31) & (table.shape[0] - 1)
        while table[place] >= 0 and not _equal(
            op_spec, op_scope, operand_ptr, operands, same, table[place], op, constant[op]
        ):
            place = (place + 1) & (table.shape[0] - 1)
        if table[place] < 0:
            table[place] = op
        else:
            for i in range(result_ptr[op + 1] - result_ptr[op]):
                same[result_ptr[op] + i] = same[result_ptr[table[place]] + i]
                taken[result_ptr[op] + i] = made


@kernel
def _equal(
    op_spec: np.ndarray,
    op_scope: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    same: np.ndarray,
    one: int,
    other: int,
    constant: bool,
) -> bool:
    """True if two ops are of one kind and read equal values, and stand in one scope or are constants."""
    if op_spec[one] != op_spec[other] or not (constant or op_scope[one] == op_scope[other]):
        return False
    for i in range(operand_ptr[one + 1] - operand_ptr[one]):
        if same[operands[operand_ptr[one] + i]] != same[operands[operand_ptr[other] + i]]:
            return False
    return True
