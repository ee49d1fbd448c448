"""What is made of nothing but counts: masks of positions, tables of angles, random bits.

    %i = iota, dim 1             i32[8,512,8000]: 512 numbers
    %m = compare %i 511          as many: a vector that is spread, whatever shape it is written in
    %b = add (%j * 8000) %k      counts along two dims: as many numbers as elements, as random bits are made of

The compiler computes a vector's worth before it is spread, so that it counts as no array where it is read. Found with
libtpu 0.0.51 on v5e: logits masked along positions, which products compute as if there was no mask.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.op import OpSpec, splat_value
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.core.splats import specs_behind

WORD = 64
"""Sorts of counts, by dim and size, that an integer has bits for."""


def counted_shares(program: Program, moves: np.ndarray) -> np.ndarray:
    """float64[values]: how many numbers a value is made of, over its elements; 0 for what is made of anything else.

    moves   bool[ops]: views, and elementwise ops that compute nothing
    """
    counts, spec = [_counts(spec) for spec in program.specs], program.op_spec
    elementwise = np.array([isinstance(traits_of(spec), Elementwise) for spec in program.specs], np.bool_)
    follows = (elementwise[spec] | moves) & (np.diff(program.result_ptr) == 1)
    kinds = {pair: kind for kind, pair in enumerate(sorted({pair for pair in counts if pair is not None}))}
    shares = np.zeros(program.value_count)
    if not kinds:
        return shares
    kind = np.array([-1 if pair is None else kinds[pair] for pair in counts], np.int32)[spec]
    along = np.zeros((program.value_count, -(-len(kinds) // WORD)), np.uint64)
    known = np.array([splat_value(spec) is not None for spec in program.specs], np.bool_)[specs_behind(program)]
    _follow(program.operand_ptr, program.operands, program.result_ptr, follows, kind, known, along)
    values = np.flatnonzero(along.any(axis=1))
    numbers = np.ones(len(values))
    for (_, size), at in kinds.items():
        numbers[along[values, at // WORD] >> np.uint64(at % WORD) & np.uint64(1) > 0] *= size
    elements = program.value_shape[values].prod(axis=1, dtype=np.float64)
    shares[values] = np.where(elements > 0, np.minimum(1.0, numbers / np.maximum(elements, 1)), 0.0)
    return shares


@kernel
def _follow(
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    follows: np.ndarray,
    kind: np.ndarray,
    known: np.ndarray,
    along: np.ndarray,
) -> None:
    """Fills in along[value], 0 at first: a bit for each sort of counts that it is made of, if it is of nothing else.

    kind[op]       which counts it makes, or -1
    known[value]   all its elements are one number
    """
    for op in range(follows.shape[0]):
        if not follows[op]:
            continue
        value, of_counts = result_ptr[op], False
        if kind[op] >= 0:
            along[value, kind[op] // WORD] |= np.uint64(1) << np.uint64(kind[op] % WORD)
            continue
        for use in range(operand_ptr[op], operand_ptr[op + 1]):
            read, counted = operands[use], False
            if known[read]:
                continue
            for word in range(along.shape[1]):
                counted = counted or along[read, word] > 0
            of_counts = counted
            if not counted:
                break
        if of_counts:
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                for word in range(along.shape[1]):
                    along[value, word] |= along[operands[use], word]


def _counts(spec: OpSpec) -> tuple[int, int] | None:
    """The dim along which an op counts, and its size; None for any other op."""
    traits = traits_of(spec)
    dim = traits.counts(spec) if isinstance(traits, Elementwise) and traits.counts is not None else None
    return None if dim is None else (dim, spec.results[0].shape[dim])
