"""Arrays whose rows lie side by side in memory, since they are added to by row.

    %g = scatter %zeros, %rows, %updates     f32[100000,16]     lies as rows of 16, in layout tiles of 128: 51 MB
    %p' = %p - 0.1 * %g                      in %g's layout: %p, 6.4 MB, is copied into it, and %p' is copied back
    %m' = 0.9 * %m + 0.1 * %g                in the layout of %m, which is scaled as it lies: %g alone lies in rows

Where rows are as long as a layout tile it makes no difference. Of shorter ones any other array would lie the other way
round and be padded little. Found with libtpu 0.0.51 on v5e: one update of such a table by Adagrad took 690 us and 115
MB, where its bytes alone would take 53 us and 31 MB. Beside a moment that is scaled before the gradient is added it
depends on how much is computed, and on how much the rows are padded: with Adam's moments, the same table takes 84 us
and 20 MB; a mean of gradients is kept so where a row has 16 elements, and in rows from 24 on. A gradient that is added
to a moment as it is, for a momentum, is added in rows. Of 45 updates of 12 kinds, with 8 to 96 elements in a row,
Lion's and LAMB's with 24 to 48 alone are taken for what they are not.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Update
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.added_updates import AddedUpdates
from autopart.costmodel.simulator.facts.followed_layouts import follow_layouts
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE

WORTH_A_COPY = 100.0
"""What is added to by row is copied, for n arrays that are computed of it, where n^2 times what rows take more is no
less than so many times their bytes: 4, 8 and 13 of a mean, RMSProp and Adam, from 16, 48 and 64 in a row down."""

WIDER = 1.25
"""From so many times its bytes on, an array that lies in rows is copied for it."""


def _adds_rows(spec: OpSpec) -> bool:
    """True for an update by index whose windows are whole rows: where a window is longer along another dim, the rows
    lie across the lanes."""
    traits = traits_of(spec)
    if not isinstance(traits, Update) or not traits.by_index:
        return False
    given, shape = spec.operands[-1].shape, spec.results[0].shape
    if min(len(given), len(shape)) < 2 or given[-1] != shape[-1]:
        return False
    windows = spec.attributes["scatter_dimension_numbers"]["update_window_dims"]
    return all(given[d] <= given[-1] for d in windows)


def in_rows(program: Program, op_class: np.ndarray, updates: AddedUpdates) -> tuple[np.ndarray, np.ndarray]:
    """bool[values]: what may lie in rows; int32[values]: 0 where it does, else of how many arrays the layout is to be
    decided on a device (`local_arrays.lies_in_rows`). `op_class` is that of each op."""
    adds = np.array([_adds_rows(spec) for spec in program.specs], np.bool_)[program.op_spec]
    sums = np.flatnonzero(updates.added >= 0)
    adds[sums] = adds[program.value_op[program.operands[updates.added[sums]]]]
    adds &= ~updates.scatters
    made, found = program.result_ptr[:-1][adds], np.zeros(program.value_count, np.int32)
    found[made] = np.arange(1, len(made) + 1)
    follow_layouts(program, op_class, found)
    alone = np.isin(found, _beside_scaled(program, op_class, found, made))
    computed = np.bincount(found)[found] - 1
    return found > 0, np.where(alone, computed, 0).astype(np.int32)


def _beside_scaled(program: Program, op_class: np.ndarray, found: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Marks of which something is put together with what is computed of another array of its shape."""
    operands, use_op, types = program.operands, program.use_op, program.value_type_id
    result = _results(program)[use_op]
    mark = np.where(op_class[use_op] == ELEMENTWISE, found[result], 0)
    follows = (mark > 0) & (found[operands] == mark) & ~np.isin(operands, made)
    scaled = (op_class[program.value_op] == ELEMENTWISE) & _of_arrays(program)
    beside = (mark > 0) & (found[operands] == 0) & (types[operands] == types[result]) & scaled[operands]
    return np.intersect1d(mark[follows & np.isin(use_op, use_op[beside])], mark[beside])


def _of_arrays(program: Program) -> np.ndarray:
    """bool[values]: an op made it that reads an array of its shape."""
    types, found = program.value_type_id, np.zeros(program.value_count, np.bool_)
    result = _results(program)[program.use_op]
    found[result[types[program.operands] == types[result]]] = True
    return found


def _results(program: Program) -> np.ndarray:
    """The first result of each op; any value for an op without."""
    return program.result_ptr[:-1].clip(max=program.value_count - 1)
