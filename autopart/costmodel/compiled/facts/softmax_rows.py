"""Exponentials in f32 of a softmax over what a product with batch dims leaves in bf16: written in place of the scores.

    %s = dot_general %q, %k             bf16[4,12,1024,1024]    never written: one kernel makes %e and its sums
    %c = multiply (convert %s) 0.125
    %m = reduce_max %c
    %e = exponential (%c - %m)          f32[4,12,1024,1024]     written, and kept for the backward pass
    %p = %e / reduce_sum %e             computed inside the products that read it

The kernel of the product has whole rows, so it knows their largest elements. Found with libtpu 0.0.51 on v5e: rows of
1024 and 1500 keys, heads of 64. Scores that stay in bf16 are written, as those in f32 are, and each reader computes
their exponentials; so are logits, of a product without batch dims. So, too, are scores that are scaled and masked in
bf16, and widened for the softmax: their largest are chosen in bf16. In f32 the kernel goes on where it computes in f32.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Matmul
from autopart.core.program import Program
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, EXPENSIVE, FREE, MATMUL, REDUCE


def softmax_rows(program: Program, op_class: np.ndarray, weight: np.ndarray, in_one: bool) -> np.ndarray:
    """bool[values]: exponentials of rows of scores, wider than these, that are reduced again.

    `op_class` and `weight` are of the program's ops. None are found unless `in_one`.
    """
    values, products = program.value_count, np.array([_has_batch(spec) for spec in program.specs])
    found = np.zeros(values, np.bool_)
    if in_one and products.any():
        made_of, row_of, row_by = np.full((3, values), -1, np.int32)
        _follow(
            program.operand_ptr, program.operands, program.result_ptr, op_class, weight, products[program.op_spec],
            program.value_elements, program.element_bytes, made_of, row_of, row_by,
            np.zeros(values, np.int8), np.zeros(values, np.bool_), found,
        )  # fmt: skip
    return found


_OF_ROWS, _EXPENSIVE = 1, 2
"""What a value is of scores: computed from an element and from something of its row; what is expensive, of that."""


@kernel
def _follow(
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    op_class: np.ndarray,
    weight: np.ndarray,
    is_product: np.ndarray,
    elements: np.ndarray,
    element_bytes: np.ndarray,
    made_of: np.ndarray,
    row_of: np.ndarray,
    row_by: np.ndarray,
    kind: np.ndarray,
    widened: np.ndarray,
    found: np.ndarray,
) -> None:
    """Fills in `found`.

    made_of[v], row_of[v]   the result of a product of which v is made, element by element, or an element of each row
    row_by[v]               the reduction of rows that v is computed from
    kind[v]                 0, `_OF_ROWS` or `_EXPENSIVE`
    widened[v]              v is a narrower array, whose rows have their largest elements in it
    """
    for op in range(op_class.shape[0]):
        first, end = operand_ptr[op], operand_ptr[op + 1]
        if result_ptr[op + 1] - result_ptr[op] != 1 or end == first:
            continue
        value = result_ptr[op]
        if op_class[op] == MATMUL and is_product[op]:
            made_of[value] = value
        elif op_class[op] == REDUCE:
            read = operands[first]
            row_of[value], row_by[value] = made_of[read], -1 if widened[read] else op
            if row_by[read] >= 0 and kind[read] == _EXPENSIVE and element_bytes[read] > element_bytes[made_of[read]]:
                found[read] = True
        elif op_class[op] == ELEMENTWISE or op_class[op] == FREE:
            row = by = -1
            for use in range(first, end):
                read = operands[use]
                if end - first == 1 and elements[read] == elements[value]:
                    is_wider = element_bytes[read] < element_bytes[value]
                    widened[value] = is_wider or (weight[op] == 0 and widened[read])
                if row_of[read] >= 0:
                    row, by = row_of[read], row_by[read]
                if elements[read] == elements[value] and made_of[value] < 0:
                    made_of[value], row_by[value], kind[value] = made_of[read], row_by[read], min(kind[read], _OF_ROWS)
            if made_of[value] < 0:
                row_of[value], row_by[value] = row, by
            elif row == made_of[value]:
                row_by[value], kind[value] = by, _OF_ROWS
            if kind[value] == _OF_ROWS and weight[op] >= EXPENSIVE:
                kind[value] = _EXPENSIVE


def _has_batch(spec: OpSpec) -> bool:
    """True for a product along batch dims."""
    traits = traits_of(spec)
    return isinstance(traits, Matmul) and traits.sides is not None and len(traits.sides(spec).batch) > 0
