"""Sums of an array and of updates to zeros: the array itself is updated.

    %g = dot %x %d                  f32[16000,2048]: a gradient of logits, for the embedding
    %s = scatter 0.0, %i, %dy       another, for the rows that were looked up
    %t = add %g, %s                 the compiler scatters %dy into %g: no zeros, no %s, and nothing else to add

libtpu 0.0.51 does so on v3 and v5e. So the scatter is computed inside the sum, which counts as the update. Where %s is
moved before it is added, it is an array as any other. Two scatters of zeros are emitted so (`summed_scatters.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.core.splats import splat_behind
from autopart.spmd.for_xla.summed_scatters import adds_by_index, summed_scatters


class AddedUpdates(NamedTuple):
    """What is found in a program.

    scatters   bool[ops]: updates of zeros that only a sum reads
    added      int32[ops]: of such a sum, the use of what is scattered; -1 for other ops
    changes    int32[ops]: of an update, and of such a sum, the use of the array that is changed in place; else -1
    """

    scatters: np.ndarray
    added: np.ndarray
    changes: np.ndarray


def added_updates(
    program: Program, is_update: np.ndarray, merged: bool, gradients: Collection[int] = ()
) -> AddedUpdates:
    """Those of a program; `is_update[op]`: it changes its first operand. No sums count as updates unless `merged`, and
    none of `gradients`, which are copied before (`row_layouts.py`)."""
    scatters, (added, changes) = np.zeros(program.op_count, np.bool_), np.full((2, program.op_count), -1, np.int32)
    changes[is_update] = program.operand_ptr[:-1][is_update]
    adding = np.array([merged and adds_by_index(spec) for spec in program.specs], np.bool_)[program.op_spec]
    sums = [isinstance(traits, Elementwise) and traits.sums for traits in map(traits_of, program.specs)]
    (pointer, users), summed = program.users, summed_scatters(program)
    for op in np.flatnonzero(is_update & adding).tolist():
        result = program.results_of(op)[0]
        if result in gradients or pointer[result + 1] - pointer[result] != 1:
            continue
        if splat_behind(program, program.operands_of(op)[0]) != 0:
            continue
        use = int(users[pointer[result]])
        total, scope = int(program.use_op[use]), program.op_scope[op]
        if not sums[program.op_spec[total]] or added[total] >= 0 or program.op_scope[total] != scope:
            continue
        other = 2 * int(program.operand_ptr[total]) + 1 - use
        if adding[program.value_op[program.operands[other]]] and total not in summed:
            continue
        scatters[op], added[total], changes[total] = True, use, other
    return AddedUpdates(scatters, added, changes)
