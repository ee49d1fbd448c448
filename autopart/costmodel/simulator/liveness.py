"""When each node runs and until when each buffer is read.

Nodes run in program order, except what can run early and frees at least the memory it takes: an optimizer's update of a
parameter runs as soon as the gradient is there, and the gradient is gone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from autopart.costmodel.simulator.kernel_graph import KERNEL, until
from autopart.costmodel.simulator.op_classes import ELEMENTWISE, FREE, REDUCE

SMALL_BYTES = 65536.0
"""A result below this is run early whatever it frees: the scalars of an optimizer."""


@njit(cache=True)
def structure_reads(p, here):
    """int64[buffers]: the last slot at which loops, branches, arguments and outputs read each; -1 if none does."""
    ops, last = p.ops.shape[0], np.full(here.home.shape[0], -1, np.int64)
    for i in range(p.outputs.shape[0]):
        use = p.outputs.output_use[i]
        last[here.uses.use_buffer[use] if use >= 0 else here.values.shows[p.outputs.output_value[i]]] = 4 * ops
    for op in range(ops):
        if p.ops.op_class[op] != FREE or p.ops.is_view[op] or p.ops.is_argument[op]:
            continue
        for use in range(p.operand_ptr[op], p.operand_ptr[op + 1]):
            buffer = here.uses.use_buffer[use]
            slot = 4 * p.uses.use_position[use]
            if p.ops.carry_body[op] < 0:
                slot = max(slot, 4 * op + 1)
            if p.uses.use_scope[use] != here.home[buffer]:
                slot = until(p.scopes, here.home[buffer], p.uses.use_scope[use], slot)
            last[buffer] = max(last[buffer], slot)
    return last


@njit(cache=True)
def last_slots(p, here, graph, slot, structure):
    """int64[buffers]: the last slot at which each buffer is read, -1 if never; nodes run at `slot`."""
    last = structure.copy()
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer, at = graph.reads.read_buffer[i], slot[k]
            if graph.nodes.scope[k] != here.home[buffer]:
                at = until(p.scopes, here.home[buffer], graph.nodes.scope[k], at)
            last[buffer] = max(last[buffer], at)
    return last


@njit(cache=True)
def made_at(p, here, graph, slot):
    """int64[buffers]: the slot at which each buffer is written; 0 for arguments, and for what is never written."""
    made = np.zeros(here.home.shape[0], np.int64)
    for op in range(p.ops.shape[0]):
        if p.ops.carry_body[op] >= 0 or (
            p.ops.op_class[op] == FREE and not p.ops.is_view[op] and not p.ops.is_argument[op]
        ):
            for value in range(p.result_ptr[op], p.result_ptr[op + 1]):
                made[value] = 4 * op + 1
            if p.ops.carry_body[op] >= 0:
                made[p.result_ptr[op] + 1] = 4 * p.scopes.scope_end[p.ops.carry_body[op]]
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            made[graph.write_buffer[i]] = slot[k]
    return made


@njit(cache=True)
def run_early(p, here, graph, planned, size, last):
    """int64[nodes]: the slots at which nodes run, where `planned` ones can be earlier.

    `size` are bytes of buffers, 0 for those in another's memory.
    """
    slot, made, values = planned.copy(), made_at(p, here, graph, planned), p.values.shape[0]
    for k in range(graph.nodes.shape[0]):
        op = graph.nodes.subject[k]
        if graph.nodes.kind[k] == KERNEL and (p.ops.op_class[op] == ELEMENTWISE or p.ops.op_class[op] == REDUCE):
            ready, frees, takes, moved_after = 0, 0.0, 0.0, False
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                buffer = graph.reads.read_buffer[i]
                ready = max(ready, made[buffer])
                if last[buffer] == planned[k]:
                    frees += size[buffer]
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                takes += size[graph.write_buffer[i]]
                moved_after = moved_after or graph.write_buffer[i] >= values
            early = 4 * (ready // 4) + 3
            inside = graph.nodes.scope[k] == 0 or ready >= 4 * p.scopes.scope_start[graph.nodes.scope[k]]
            if inside and not moved_after and early < slot[k] and (frees >= takes or takes < SMALL_BYTES):
                slot[k] = early
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            made[graph.write_buffer[i]] = slot[k]
    return slot
