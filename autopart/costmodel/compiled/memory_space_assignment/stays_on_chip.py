"""What waits on the chip for a late reader: what is worth most there, as long as there is room.

    %a = dot ...          16.8 MB on the chip
    %b = add %a ...       it is still there, and was never in HBM
    ...                   2 ms, in which four times what the chip holds is touched
    %c = dot %a ...       it went to HBM after %b, and came back before %c, both beside other kernels

Where the compiler says what lies on the chip, a buffer stays from its kernel to as late a reader as can be: to each
next one if three quarters of the chip have room all the while, and if the wait is no longer than `FILLS` times what it
takes to fill it. They are asked for in the order of what they are worth (`memory_boundedness.py`). What has to leave
before its last reader is copied (`prefetch.py`), and takes HBM from there on; what cannot be copied is in HBM from the
start. Arguments come in by the same copies, in the same order, and take room that others then do not have.

Found with libtpu 0.0.51 on v5e. The clock is that of our kernels with all in HBM; the compiler's own runs ahead of it
where kernels are far from what it thinks they take.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import CARRIED_SHARE, LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.fusion.kernel_graph import KernelGraph
from autopart.costmodel.compiled.memory_space_assignment.max_heap import put_in_order, take_first
from autopart.costmodel.compiled.memory_space_assignment.memory_boundedness import (
    ChipRoom,
    assumed_turns,
    list_by_worth,
)
from autopart.costmodel.compiled.memory_space_assignment.prefetch import FILLS, bring, leaves
from autopart.costmodel.compiled.memory_space_assignment.segment_tree import clear, most_taken, take
from autopart.costmodel.hardware.devices import HBM, ON_CHIP

NOT_ASKED = -2
"""`until` of a buffer that is not asked for: arguments, outputs, and what loops and branches hand on."""


@kernel
def waits_on_chip(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    buffers: Buffers,
    row: np.ndarray,
    times: np.ndarray,
    places: np.ndarray,
    chip: ChipRoom,
    cache: Records,
) -> None:
    """Fills in chip.brought, and cache.until[buffer] of what nodes write: the last slot at which it waits on the chip.

    It is -1 for what never does. `places` is scratch, per slot.
    """
    length = list_by_worth(program, local, graph, order, row, times, buffers, chip)
    clear(chip.taken)
    put_in_order(chip.queue, length, chip.worth)
    for at in range(places.shape[0]):
        places[at] = 0.0
    for k in order:
        places[slot[k]] += 1.0
    for at in range(1, places.shape[0]):
        places[at] += places[at - 1]
    while length > 0:
        buffer = take_first(chip.queue, length, chip.worth)
        length -= 1
        if chip.made_at[buffer] >= 0:
            cache.until[buffer] = -1
            _keep(program, local, graph, order, slot, buffers, row, places, chip, cache, buffer)
        else:
            bring(graph, order, row, chip, chip.first[buffer], 0)


@kernel
def _keep(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    buffers: Buffers,
    row: np.ndarray,
    places: np.ndarray,
    chip: ChipRoom,
    cache: Records,
    buffer: int,
) -> None:
    """Keeps what a node writes from there to as late a reader as can be; what is left goes to HBM, and comes back."""
    made, size = chip.made_at[buffer], buffers.bytes[buffer]
    turns, room = assumed_turns(program.scopes, local.home[buffer]), CARRIED_SHARE * row[ON_CHIP] - size
    limit_s = FILLS * row[ON_CHIP] / row[HBM]
    end, kept, until, i = int(places[buffers.end[buffer]]) - 1, -1, -1, chip.first[buffer]
    if most_taken(chip.taken, made, made) > room:
        return
    while i >= 0:
        inside = graph.nodes.scope[order[chip.reader[i]]] == local.home[buffer]
        to, since = min(chip.reader[i], end) if inside else end, max(kept, made)
        if to > since and (
            (chip.clock_s[to] - chip.clock_s[since + 1]) / turns > limit_s
            or most_taken(chip.taken, since + 1, to) > room
        ):
            break
        kept, until, i = max(to, made), slot[order[chip.reader[i]]], chip.following[i]
    if i < 0 and (end <= kept or most_taken(chip.taken, kept + 1, end) <= room):
        take(chip.taken, made, max(end, kept), size)
        cache.until[buffer] = max(buffers.end[buffer], buffers.last[buffer])
    elif i >= 0:
        if kept >= 0 and leaves(chip, kept, chip.reader[i], size / row[HBM]):
            take(chip.taken, made, kept, size)
            cache.until[buffer] = until
        bring(graph, order, row, chip, i, max(kept, made) + 1)
