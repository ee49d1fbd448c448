"""Rows that are looked up by number in an array that lies with these numbers along the lanes.

    %r = dynamic_slice %rewards, %t      f32[1,64] of f32[128,64], which takes least memory with 128 along the lanes
    %v = add (reshape %r), %last         f32[64], with 64 along the lanes: a kernel writes %r, none computes it inside

What a loop over time reads of each step so. An array of ten steps lies the other way, and its rows are computed inside
what reads them, as rows that fill the lanes are. Found with libtpu 0.0.51 on v5e: advantages of two programs of
reinforcement learning, and a loss over alignments.
"""

from __future__ import annotations

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Slicing, Traits, View
from autopart.core.program import Program


def short_rows(program: Program, lanes: int) -> np.ndarray:
    """float64[values]: the row is written where a device holds fewer elements of it; 0 for what is no such row."""
    looks_up = np.array([_looks_up(traits_of(spec)) for spec in program.specs], np.bool_)[program.op_spec]
    is_view = np.array([isinstance(traits_of(spec), View) for spec in program.specs], np.bool_)[program.op_spec]
    views = np.flatnonzero(is_view & (np.diff(program.result_ptr) == 1))
    row, array = program.operands[program.operand_ptr[views]], program.result_ptr[views]
    row = row[(program.value_rank[row] > 1) & (program.value_rank[array] == 1) & looks_up[program.value_op[row]]]
    of = program.operands[program.operand_ptr[program.value_op[row]]]
    shape, whole = program.value_shape[row], program.value_shape[of]
    steps = np.where(shape < whole, whole, 1).prod(axis=1)
    found = np.zeros(program.value_count)
    found[row[(steps >= lanes) & ((shape > 1).sum(axis=1) == 1)]] = lanes
    return found


def _looks_up(traits: Traits) -> bool:
    return isinstance(traits, Slicing) and traits.by_index and not traits.indexed
