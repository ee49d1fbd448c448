"""Gradients of logits that are written for the products that read them, where logits would wait beside a gradient.

    %l = dot_general %x, %w          logits, f32[2,512,32000], 131 MB
    %g = select (exp %l * %s + ...)  their gradient: XLA:TPU computes it in each product that reads it, from %l
    %dx = dot_general %g, %w
    %dw = dot_general %g, %x         131 MB beside 131 MB of %l
    -> %g behind a barrier           written once, in bf16, as products round it: 66 MB beside either of them

So the logits are gone before the last product. It costs an array that is written and read, so it is done where logits
and the last product are the largest arrays and take an eighth less, and not where what is computed again is hidden. The
simulator takes it as computed in each product either way: of six GPTs where it is written, that is 1.02 to 1.11 of the
TPU compiler's compute.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from autopart.core.followed_marks import follow_down
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Elementwise, Matmul, Update, View
from autopart.core.program import ROOT, Program
from autopart.spmd.device_local import DeviceLocal

MOST_COLUMNS = 1200
"""A product that uses each element more often hides its being computed again. libtpu 0.0.51 on v5e: the vector unit
takes 12.3 ps for an element of a gradient of logits, in which the matrix unit does 2 x 1,200 flop. Written once, it
adds 0.16 to 0.27 ms to a step where 33 million elements meet 1,024 columns, and 0.47 ms where 25 million meet 2,048."""

LEAST_SHARE = 1 / 8
"""Of the bytes of logits and a product's result, what writing has to save."""

_ROUNDED_SHARE = 0.5
"""Bytes of what is written, in bf16, over those of f32."""


def written_once(local: DeviceLocal) -> frozenset[int]:
    """Values to write behind a barrier. Each op is looked at once."""
    program = local.program
    products = np.flatnonzero(_ops(program, lambda spec: isinstance(traits_of(spec), Matmul))).tolist()
    readers = defaultdict[int, list[int]](list)
    for op in products:
        for value in program.operands_of(op).tolist():
            readers[value].append(op)
    found = [value for value, ops in readers.items() if len(ops) > 1 and _is_read_by(program, value, len(ops))]
    if found:
        gradients = _gradients_of_logits(program)
        found = [value for value in found if gradients[value]]
    if not found:
        return frozenset()
    largest = max(_bytes(local, result) for op in products for result in program.results_of(op))
    return frozenset(v for v in found if _saves(local, v, readers[v], largest) and _is_not_hidden(local, v, readers[v]))


def _ops(program: Program, test: Callable[[OpSpec], bool]) -> np.ndarray:
    """bool[ops]: those whose spec passes a test."""
    return np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec]


def _bytes(local: DeviceLocal, value: int) -> float:
    type_ = local.local_type(value, int(local.native[value]))
    return math.prod(type_.shape) * type_.element_bytes


def _elements(local: DeviceLocal, value: int, layout: int) -> int:
    return math.prod(local.local_type(value, layout).shape)


def _is_read_by(program: Program, value: int, products: int) -> bool:
    """True if nothing but so many products reads a value of the program's own scope, in f32."""
    pointer, _ = program.users
    if program.op_scope[program.value_op[value]] != ROOT or program.type_of(value).dtype != "f32":
        return False
    return pointer[value + 1] - pointer[value] == products and value not in program.output_place


def _gradients_of_logits(program: Program) -> np.ndarray:
    """bool[values]: what is computed of an array of which an element of each row was changed on the way."""
    changed, arithmetic = _ops(program, _changes_rows), _ops(program, _is_arithmetic)
    marks = changed[program.value_op]
    follow_down(program, arithmetic, np.ones_like(marks), marks)
    return marks & arithmetic[program.value_op]


def _changes_rows(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Update) and traits.one_per_row(spec)


def _is_arithmetic(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Elementwise | Constant) or (isinstance(traits, View) and not traits.fence)


def _saves(local: DeviceLocal, value: int, products: list[int], largest: float) -> bool:
    """True if logits beside a product's result are the most that lives, and the gradient beside either is less.

    Something that was gathered for other ops too and waits for a product would lie beside logits and gradient.
    """
    if any(_is_shared(local, op) for op in products):
        return False
    logits = _bytes(local, value)
    made = max(_bytes(local, local.program.results_of(op)[0]) for op in products)
    saved = min(logits, made) - logits * _ROUNDED_SHARE
    return max(logits, made) >= largest and saved >= LEAST_SHARE * (logits + made)


def _is_not_hidden(local: DeviceLocal, value: int, products: list[int]) -> bool:
    """True if computing the value takes as long as the products that read it, so that each computes it visibly."""
    elements = _elements(local, value, int(local.native[value]))
    return all(_multiplied(local, op) <= MOST_COLUMNS * elements for op in products)


def _multiplied(local: DeviceLocal, op: int) -> float:
    """Multiplications of a product without batch dims: rows x columns x what is summed; of one with them, more."""
    program = local.program
    uses = range(program.operand_ptr[op], program.operand_ptr[op + 1])
    sizes = [_elements(local, int(program.operands[use]), int(local.required[use])) for use in uses]
    result = program.results_of(op)[0]
    return math.sqrt(math.prod(sizes) * _elements(local, result, int(local.native[result])))


def _is_shared(local: DeviceLocal, op: int) -> bool:
    """True if an operand of the op, or what it is a view of, was gathered for others too."""
    program, of_use = local.program, local.placement.of_use
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        maker = int(program.value_op[program.operands[use]])
        if of_use[use] >= 0:
            shared = (of_use == of_use[use]).sum() > 1
        else:
            shared = local.table.arrays.moves[program.op_spec[maker]] and _is_shared(local, maker)
        if shared:
            return True
    return False
