"""Slots: the simulator's clock, four ticks an op.

    before(o)    redistributions for op o
    slot_of(o)   op o itself
    after(o)     redistributions of its results
    early(o)     what runs early, because op o made it possible

Node k runs at `slot[k]`; a buffer lives from the slot it is made at to the slot it is last read at.
"""

from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel

SLOTS_PER_OP = 4

STRETCH_BITS = 5
"""Nodes are sorted by stretches of 32 slots first: eight ops, or about a kernel."""

NEVER = 2**31 - 1
"""Behind the last slot of any program."""

UNKNOWN = 1 << 30
"""Of how many kernels run one after the other before a buffer is there: nobody knows. More than any program has."""


@kernel
def before(op: int) -> int:
    """Where redistributions for op `op` run; before(op count) is the end of the program."""
    return SLOTS_PER_OP * op


@kernel
def slot_of(op: int) -> int:
    """Where op `op` runs."""
    return SLOTS_PER_OP * op + 1


@kernel
def after(op: int) -> int:
    """Where redistributions of the results of op `op` run."""
    return SLOTS_PER_OP * op + 2


@kernel
def early(slot: int) -> int:
    """The last slot of the op that `slot` belongs to: where a node runs early that was ready at `slot`."""
    return slot // SLOTS_PER_OP * SLOTS_PER_OP + 3


@kernel
def op_of(slot: int) -> int:
    """The op that a slot belongs to."""
    return slot // SLOTS_PER_OP


def stretch_count(ops: int) -> int:
    """Entries of the scratch of `order_by_slot` for a program of `ops` ops."""
    return (slot_count(ops) >> STRETCH_BITS) + 2


def slot_count(ops: int) -> int:
    """Slots of a program of `ops` ops, with those after its last op."""
    return SLOTS_PER_OP * ops + SLOTS_PER_OP


@kernel
def order_by_slot(slot: np.ndarray, nodes: int, count: np.ndarray, order: np.ndarray) -> None:
    """Fills in `order` with nodes by the slots at which they run, then by number.

    `count` is scratch of `stretch_count` entries: nodes are put into stretches of slots first, within which few have to
    change places.
    """
    for i in range(count.shape[0]):
        count[i] = 0
    for k in range(nodes):
        count[(slot[k] >> STRETCH_BITS) + 1] += 1
    begun = 0
    for i in range(count.shape[0]):
        begun += count[i]
        count[i] = begun
    for k in range(nodes):
        order[count[slot[k] >> STRETCH_BITS]] = k
        count[slot[k] >> STRETCH_BITS] += 1
    for i in range(1, nodes):
        k, place = order[i], i
        while place > 0 and slot[order[place - 1]] > slot[k]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k
