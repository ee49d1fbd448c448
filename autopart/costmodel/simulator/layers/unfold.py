"""Writes down the nodes of the typical layer once for each layer that it stands for (`all_layers.py`).

number    the ops of the whole program that are not dropped, and what belongs to them, are numbered and counted
unfold    each has the values, nodes and reads of the op that it is like
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.kernels.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE
from autopart.costmodel.simulator.kernels.local_graph import DeviceGraph
from autopart.costmodel.simulator.layers.alike_nodes import DROPPED, HELD, Seen
from autopart.costmodel.simulator.layers.stack import NOWHERE, Stack, corresponding
from autopart.costmodel.simulator.room import Empty
from autopart.costmodel.simulator.slots import SLOTS_PER_OP, before, op_of


class Numbers(NamedTuple):
    """The ops of the whole program that are not dropped, numbered anew.

    number[op]   of an op of the whole program, -1 where it is dropped
    whole[n]     the op that has the number
    value[n], move[n], left[n], last[n]   the first value of an op, the first redistribution that stands before it, the
                 first after it, the first of its values at the end of the program
    counts       ops, values, redistributions before uses and after ops, nodes, reads, writes, ops of structure
    """

    number: np.ndarray
    whole: np.ndarray
    value: np.ndarray
    move: np.ndarray
    left: np.ndarray
    last: np.ndarray
    counts: np.ndarray

    @staticmethod
    def empty(ops: int, empty: Empty) -> Numbers:
        """Room for so many ops."""
        every = empty((6, ops + 2), np.int32)
        return Numbers(every[0], every[1], every[2], every[3], every[4], every[5], np.zeros(8, np.int64))


@kernel
def number(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers) -> None:
    """Fills in `numbers`."""
    graph, result_ptr, end = old.graph, old.program.result_ptr, old.program.ops.shape[0]
    count = values = moves = lefts = lasts = nodes = reads = writes = structure = 0
    for op in range(stack.like.shape[0]):
        like = stack.like[op]
        numbers.number[op] = NOWHERE
        if seen.keep[like] == DROPPED:
            continue
        numbers.number[op], numbers.whole[count], numbers.value[count] = count, op, values
        numbers.move[count], numbers.left[count], numbers.last[count] = moves, lefts, lasts
        count += 1
        if like == end:
            continue
        first, last = seen.first_node[like], seen.first_node[like + 1]
        nodes += last - first
        reads += graph.read_ptr[last] - graph.read_ptr[first]
        writes += graph.write_ptr[last] - graph.write_ptr[first]
        for k in range(first, last):
            moves += graph.nodes.kind[k] == USE_MOVE
            lefts += graph.nodes.kind[k] == DEF_MOVE
        lasts += seen.lasts[like]
        values += result_ptr[like + 1] - result_ptr[like]
        structure += seen.keep[like] == HELD
    for n in range(count):
        numbers.last[n] += moves
    counts = numbers.counts
    counts[0], counts[1], counts[2], counts[3] = count - 1, values, moves + lasts, lefts
    counts[4], counts[5], counts[6], counts[7] = nodes + lasts, reads + lasts, writes + lasts, structure


@kernel
def unfold(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers, new: DeviceGraph) -> bool:
    """Fills in `new`; False where something is at no corresponding place."""
    node, structure, ends = 0, 0, new.program.ops.shape[0]
    new.graph.read_ptr[0] = new.graph.write_ptr[0] = 0
    for buffer in range(new.held.home.shape[0]):
        new.held.home[buffer] = 0
    for n in range(ends):
        like = stack.like[numbers.whole[n]]
        _op(old, like, n, numbers, new)
        if seen.keep[like] == HELD:
            new.program.structure[structure] = n
            structure += 1
        for k in range(seen.first_node[like], seen.first_node[like + 1]):
            if not _node(stack, old, seen, numbers, new, k, n, node):
                return False
            node += 1
    new.program.result_ptr[ends] = new.program.values.shape[0]
    for n in range(ends):
        like = stack.like[numbers.whole[n]]
        for k in range(seen.first_last[like], seen.first_last[like] + seen.lasts[like]):
            if not _node(stack, old, seen, numbers, new, k, n, node):
                return False
            node += 1
    return _outputs(stack, old, seen, numbers, new)


@kernel
def _op(old: DeviceGraph, like: int, n: int, numbers: Numbers, new: DeviceGraph) -> None:
    """Fills in op `n` and its values."""
    new.program.ops[n], new.held.ops[n] = old.program.ops[like], old.held.ops[like]
    new.program.result_ptr[n] = value = numbers.value[n]
    for source in range(old.program.result_ptr[like], old.program.result_ptr[like + 1]):
        new.program.values[value], new.held.values[value] = old.program.values[source], old.held.values[source]
        new.program.values.value_op[value] = n
        new.held.values.shows[value] = new.held.values.left_in[value] = value
        value += 1


@kernel
def _node(
    stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers, new: DeviceGraph, k: int, n: int, node: int
) -> bool:
    """Fills in node `node`, which belongs to op `n` as node `k` does to the op that it is like, and what it reads."""
    kind, subject, op, like = old.graph.nodes.kind[k], old.graph.nodes.subject[k], numbers.whole[n], seen.op_of_node[k]
    slot = old.graph.nodes.slot[k]
    at = n if op_of(slot) == like else new.program.ops.shape[0]
    new.graph.nodes[node], new.plan_rows[node] = old.graph.nodes[k], old.plan_rows[k]
    new.graph.nodes.slot[node] = before(at) + slot % SLOTS_PER_OP
    if kind == KERNEL:
        new.graph.nodes.subject[node] = n
    elif kind == USE_MOVE:
        r = _move(seen, numbers, old, k, n)
        value = _buffer(stack, old, seen, numbers, new, old.held.moves.moved_value[subject], like, op)
        if value < 0:
            return False
        new.held.moves[r], new.narrow[r] = old.held.moves[subject], old.narrow[subject]
        new.held.moves.moved_value[r], new.held.moves.moved_position[r] = value, at
        new.graph.nodes.subject[node] = r
    else:
        d = numbers.left[n] + seen.rank[k]
        value = numbers.value[n] + old.def_values[subject] - old.program.result_ptr[like]
        new.def_values[d], new.held.values.at_def[value] = value, d
        new.held.values.left_in[value] = new.program.values.shape[0] + new.held.moves.shape[0] + d
        new.graph.nodes.subject[node] = d
    return _reads(stack, old, seen, numbers, new, k, op, node)


@kernel
def _reads(
    stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers, new: DeviceGraph, k: int, op: int, node: int
) -> bool:
    """Fills in what node `node` reads and writes, which belongs to `op` of the whole program."""
    reads, read, written = new.graph.reads, new.graph.read_ptr[node], new.graph.write_ptr[node]
    like = seen.op_of_node[k]
    for i in range(old.graph.read_ptr[k], old.graph.read_ptr[k + 1]):
        buffer = _buffer(stack, old, seen, numbers, new, old.graph.reads.read_buffer[i], like, op)
        if buffer < 0:
            return False
        reads[read] = old.graph.reads[i]
        reads.read_buffer[read] = buffer
        read += 1
    for i in range(old.graph.write_ptr[k], old.graph.write_ptr[k + 1]):
        buffer = _buffer(stack, old, seen, numbers, new, old.graph.write_buffer[i], like, op)
        if buffer < 0:
            return False
        new.graph.write_buffer[written] = buffer
        written += 1
    new.graph.read_ptr[node + 1], new.graph.write_ptr[node + 1] = read, written
    return True


@kernel
def _move(seen: Seen, numbers: Numbers, old: DeviceGraph, k: int, n: int) -> int:
    """The redistribution that belongs to op `n` as that of node `k` does to the op that it is like."""
    stands_there = op_of(old.graph.nodes.slot[k]) == seen.op_of_node[k]
    return seen.rank[k] + (numbers.move[n] if stands_there else numbers.last[n])


@kernel
def _buffer(
    stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers, new: DeviceGraph, buffer: int, like: int, op: int
) -> int:
    """The buffer that is to `op` of the whole program what `buffer` is to the op that it is like, or `NOWHERE`."""
    program = old.program
    values, moves = program.values.shape[0], old.held.moves.shape[0]
    if buffer < values:
        there = program.values.value_op[buffer]
        n = _place(stack, numbers, there, like, op)
        return n if n < 0 else numbers.value[n] + buffer - program.result_ptr[there]
    if buffer < values + moves:
        k = seen.node_of_move[buffer - values]
        if k < 0:
            return NOWHERE
        there = seen.op_of_node[k]
        if seen.is_shared[buffer - values]:
            n = numbers.number[stack.kept_as[there]]
        else:
            n = _place(stack, numbers, there, like, op)
        return n if n < 0 else new.program.values.shape[0] + _move(seen, numbers, old, k, n)
    k = seen.node_of_def[buffer - values - moves]
    n = _place(stack, numbers, seen.op_of_node[k], like, op)
    return n if n < 0 else new.program.values.shape[0] + new.held.moves.shape[0] + numbers.left[n] + seen.rank[k]


@kernel
def _place(stack: Stack, numbers: Numbers, there: int, like: int, op: int) -> int:
    """The number of the op that is to `op` what `there` is to the op that it is like, or `NOWHERE`.

    As operands correspond (`reads_correspond`), so does all that kernels read.
    """
    found = corresponding(stack, there, like, op)
    return numbers.number[found] if found >= 0 else NOWHERE


@kernel
def _outputs(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers, new: DeviceGraph) -> bool:
    """Fills in the outputs: each reads its buffer by a use of its own."""
    program = old.program
    for i in range(stack.output_value.shape[0]):
        op, argument = stack.output_at[i], stack.output_argument[i]
        value = stack.output_value[i]
        maker = stack.value_op[value]
        place = value - stack.result_ptr[maker]
        if op >= 0:
            like = stack.like[op]
            buffer = old.held.uses.use_buffer[program.operand_ptr[like]]
        else:
            op, like = maker, stack.like[maker]
            buffer = old.held.values.shows[program.result_ptr[like] + place]
        new.held.uses.use_buffer[i] = _buffer(stack, old, seen, numbers, new, buffer, like, op)
        new.held.uses.use_elements[i], new.held.uses.of_use[i] = 0.0, NOWHERE
        made = numbers.number[maker]
        if new.held.uses.use_buffer[i] < 0 or made < 0:
            return False
        new.program.outputs.output_use[i], new.program.outputs.output_value[i] = i, numbers.value[made] + place
        new.program.outputs.output_argument[i] = NOWHERE
        if argument >= 0:
            new.program.outputs.output_argument[i] = numbers.value[numbers.number[stack.value_op[argument]]]
    return True
