"""Caches of a loop over tokens: the place that a turn writes is the most major dim, rows of features lie in tiles.

    %c = carry %cache, %u               bf16[8,1024,16,64]     1024 places of 16 heads of 64 features
    %u = dynamic_update_slice %c, %row  one place, all its features
    %s = dot_general %q, %u             f32[8,16,1024]         a sum of the vector unit: one query for each head

Rows of 64 features are padded to 128: in the loop the cache takes twice its bytes, and sums over it twice the time. An
argument is copied into that layout before the loop, and back after it where it is an output, rows of 128 as well. Of %s
the places are the most major dim, too, and what is computed of it lies so. Found with libtpu 0.0.51 on v5e: heads of 64
and 128, [batch, places, heads, features] and [batch, heads, places, features] alike. Outside a loop, and where several
queries share a head's cache, so that the matrix unit reads it, a cache stays as it is and is not padded.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Matmul, Update
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.followed_layouts import follow_layouts
from autopart.costmodel.simulator.facts.op_classes import REDUCE


def _writes_places(spec: OpSpec) -> bool:
    """True for an update of some places with all their features, the last dim."""
    if not isinstance(traits_of(spec), Update) or len(spec.operands) < 2:
        return False
    whole, part = spec.operands[0].shape, spec.operands[1].shape
    return len(whole) == len(part) > 2 and whole[-1] == part[-1] and whole != part


def _places(spec: OpSpec) -> int:
    """A bit for each dim of a product's result that is not of the batch."""
    traits = traits_of(spec)
    batch = traits.sides(spec).batch if isinstance(traits, Matmul) and traits.sides is not None else ()
    return sum(1 << d for d in range(len(spec.results[0].shape)) if d not in batch)


def caches(program: Program, op_class: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bool[values]: caches, and what is computed of them element by element; int32[values]: a bit for each dim outside
    the layout tiles, of the products of one row with them. `op_class` is that of each op.
    """
    none = np.zeros(program.value_count, np.bool_), np.zeros(program.value_count, np.int32)
    specs = np.array([isinstance(traits_of(spec), Matmul) for spec in program.specs], np.bool_)
    sums = np.flatnonzero(specs[program.op_spec] & (op_class == REDUCE)).tolist()
    if not sums:
        return none
    carried, followed = _carried(program), np.zeros(program.value_count, np.int32)
    followed[carried > 0] = carried[carried > 0]
    follow_layouts(program, op_class, followed)
    read = [max(followed[program.operands[_uses(program, op)]], default=0) for op in sums]
    is_cache = np.isin(followed, [mark for mark in read if mark > 0])
    outer = none[1]
    for op, mark in zip(sums, read, strict=True):
        if mark > 0:
            outer[program.result_ptr[op]] = _places(program.spec(op))
    return is_cache, outer


def _uses(program: Program, op: int) -> slice:
    return slice(program.operand_ptr[op], program.operand_ptr[op + 1])


def _carried(program: Program) -> np.ndarray:
    """int32[values]: equal, and not 0, for what a loop carries as it is before and after updates of some places."""
    mark = np.zeros(program.value_count, np.int32)
    carries = [op for op in program.owners if program.spec(op).kind == "carry"]
    mark[program.result_ptr[carries]] = np.arange(1, len(carries) + 1)
    writes = np.array([_writes_places(spec) for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(writes):
        mark[program.result_ptr[op]] = mark[program.operands[program.operand_ptr[op]]]
    updated = program.operands[program.operand_ptr[carries] + 1]
    kept = (mark[updated] == np.arange(1, len(carries) + 1)) & (updated != program.result_ptr[carries])
    return np.where(np.append(False, kept)[mark], mark, 0)
