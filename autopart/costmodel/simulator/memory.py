"""Peak memory of one device: live ranges with donation, reuse in place, and what loops carry.

    peak = arguments + outputs not donated + most that buffers in between take at any slot

A buffer takes no memory of its own where it is written into another one's: an output into the donated argument it
updates, a loop's next value into the loop's, an elementwise result into an operand that dies there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.kernel_graph import (
    DEF_MOVE,
    KERNEL,
    MULTIPLIED,
    OVERWRITTEN,
    STREAMED,
)
from autopart.costmodel.simulator.op_classes import ELEMENTWISE, FREE, UPDATE


@njit(cache=True)
def plain_sizes(p, here, graph, structure, narrow):
    """float64[buffers]: bytes of every buffer that is written at all; 0 for arguments, which are counted apart.

    narrow  f32 values that only matmuls read, at default precision, are stored as bf16 (TPU)
    """
    size, multiplied = np.zeros(structure.shape[0]), np.ones(structure.shape[0], np.bool_)
    for op in range(p.ops.shape[0]):
        if p.ops.carry_body[op] >= 0:
            size[p.result_ptr[op]] = here.values.settled_bytes[p.result_ptr[op]]
        elif p.ops.op_class[op] == FREE and not p.ops.is_view[op] and not p.ops.is_argument[op]:
            for value in range(p.result_ptr[op], p.result_ptr[op + 1]):
                size[value] = 0.0 if p.values.is_splat[value] else here.values.settled_bytes[value]
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] != KERNEL:
            size[graph.write_buffer[graph.write_ptr[k]]] = graph.nodes.written[k]
        else:
            op = graph.nodes.subject[k]
            for value in range(p.result_ptr[op], p.result_ptr[op + 1]):
                size[here.values.left_in[value]] = here.values.native_bytes[value]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            multiplied[graph.reads.read_buffer[i]] &= graph.reads.read_how[i] & MULTIPLIED > 0
    if narrow:
        for k in range(graph.nodes.shape[0]):
            if graph.nodes.kind[k] == KERNEL:
                value = p.result_ptr[graph.nodes.subject[k]]
                if (
                    multiplied[value]
                    and structure[value] < 0
                    and here.values.at_def[value] < 0
                    and p.values.element_bytes[value] == 4
                ):
                    size[value] /= 2
    return size


@njit(cache=True)
def live_ranges(p, here, graph, slot, leader, plain, made, last):
    """(end, bytes) per buffer once what lies in another's memory takes none; buffers live from `made` to `end`."""
    end, size = np.maximum(last, made), plain.copy()
    ops = p.ops.shape[0]
    _drop_unwritten(graph, slot, leader, made, last, size, here, p)
    for op in range(ops):
        if p.ops.carry_body[op] >= 0:
            _carry(p, here, last, end, size, op)
    _reuse(p, graph, slot, last, end, size)
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] == DEF_MOVE:
            source = graph.reads.read_buffer[graph.read_ptr[k]]
            if size[source] == graph.nodes.written[k] and last[source] == slot[k]:
                end[source] = slot[k] - 1
    for op in range(ops):
        if p.ops.carry_body[op] >= 0:
            _next_in_place(p, here, last, made, end, size, op)
    return end, size


@njit(cache=True)
def _drop_unwritten(graph, slot, leader, made, last, size, here, p):
    """What only the members of one joined kernel read is never written."""
    buffers = size.shape[0]
    reader, maker = np.full(buffers, -1, np.int64), np.full(buffers, -1, np.int64)
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            reader[buffer] = leader[k] if reader[buffer] in (-1, leader[k]) else -2
        if graph.nodes.kind[k] == KERNEL:
            for value in range(p.result_ptr[graph.nodes.subject[k]], p.result_ptr[graph.nodes.subject[k] + 1]):
                if here.values.at_def[value] < 0:
                    maker[value] = leader[k]
    for b in range(buffers):
        if maker[b] >= 0 and maker[b] == reader[b] and last[b] == slot[maker[b]]:
            size[b] = 0.0


@kernel
def _reuse(p, graph, slot, last, end, size):
    """Results of elementwise ops and updates are written where an operand of the same size dies."""
    for k in range(graph.nodes.shape[0]):
        op = graph.nodes.subject[k]
        if graph.nodes.kind[k] != KERNEL or (p.ops.op_class[op] != ELEMENTWISE and p.ops.op_class[op] != UPDATE):
            continue
        result, is_update = p.result_ptr[op], p.ops.op_class[op] == UPDATE
        if size[result] == 0:
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            wanted = OVERWRITTEN if is_update else STREAMED
            if not graph.reads.read_how[i] & wanted or last[buffer] > slot[k] or end[buffer] < slot[k]:
                continue
            if buffer < p.values.shape[0] and p.ops.carry_body[p.values.value_op[buffer]] >= 0:
                if is_update:
                    size[result] = 0.0
                    break
            elif size[buffer] == size[result]:
                end[buffer] = slot[k] - 1
                break


@kernel
def _carry(p, here, last, end, size, op):
    """A loop's buffer lives through the loop; it takes over what it starts from where that is not read again.

    The loop's result is that buffer: it takes no memory of its own.
    """
    inside = p.result_ptr[op]
    end[inside] = max(4 * p.scopes.scope_end[p.ops.carry_body[op]], last[inside], last[inside + 1])
    init = here.uses.use_buffer[p.operand_ptr[op]]
    if init >= p.values.shape[0] or last[init] > 4 * p.uses.use_position[p.operand_ptr[op]]:
        return
    source = p.values.value_op[init]
    if p.ops.carry_body[source] >= 0:
        size[inside] = 0.0
        end[p.result_ptr[source]] = max(end[p.result_ptr[source]], end[inside])
    elif p.values.is_donated[init]:
        size[inside] = 0.0


@kernel
def _next_in_place(p, here, last, made, end, size, op):
    """A loop's next value is written into the loop's buffer once the current one has been read."""
    inside, body = p.result_ptr[op], p.ops.carry_body[op]
    following = here.uses.use_buffer[p.operand_ptr[op] + 1]
    if following == inside or here.home[following] != body:
        return
    if following < p.values.shape[0] and p.ops.carry_body[p.values.value_op[following]] >= 0:
        following = p.result_ptr[p.values.value_op[following]]
    if last[inside] <= made[following] and end[following] <= 4 * p.scopes.scope_end[body]:
        size[following] = 0.0


@njit(cache=True)
def outputs(p, here, graph, transposed, made, last, end, size):
    """Gives outputs their memory; returns the bytes of those that take over no donated argument's.

    What a `transposed` node updates is copied into the argument's memory at the end only.
    """
    values, total = p.values.shape[0], 0.0
    waits = np.zeros(made.shape[0], np.bool_)
    for k in range(transposed.shape[0]):
        if transposed[k]:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                waits[graph.write_buffer[i]] = True
    for i in range(p.outputs.shape[0]):
        use, argument = p.outputs.output_use[i], p.outputs.output_argument[i]
        buffer = here.uses.use_buffer[use] if use >= 0 else here.values.shows[p.outputs.output_value[i]]
        if buffer < values and p.ops.carry_body[p.values.value_op[buffer]] >= 0:
            buffer = p.result_ptr[p.values.value_op[buffer]]
        given = buffer < values and p.ops.is_argument[p.values.value_op[buffer]]
        if argument < 0:
            total += here.values.settled_bytes[buffer] if buffer < values else here.moves.moved_bytes[buffer - values]
            if not given:
                size[buffer] = 0.0
        elif not given and not waits[buffer]:
            op = p.values.value_op[buffer] if buffer < values else 0
            over = buffer < values and (
                p.ops.op_class[op] == ELEMENTWISE or p.ops.op_class[op] == UPDATE or p.ops.carry_body[op] >= 0
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
