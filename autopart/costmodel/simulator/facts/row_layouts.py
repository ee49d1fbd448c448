"""Arrays whose rows lie side by side in memory, since they are added to by row.

    %g = scatter %zeros, %rows, %updates     f32[100000,16]     lies as rows of 16, in layout tiles of 128: 51 MB
    %h = multiply %g, 0.1                    in %g's layout; what else it is computed of is copied into that, and back

Where rows are as long as a layout tile it makes no difference. Of shorter ones any other array would lie the other way
round and be padded little. What updates a table is copied into the order of the table where it is summed up, with all
that is computed of it (`spmd/update_orders.py`):

    %t' = subtract %t, %h                    %t as it is stored, 6.4 MB
    %x = gather %t, %rows                    of a copy of %t in rows, one for all look-ups
"""

from __future__ import annotations

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.simulator.facts.added_updates import AddedUpdates
from autopart.costmodel.simulator.facts.followed_layouts import follow_layouts
from autopart.spmd.table_gradients import adds_rows

GRADIENT, COMPUTED = 1, 2
"""Marks of what is copied into the order of a table, and of what is computed of it."""

WIDER = 1.25
"""From so many times its bytes on, an array that lies in rows is copied for it."""


def in_rows(
    program: Program, op_class: np.ndarray, updates: AddedUpdates, gradients: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """bool[values]: what may lie in rows; int8[values]: `GRADIENT` and `COMPUTED` for what updates tables, else 0.

    `op_class` is that of each op; `gradients` are the values that are left in the order of tables.
    """
    adds = np.array([adds_rows(spec) for spec in program.specs], np.bool_)[program.op_spec]
    sums = np.flatnonzero(updates.added >= 0)
    adds[sums] = adds[program.value_op[program.operands[updates.added[sums]]]]
    adds &= ~updates.scatters
    made, found = program.result_ptr[:-1][adds], np.zeros(program.value_count, np.int32)
    found[made] = 1
    follow_layouts(program, op_class, found)
    ordered = np.zeros(program.value_count, np.int32)
    ordered[gradients] = COMPUTED
    follow_layouts(program, op_class, ordered)
    ordered[gradients] = GRADIENT
    return (found > 0) | (ordered > 0), ordered.astype(np.int8)
