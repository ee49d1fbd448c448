"""What runs where layers that a program leaves out would run too (`whole_program.py`).

Reductions of all layers that are combined run at one place, and so may the updates that wait for them. What is on the
chip after them depends on what all layers touch there, not only those that are simulated.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.costmodel.compiled.fusion.kernel_graph import DEF_MOVE, KERNEL, KernelGraph


class LeftOut(NamedTuple):
    """The layers that a program leaves out, by the one that stands for them.

    layers       how many there are
    one_before   int64[values]: of a value of the typical layer, the corresponding one of the layer before; else -1
    """

    layers: int
    one_before: np.ndarray


NOTHING_LEFT_OUT = LeftOut(0, np.empty(0, np.int64))
"""Of a program with all of its layers."""


@kernel
def times_there(
    left_out: LeftOut,
    program: ProgramArrays,
    graph: KernelGraph,
    def_values: np.ndarray,
    slot: np.ndarray,
    slot_of: np.ndarray,
    times: np.ndarray,
) -> None:
    """Fills in times[k]: how many nodes such as k the whole program runs where node k runs.

    def_values   the values that are redistributed after their ops, as nodes number them
    slot_of      scratch, an entry per value at least: where the node of a value runs; -1 for none
    """
    for k in range(times.shape[0]):
        times[k] = 1.0
    if left_out.layers == 0:
        return
    for kind in (KERNEL, DEF_MOVE):
        for value in range(left_out.one_before.shape[0]):
            slot_of[value] = -1
        for k in range(times.shape[0]):
            if graph.nodes.kind[k] == kind:
                subject = graph.nodes.subject[k]
                slot_of[program.result_ptr[subject] if kind == KERNEL else def_values[subject]] = slot[k]
        for k in range(times.shape[0]):
            if graph.nodes.kind[k] == kind:
                subject = graph.nodes.subject[k]
                before = left_out.one_before[program.result_ptr[subject] if kind == KERNEL else def_values[subject]]
                if before >= 0 and slot_of[before] == slot[k]:
                    times[k] += left_out.layers
