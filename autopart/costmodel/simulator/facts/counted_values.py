"""What is made of nothing but counts: masks of positions, tables of angles, random bits.

    %i = iota, dim 1             i32[8,512,8000]: 512 numbers
    %m = compare %i 511          as many: a vector that is spread, whatever shape it is written in
    %b = add (%j * 8000) %k      counts along two dims: as many numbers as elements, as random bits are made of

The compiler computes a vector's worth before it is spread, so that it counts as no array where it is read. Found with
libtpu 0.0.51 on v5e: logits masked along positions, which products compute as if there was no mask.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.core.splats import splat_behind


def counted_shares(program: Program, moves: np.ndarray) -> np.ndarray:
    """float64[values]: how many numbers a value is made of, over its elements; 0 for what is made of anything else.

    moves   bool[ops]: views, and elementwise ops that compute nothing
    """
    dims, (pointer, users) = [_counts(spec) for spec in program.specs], program.users
    elementwise = np.array([isinstance(traits_of(spec), Elementwise) for spec in program.specs], np.bool_)
    follows = (elementwise[program.op_spec] | moves) & (np.diff(program.result_ptr) == 1)
    counting = np.array([dim is not None for dim in dims], np.bool_)[program.op_spec]
    shares, along = np.zeros(program.value_count), dict[int, frozenset[tuple[int, int]]]()
    waiting = np.flatnonzero(counting & follows).tolist()
    while waiting:
        op = heappop(waiting)
        value, dim = int(program.result_ptr[op]), dims[program.op_spec[op]]
        if value in along:
            continue
        read = [operand for operand in program.operands_of(op).tolist() if splat_behind(program, operand) is None]
        if dim is not None:
            along[value] = frozenset({(dim, int(program.value_shape[value, dim]))})
        elif all(operand in along for operand in read):
            along[value] = frozenset[tuple[int, int]]().union(*(along[operand] for operand in read))
        else:
            continue
        numbers, elements = math.prod(size for _, size in along[value]), math.prod(program.type_of(value).shape)
        shares[value] = min(1.0, numbers / elements) if elements else 0.0
        readers = program.use_op[users[pointer[value] : pointer[value + 1]]]
        for reader in readers[follows[readers]].tolist():
            heappush(waiting, reader)
    return shares


def _counts(spec: OpSpec) -> int | None:
    """The dim along which an op counts; None for any other op."""
    traits = traits_of(spec)
    return traits.counts(spec) if isinstance(traits, Elementwise) and traits.counts is not None else None
