"""Peak memory of one device: live ranges with donation, reuse in place, and what loops carry.

    peak = arguments + outputs not donated + most that buffers in between take at any slot

A buffer takes no memory of its own where it is written into another one's: an output into the donated argument it
updates, a loop's next value into the loop's, an elementwise result into an operand that dies there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from autopart.costmodel.kernel_graph import (
    DEF_MOVE,
    KERNEL,
    MULTIPLIED,
    OVERWRITTEN,
    STREAMED,
)
from autopart.costmodel.op_classes import ELEMENTWISE, FREE, UPDATE


@njit(cache=True)
def plain_sizes(p, here, graph, structure, narrow):
    """float64[buffers]: bytes of every buffer that is written at all; 0 for arguments, which are counted apart.

    narrow  f32 values that only matmuls read, at default precision, are stored as bf16 (TPU)
    """
    size, multiplied = np.zeros(structure.shape[0]), np.ones(structure.shape[0], np.bool_)
    for op in range(p.op_class.shape[0]):
        if p.carry_body[op] >= 0:
            size[p.result_ptr[op]] = here.settled_bytes[p.result_ptr[op]]
        elif p.op_class[op] == FREE and not p.is_view[op] and not p.is_argument[op]:
            for value in range(p.result_ptr[op], p.result_ptr[op + 1]):
                size[value] = 0.0 if p.is_splat[value] else here.settled_bytes[value]
    for k in range(graph.kind.shape[0]):
        if graph.kind[k] != KERNEL:
            size[graph.write_buffer[graph.write_ptr[k]]] = graph.written[k]
        else:
            op = graph.subject[k]
            for value in range(p.result_ptr[op], p.result_ptr[op + 1]):
                size[here.left_in[value]] = here.native_bytes[value]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            multiplied[graph.read_buffer[i]] &= graph.read_how[i] & MULTIPLIED > 0
    if narrow:
        for k in range(graph.kind.shape[0]):
            if graph.kind[k] == KERNEL:
                value = p.result_ptr[graph.subject[k]]
                if (
                    multiplied[value]
                    and structure[value] < 0
                    and here.at_def[value] < 0
                    and p.element_bytes[value] == 4
                ):
                    size[value] /= 2
    return size


@njit(cache=True)
def live_ranges(p, here, graph, slot, leader, plain, made, last):
    """(end, bytes) per buffer once what lies in another's memory takes none; buffers live from `made` to `end`."""
    end, size = np.maximum(last, made), plain.copy()
    ops = p.op_class.shape[0]
    _drop_unwritten(graph, slot, leader, made, last, size, here, p)
    for op in range(ops):
        if p.carry_body[op] >= 0:
            _carry(p, here, last, end, size, op)
    _reuse(p, graph, slot, last, end, size)
    for k in range(graph.kind.shape[0]):
        if graph.kind[k] == DEF_MOVE:
            source = graph.read_buffer[graph.read_ptr[k]]
            if size[source] == graph.written[k] and last[source] == slot[k]:
                end[source] = slot[k] - 1
    for op in range(ops):
        if p.carry_body[op] >= 0:
            _next_in_place(p, here, last, made, end, size, op)
    return end, size


@njit(cache=True)
def _drop_unwritten(graph, slot, leader, made, last, size, here, p):
    """What only the members of one joined kernel read is never written."""
    buffers = size.shape[0]
    reader, maker = np.full(buffers, -1, np.int64), np.full(buffers, -1, np.int64)
    for k in range(graph.kind.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.read_buffer[i]
            reader[buffer] = leader[k] if reader[buffer] in (-1, leader[k]) else -2
        if graph.kind[k] == KERNEL:
            for value in range(p.result_ptr[graph.subject[k]], p.result_ptr[graph.subject[k] + 1]):
                if here.at_def[value] < 0:
                    maker[value] = leader[k]
    for b in range(buffers):
        if maker[b] >= 0 and maker[b] == reader[b] and last[b] == slot[maker[b]]:
            size[b] = 0.0


@njit(cache=True)
def _reuse(p, graph, slot, last, end, size):
    """Results of elementwise ops and updates are written where an operand of the same size dies."""
    for k in range(graph.kind.shape[0]):
        op = graph.subject[k]
        if graph.kind[k] != KERNEL or (p.op_class[op] != ELEMENTWISE and p.op_class[op] != UPDATE):
            continue
        result, is_update = p.result_ptr[op], p.op_class[op] == UPDATE
        if size[result] == 0:
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.read_buffer[i]
            wanted = OVERWRITTEN if is_update else STREAMED
            if not graph.read_how[i] & wanted or last[buffer] > slot[k] or end[buffer] < slot[k]:
                continue
            if buffer < p.value_op.shape[0] and p.carry_body[p.value_op[buffer]] >= 0:
                if is_update:
                    size[result] = 0.0
                    break
            elif size[buffer] == size[result]:
                end[buffer] = slot[k] - 1
                break


@njit(cache=True)
def _carry(p, here, last, end, size, op):
    """A loop's buffer lives through the loop; it takes over what it starts from where that is not read again.

    The loop's result is that buffer: it takes no memory of its own.
    """
    inside = p.result_ptr[op]
    end[inside] = max(4 * p.scope_end[p.carry_body[op]], last[inside], last[inside + 1])
    init = here.use_buffer[p.operand_ptr[op]]
    if init >= p.value_op.shape[0] or last[init] > 4 * p.use_position[p.operand_ptr[op]]:
        return
    source = p.value_op[init]
    if p.carry_body[source] >= 0:
        size[inside] = 0.0
        end[p.result_ptr[source]] = max(end[p.result_ptr[source]], end[inside])
    elif p.is_argument[source] and _is_donated(p, init):
        size[inside] = 0.0


@njit(cache=True)
def _is_donated(p, argument):
    return (p.output_argument == argument).any()


@njit(cache=True)
def _next_in_place(p, here, last, made, end, size, op):
    """A loop's next value is written into the loop's buffer once the current one has been read."""
    inside, body = p.result_ptr[op], p.carry_body[op]
    following = here.use_buffer[p.operand_ptr[op] + 1]
    if following == inside or here.home[following] != body:
        return
    if following < p.value_op.shape[0] and p.carry_body[p.value_op[following]] >= 0:
        following = p.result_ptr[p.value_op[following]]
    if last[inside] <= made[following] and end[following] <= 4 * p.scope_end[body]:
        size[following] = 0.0


@njit(cache=True)
def outputs(p, here, graph, turned, made, last, end, size):
    """Gives outputs their memory; returns the bytes of those that take over no donated argument's.

    What a `turned` node updates is copied into the argument's memory at the end only.
    """
    values, total = p.value_op.shape[0], 0.0
    waits = np.zeros(made.shape[0], np.bool_)
    for k in range(turned.shape[0]):
        if turned[k]:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                waits[graph.write_buffer[i]] = True
    for i in range(p.output_value.shape[0]):
        use, argument = p.output_use[i], p.output_argument[i]
        buffer = here.use_buffer[use] if use >= 0 else here.shows[p.output_value[i]]
        if buffer < values and p.carry_body[p.value_op[buffer]] >= 0:
            buffer = p.result_ptr[p.value_op[buffer]]
        given = buffer < values and p.is_argument[p.value_op[buffer]]
        if argument < 0:
            total += here.settled_bytes[buffer] if buffer < values else here.moved_bytes[buffer - values]
            if not given:
                size[buffer] = 0.0
        elif not given and not waits[buffer]:
            op = p.value_op[buffer] if buffer < values else 0
            over = buffer < values and (
                p.op_class[op] == ELEMENTWISE or p.op_class[op] == UPDATE or p.carry_body[op] >= 0
            )
            if last[argument] < made[buffer] or (over and last[argument] == made[buffer]):
                size[buffer] = 0.0
            else:
                end[buffer] = min(end[buffer], max(made[buffer], last[argument]))
    return total


@njit(cache=True)
def live_bytes(made, end, size, slots, extra_slot, extra_bytes):
    """float64[slots]: bytes that live at each slot; `extra` are bytes needed at one slot only."""
    change = np.zeros(slots + 2)
    for i in range(size.shape[0]):
        if size[i] > 0 and end[i] >= made[i]:
            change[made[i]] += size[i]
            change[end[i] + 1] -= size[i]
    for i in range(extra_slot.shape[0]):
        change[extra_slot[i]] += extra_bytes[i]
        change[extra_slot[i] + 1] -= extra_bytes[i]
    return np.cumsum(change)[:slots]
