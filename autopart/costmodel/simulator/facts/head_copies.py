"""Copies between products with and without batch dims, where images lie along the lanes.

    %q = dot_general %x, %w      bf16[128,196,16,64]     128 images a device: they fill the lanes, the 196 places do not
    %s = dot_general %q, %k      bf16[128,16,196,196]    a product for each image and head: %q and %k are copied first
    %o = dot_general %p, %v      bf16[128,196,16,64]     copied for the projection behind it; gradients are, both ways

With fewer images features or places lie along the lanes, as products for each head need them, and nothing is copied.
Found with libtpu 0.0.51 on v5e, of blocks of attention alone: of 128 images and of 256 8 copies a block, in bf16 also
where all else is f32, of 32 images none.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Matmul
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE, FREE, MATMUL, SLICING

COPIED_BYTES = 2.0
"""Of an element that is copied: products of f32 read their operands as bf16."""

PASSES = 7.0
"""How often the bytes of a copy pass at HBM's rate, as elements go to other lanes: 4.8 to 10.5 times."""

APART, TOGETHER = 1, 2
"""Kinds of products, as bits: for each image and head, and of all of them."""

INTO_HEADS, OUT_OF_HEADS = 1, 2
"""Of a product: its result goes on to products for each head, which keep a copy with features along the lanes; or it is
for each head, and goes on to products of all."""


def batch_dims(spec: OpSpec) -> int:
    """Of how many dims a product is a batch of products; 0 for any other op."""
    traits = traits_of(spec)
    return len(traits.sides(spec).batch) if isinstance(traits, Matmul) and traits.sides is not None else 0


def between_heads(program: Program, op_class: np.ndarray) -> np.ndarray:
    """int8[ops]: `OUT_OF_HEADS` for products for each image and head whose results go on, element by element, to
    products of all of them, `INTO_HEADS` the other way round; 0 for all other ops."""
    found = np.zeros(program.op_count, np.int8)
    batches = np.array([batch_dims(spec) for spec in program.specs], np.int32)
    if (batches > 1).any():
        users, use = program.users
        _between(
            program.result_ptr, users, program.use_op[use], op_class, batches[program.op_spec],
            np.zeros(program.value_count, np.int8), found,
        )  # fmt: skip
    return found


@kernel
def _between(
    result_ptr: np.ndarray,
    users: np.ndarray,
    reader: np.ndarray,
    op_class: np.ndarray,
    batches: np.ndarray,
    read_by: np.ndarray,
    found: np.ndarray,
) -> None:
    """Fills in `found`; read_by[v]: the kinds of products that read a value, or what is made of it element by element;
    reader[users[v]:users[v + 1]]: the ops that read it."""
    for op in range(op_class.shape[0] - 1, -1, -1):
        if result_ptr[op + 1] - result_ptr[op] != 1:
            continue
        value = result_ptr[op]
        for i in range(users[value], users[value + 1]):
            by = reader[i]
            if op_class[by] == MATMUL:
                read_by[value] |= APART if batches[by] > 1 else 0 if batches[by] else TOGETHER
            elif op_class[by] in (ELEMENTWISE, FREE, SLICING) and by > op and result_ptr[by + 1] - result_ptr[by] == 1:
                read_by[value] |= read_by[result_ptr[by]]
        if op_class[op] == MATMUL:
            sought = TOGETHER if batches[op] > 1 else 0 if batches[op] else APART
            if read_by[value] & sought != 0:
                found[op] = OUT_OF_HEADS if batches[op] > 1 else INTO_HEADS
