"""What is made of nothing but counts: masks of positions, tables of angles, random bits.

    %i = iota, dim 1             i32[8,512,8000]: 512 numbers
    %m = compare %i 511          as many: a vector that is spread, whatever shape it is written in
    %b = add (%j * 8000) %k      counts along two dims: as many numbers as elements, as random bits are made of

The compiler computes a vector's worth before it is spread, so that it counts as no array where it is read. Found with
libtpu 0.0.51 on v5e: logits masked along positions, which products compute as if there was no mask.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program


def counted_shares(program: Program, moves: np.ndarray, is_splat: np.ndarray) -> np.ndarray:
    """float64[values]: how many numbers a value is made of, over its elements; 0 for what is made of anything else.

    moves      bool[ops]: views, and elementwise ops that compute nothing
    is_splat   bool[values]: one number everywhere
    """
    dims = [_counts(spec) for spec in program.specs]
    elementwise = np.array([isinstance(traits_of(spec), Elementwise) for spec in program.specs], np.bool_)
    elements = program.value_shape.prod(axis=1, dtype=np.float64)
    shares, along = np.zeros(program.value_count), dict[int, frozenset[tuple[int, int]]]()
    along |= {value: frozenset() for value in np.flatnonzero(is_splat).tolist()}
    for op in np.flatnonzero((elementwise[program.op_spec] | moves) & (np.diff(program.result_ptr) == 1)).tolist():
        value, dim = int(program.result_ptr[op]), dims[program.op_spec[op]]
        read = [along.get(operand) for operand in program.operands_of(op).tolist()]
        if dim is not None:
            along[value] = frozenset({(dim, int(program.value_shape[value, dim]))})
        elif read and all(dims is not None for dims in read):
            along[value] = frozenset().union(*(dims for dims in read if dims is not None))
        else:
            continue
        numbers = np.prod([float(size) for _, size in along[value]])
        shares[value] = min(1.0, numbers / elements[value]) if along[value] and elements[value] else 0.0
    return shares


def _counts(spec: OpSpec) -> int | None:
    """The dim along which an op counts; None for any other op."""
    traits = traits_of(spec)
    return traits.counts(spec) if isinstance(traits, Elementwise) and traits.counts is not None else None
