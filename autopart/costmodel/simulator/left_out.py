"""What runs where layers that a program leaves out would run too (`whole_program.py`).

Reductions of all layers that are combined run at one place, and so may the updates that wait for them. What is on the
chip after them depends on what all layers touch there, not only those that are simulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.simulator.kernel_graph import DEF_MOVE, KERNEL


class LeftOut(NamedTuple):
    """The layers that a program leaves out, by the one that stands for them.

    layers       how many there are
    one_before   int64[values]: of a value of the typical layer, the corresponding one of the layer before; else -1
    """

    layers: int
    one_before: np.ndarray


def times_there(
    left_out: LeftOut | None, program: Program, nodes: np.ndarray, at_def: np.ndarray, slot: np.ndarray
) -> np.ndarray:
    """float64[nodes]: how many such nodes the whole program runs where each runs.

    nodes   those of the kernel graph; at_def: the values that are redistributed after their ops, in its order
    """
    times = np.ones(len(nodes))
    if left_out is not None:
        kind, subject = nodes["kind"], nodes["subject"]
        for of_kind, made in ((KERNEL, program.result_ptr), (DEF_MOVE, at_def)):
            rows = np.flatnonzero(kind == of_kind)
            values = made[subject[rows]]
            slot_of = np.full(program.value_count + 1, -1)
            slot_of[values] = slot[rows]
            times[rows[slot_of[left_out.one_before[values]] == slot[rows]]] += left_out.layers
    return times
