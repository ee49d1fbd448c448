"""All layouts of a partitioning, in one kernel: what is pending where, what values and uses are tiled on, what is read.

undecided_ops.py, gathered_slices.py, moved_views.py, divided_tables.py, divided_scatters.py,
exchanged_order.py
    ->  pending.py  ->  layouts.py  ->  which uses need more than is stored, read_stretches.py
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import local_elements
from autopart.spmd.lowering.divided_scatters import divide_scatters
from autopart.spmd.lowering.divided_tables import divide_tables, gather_tables
from autopart.spmd.lowering.exchanged_order import order_exchanged
from autopart.spmd.lowering.gathered_slices import gather_sliced
from autopart.spmd.lowering.layouts import layouts
from autopart.spmd.lowering.moved_views import move_before_views
from autopart.spmd.lowering.read_stretches import read_stretches
from autopart.spmd.lowering.undecided_ops import divide_undecided
from autopart.spmd.sums.pending import pass_reductions
from autopart.spmd.sums.pending_prices import Given, Ways


class Layouts(NamedTuple):
    """What is found out.

    passing[op]                       uint8; see `pending.pass_reductions`
    native, settled, required         uint64 per value, per value, per use; see `layouts.py`
    grows[use]                        the use needs more elements than the value settles in
    stretch[use]                      see `read_stretches.py`
    scratch                           int64[3, axes]
    """

    passing: np.ndarray
    native: np.ndarray
    settled: np.ndarray
    required: np.ndarray
    grows: np.ndarray
    stretch: np.ndarray
    scratch: np.ndarray


def lowered_layouts(given: Given, has_stretches: bool, share_within: int) -> Layouts:
    """The layouts of what is given. Changes loops in `given.nests.state`, as far as the lowering decides about them.

    `has_stretches` as the table of mappings says; `share_within`: uses of what is stored in parts that are at most so
    many ops apart share a gather.
    """
    graph = given.nests.graph
    (ops, axes), uses, values = given.nests.state.mapping.shape, len(graph.operands), len(graph.value_op)
    found = Layouts(
        np.empty(ops, np.uint8), np.empty(values, np.uint64), np.empty(values, np.uint64), np.empty(uses, np.uint64),
        np.empty(uses, np.bool_), np.empty(uses, np.int64), np.empty((3, axes), np.int64),
    )  # fmt: skip
    _lay_out(given, Ways.empty(ops, values, axes), has_stretches, share_within, found)
    return found


@kernel
def _lay_out(given: Given, ways: Ways, has_stretches: bool, share_within: int, found: Layouts) -> None:
    """Fills in `found`; see `lowered_layouts`."""
    nests, shapes = given.nests, given.shapes
    operands, sizes = nests.graph.operands, nests.sizes
    divide_undecided(nests, given.is_output)
    if has_stretches:
        gather_sliced(given)
    move_before_views(given)
    divide_tables(given, share_within)
    gather_tables(given)
    divide_scatters(given)
    order_exchanged(nests, found.passing)
    pass_reductions(given, ways, found.passing)
    layouts(
        nests, shapes, given.is_output, found.passing, ways.code, found.native, found.settled, found.required,
        found.scratch,
    )  # fmt: skip
    for use in range(operands.shape[0]):
        value, found.stretch[use], found.grows[use] = operands[use], 0, False
        if found.settled[value] != found.required[use]:
            kept = local_elements(shapes[value], found.settled[value], sizes)
            found.grows[use] = local_elements(shapes[value], found.required[use], sizes) > kept
    if has_stretches:
        read_stretches(nests, found.passing, found.stretch)
