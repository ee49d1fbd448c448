"""Copies between HBM and the chip, beside kernels: of what is read later, and of what was left on the chip.

    %copy-start.3    the buffer goes to HBM after its reader, or comes from there, while other kernels run
    %copy-done.3

Such a copy takes no time of a kernel: the one that reads what came, or wrote what leaves, finds it on the chip. It
needs room there from where it begins, and as many seconds of the kernels beside it as its bytes take at HBM's rate;
each second serves one copy in and one out.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import CARRIED_SHARE
from autopart.costmodel.compiled.fusion.kernel_graph import LOOKED_UP, KernelGraph
from autopart.costmodel.compiled.memory_space_assignment.memory_boundedness import ChipRoom
from autopart.costmodel.compiled.memory_space_assignment.segment_tree import most_taken, take
from autopart.costmodel.hardware.devices import HBM, ON_CHIP

FILLS = 8.0
"""The longest wait on the chip for a reader, in times that it takes to fill the chip from HBM: buffers of 0.25 to 48
MiB stay beside products that take 1,455 us, and beside 1,733 us none (libtpu 0.0.51, v5e)."""


@kernel
def bring(graph: KernelGraph, order: np.ndarray, row: np.ndarray, chip: ChipRoom, i: int, since: int) -> None:
    """Brings what lies in HBM to the chip for its readers, from read i on, where there are room and time to do so.

    It is in HBM from place `since` on.
    """
    limit_s, at = FILLS * row[ON_CHIP] / row[HBM], -1
    while i >= 0:
        to, size = chip.reader[i], graph.reads.read_bytes[i]
        room = CARRIED_SHARE * row[ON_CHIP] - size
        if graph.nodes.scope[order[to]] == 0 and not graph.reads.read_how[i] & LOOKED_UP:
            waits = at >= 0 and (
                to == at
                or (chip.clock_s[to] - chip.clock_s[at + 1] <= limit_s and most_taken(chip.taken, at + 1, to) <= room)
            )
            if waits:
                if to > at:
                    take(chip.taken, at + 1, to, size)
                at = to
            else:
                at = to if _is_brought(chip, since, to, size, room, size / row[HBM], limit_s) else -1
            chip.brought[i] = at == to
        i = chip.following[i]


@kernel
def _is_brought(chip: ChipRoom, since: int, to: int, size: float, room: float, copy_s: float, limit_s: float) -> bool:
    """True if there are time and room for a copy from HBM from place `since` or later to `to`; takes both."""
    begin, left_s = to, copy_s
    while left_s > 0 and begin > since and chip.clock_s[to] - chip.clock_s[begin] <= limit_s:
        begin -= 1
        left_s -= chip.coming_s[begin]
    if left_s > 0 or most_taken(chip.taken, begin, to) > room:
        return False
    take(chip.taken, begin, to, size)
    left_s = copy_s
    for at in range(to - 1, begin - 1, -1):
        spent_s = min(left_s, chip.coming_s[at])
        chip.coming_s[at] -= spent_s
        left_s -= spent_s
    return True


@kernel
def leaves(chip: ChipRoom, kept: int, to: int, copy_s: float) -> bool:
    """True if there is time to copy what is kept until place `kept` to HBM before it is read at place `to`."""
    at, left_s = kept + 1, copy_s
    while left_s > 0 and at < to:
        left_s -= chip.leaving_s[at]
        at += 1
    if left_s > 0:
        return False
    left_s = copy_s
    for place in range(kept + 1, at):
        spent_s = min(left_s, chip.leaving_s[place])
        chip.leaving_s[place] -= spent_s
        left_s -= spent_s
    return True
