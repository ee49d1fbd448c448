"""Products along batch dims leave one matrix after the other: layout tiles are filled within each.

    %s = dot_general %q, %k     f32[2048,3,49,49], 2048 and 3 of the batch     a matrix of 49 x 49 takes 56 x 128

Any other array would have 2048 along the lanes, and be padded by a seventh. Found with libtpu 0.0.51 on v5e in a
transformer of shifted windows: the scores of such attention, and all that is computed of them, took three times the
bytes of their elements.
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.followed_marks import follow_down
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, Matmul
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.followed_layouts import follow_layouts


def beside_products(program: Program, outer: np.ndarray) -> np.ndarray:
    """bool[ops]: makes what meets a product along batch dims, or what is computed of one. `outer` is of `outer_dims`.

    Of scores f32[8,12,512,512] the queries lie along the lanes, and of a number for each query nothing is spread.
    """
    found, of_products = np.zeros(program.op_count, np.bool_), outer > 0
    follows = np.array([_stays_whole(spec) for spec in program.specs], np.bool_)[program.op_spec]
    if of_products.any():
        follow_down(program, follows, np.ones(program.value_count, np.bool_), of_products)
    marked = np.append(of_products, False)[np.minimum(program.result_ptr[:-1], len(outer))]
    found[program.value_op[program.operands[marked[program.use_op]]]] = True
    return found


def _stays_whole(spec: OpSpec) -> bool:
    """True for an elementwise op of arrays of one size, be it a transpose of one."""
    sizes = {math.prod(type_.shape) for type_ in (*spec.operands, *spec.results)}
    return isinstance(traits_of(spec), Elementwise) and len(spec.results) == 1 and len(sizes - {1}) == 1


def _batch(spec: OpSpec) -> int:
    """A bit for each batch dim of a product's result."""
    traits = traits_of(spec)
    if not isinstance(traits, Matmul) or traits.sides is None:
        return 0
    return sum(1 << d for d in traits.sides(spec).batch)


def outer_dims(program: Program, op_class: np.ndarray, known: np.ndarray) -> np.ndarray:
    """int32[values]: a bit for each dim that lies outside the layout tiles, with those that are `known` otherwise.

    `op_class` is that of each op.
    """
    marks = np.zeros(program.value_count, np.int32)
    batch = np.array([_batch(spec) for spec in program.specs], np.int32)[program.op_spec]
    marks[program.result_ptr[:-1][batch > 0]] = batch[batch > 0]
    marks[known > 0] = known[known > 0]
    follow_layouts(program, op_class, marks, of_dims=True)
    return marks


def matrix_dims(program: Program, outer: np.ndarray) -> np.ndarray:
    """int32[values]: a bit for each of the two dims of the matrices that products along batch dims leave, where what is
    computed of these keeps them, in whatever order; else 0. `outer` is of `outer_dims`."""
    inside = np.where(outer > 0, (1 << program.value_rank.astype(np.int32)) - 1 & ~outer, 0)
    without_first = inside & (inside - 1)
    has_two = (without_first > 0) & (without_first & (without_first - 1) == 0)
    return np.where(has_two, inside, 0).astype(np.int32)
