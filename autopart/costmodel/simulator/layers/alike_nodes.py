"""The nodes of a program with fewer layers: to which op each belongs, and whether three layers have the same.

    layer 2    all_gather %w    dot %h %w       the layers before the typical one, that, and after it: as much work,
    layer 3    all_gather %w    dot %h %w       as many bytes, of what corresponds
    layer 8    all_gather %w    dot %h %w

What stands at the end of the program, a redistribution of an output, belongs to the op that makes it.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.kernels.kernel_graph import DEF_MOVE, USE_MOVE
from autopart.costmodel.simulator.kernels.local_graph import DeviceGraph
from autopart.costmodel.simulator.layers.stack import NOWHERE, Stack
from autopart.costmodel.simulator.room import Empty
from autopart.costmodel.simulator.slots import op_of

DROPPED, KEPT, HELD = 0, 1, 2
"""Of an op: it runs nothing and leaves nothing behind; it does; it is one of `ProgramArrays.structure`."""


class Seen(NamedTuple):
    """What is looked up about the ops, nodes and redistributions with fewer layers.

    keep[op]            `DROPPED`, `KEPT` or `HELD`
    first_node[op]      the first node that stands at the op, or behind it
    first_last[op]      the first node at the end of the program that redistributes a value of the op
    lasts[op]           how many there are
    op_of_node[k]       the op that a node stands at; of those at the end the op whose value is redistributed
    rank[k]             how many redistributions such as node k belong to that op and come before it
    node_of_move[r]     the node of a redistribution before a use, -1 where it moves nothing
    node_of_def[d]      the node of one after an op
    layer_of_reader[r]  scratch
    is_shared[r]        several layers read it: it is there once, in whichever layer reads it first
    read_by[chain]      scratch
    """

    keep: np.ndarray
    first_node: np.ndarray
    first_last: np.ndarray
    lasts: np.ndarray
    op_of_node: np.ndarray
    rank: np.ndarray
    node_of_move: np.ndarray
    node_of_def: np.ndarray
    layer_of_reader: np.ndarray
    is_shared: np.ndarray
    read_by: np.ndarray

    @staticmethod
    def empty(old: DeviceGraph, chains: int, empty: Empty) -> Seen:
        """Room for what there is to know of a graph."""
        ops, moves, nodes = len(old.program.ops), len(old.held.moves), len(old.graph.nodes)
        return Seen(
            empty(ops + 1, np.int8), empty(ops + 2, np.int32), empty(ops + 1, np.int32), empty(ops + 1, np.int32),
            empty(nodes, np.int32), empty(nodes, np.int32), empty(moves, np.int32),
            empty(len(old.def_values), np.int32), empty(moves, np.int32), empty(moves, np.bool_),
            empty(chains, np.int32),
        )  # fmt: skip


@kernel
def look(stack: Stack, old: DeviceGraph, seen: Seen) -> None:
    """Fills in `seen`."""
    program, graph, moves = old.program, old.graph, old.held.moves
    ops, at, next_op, moved, left = program.ops.shape[0], NOWHERE, 0, 0, 0
    for op in range(ops):
        seen.keep[op], seen.lasts[op] = KEPT if program.ops.is_argument[op] else DROPPED, 0
    seen.keep[0] = seen.keep[ops] = KEPT
    seen.lasts[ops] = 0
    for i in range(program.structure.shape[0]):
        seen.keep[program.structure[i]] = HELD
    for r in range(moves.shape[0]):
        seen.node_of_move[r] = seen.layer_of_reader[r] = NOWHERE
        seen.is_shared[r] = False
    for k in range(graph.nodes.shape[0]):
        kind, subject, here = graph.nodes.kind[k], graph.nodes.subject[k], op_of(graph.nodes.slot[k])
        if here != at:
            at, moved, left = here, 0, 0
        while next_op <= here:
            seen.first_node[next_op] = k
            next_op += 1
        seen.keep[here], seen.rank[k], seen.op_of_node[k] = max(seen.keep[here], KEPT), 0, here
        if kind == USE_MOVE:
            seen.node_of_move[subject], seen.rank[k] = k, moved
            moved += 1
            _keep(old, seen, moves.moved_value[subject])
            if here == ops:
                _last(old, seen, k)
        elif kind == DEF_MOVE:
            seen.node_of_def[subject], seen.rank[k] = k, left
            left += 1
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            _keep(old, seen, graph.reads.read_buffer[i])
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            _keep(old, seen, graph.write_buffer[i])
    while next_op < seen.first_node.shape[0]:
        seen.first_node[next_op] = graph.nodes.shape[0]
        next_op += 1
    for i in range(program.outputs.shape[0]):
        _keep(old, seen, _output_buffer(old, i))
        _keep(old, seen, program.outputs.output_value[i])
    _find_shared(stack, old, seen)


@kernel
def _last(old: DeviceGraph, seen: Seen, k: int) -> None:
    """Notes a node at the end of the program; those of one op come one after the other."""
    op = old.program.values.value_op[old.held.moves.moved_value[old.graph.nodes.subject[k]]]
    if seen.lasts[op] == 0:
        seen.first_last[op] = k
    seen.op_of_node[k], seen.rank[k] = op, seen.lasts[op]
    seen.lasts[op] += 1


@kernel
def _keep(old: DeviceGraph, seen: Seen, buffer: int) -> None:
    """Keeps the op of a buffer that is a value."""
    if buffer < old.program.values.shape[0]:
        op = old.program.values.value_op[buffer]
        seen.keep[op] = max(seen.keep[op], KEPT)


@kernel
def _output_buffer(old: DeviceGraph, output: int) -> int:
    use = old.program.outputs.output_use[output]
    shows = old.held.values.shows[old.program.outputs.output_value[output]]
    return old.held.uses.use_buffer[use] if use >= 0 else shows


@kernel
def _find_shared(stack: Stack, old: DeviceGraph, seen: Seen) -> None:
    """Fills in `Seen.is_shared`."""
    program = old.program
    for use in range(program.uses.shape[0]):
        r, reader = old.held.uses.of_use[use], program.uses.use_op[use]
        if r < 0 or seen.node_of_move[r] < 0 or stack.chain[reader] < 0:
            continue
        if stack.chain[program.uses.producer[use]] < 0:
            if seen.layer_of_reader[r] >= 0 and seen.layer_of_reader[r] != stack.layer[reader] - stack.low:
                seen.is_shared[r] = True
            seen.layer_of_reader[r] = stack.layer[reader] - stack.low


@kernel
def agree(stack: Stack, old: DeviceGraph, seen: Seen) -> bool:
    """True if the three layers have the same nodes, and no kernel elsewhere goes through layers that are left out."""
    if _passes_through(stack, old, seen):
        return False
    for i in range(stack.three.shape[1]):
        for turn in range(2):
            one, other = stack.three[turn, i], stack.three[turn + 1, i]
            if not _nodes_agree(stack, old, seen, one, other, False):
                return False
            if not _nodes_agree(stack, old, seen, one, other, True):
                return False
    return True


@kernel
def _passes_through(stack: Stack, old: DeviceGraph, seen: Seen) -> bool:
    """True if a kernel in none of the three layers reads what corresponds in the typical one and in the one before.

    It computes a chain of ops through both, as the sum of the squares of all gradients, and through all layers that
    are left out.
    """
    typical, graph = stack.layer[stack.three[1, 0]], old.graph
    for c in range(seen.read_by.shape[0]):
        seen.read_by[c] = NOWHERE
    for k in range(graph.nodes.shape[0]):
        op = seen.op_of_node[k]
        if stack.chain[op] >= 0 and abs(stack.layer[op] - typical) <= 1:
            continue
        for back in range(2):
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                there = _owner(old, seen, graph.reads.read_buffer[i])
                if stack.chain[there] < 0 or stack.layer[there] != typical - back:
                    continue
                if back == 0:
                    seen.read_by[stack.chain[there]] = k
                elif seen.read_by[stack.chain[there]] == k:
                    return True
    return False


@kernel
def _owner(old: DeviceGraph, seen: Seen, buffer: int) -> int:
    """The op that a buffer belongs to: that makes it, or that the node stands at which moves it."""
    values, moves = old.program.values.shape[0], old.held.moves.shape[0]
    if buffer < values:
        return old.program.values.value_op[buffer]
    k = seen.node_of_move[buffer - values] if buffer < values + moves else seen.node_of_def[buffer - values - moves]
    return seen.op_of_node[k]


@kernel
def _count_at(seen: Seen, op: int, last: bool) -> int:
    """How many nodes stand at an op, or at the end of the program for its values."""
    return seen.lasts[op] if last else seen.first_node[op + 1] - seen.first_node[op]


@kernel
def _nodes_agree(stack: Stack, old: DeviceGraph, seen: Seen, one: int, other: int, last: bool) -> bool:
    """True if the nodes of two ops do the same, and read at corresponding places."""
    nodes, reads, read_ptr = old.graph.nodes, old.graph.reads, old.graph.read_ptr
    count = _count_at(seen, one, last)
    if _count_at(seen, other, last) != count:
        return False
    for place in range(count):
        j = place + (seen.first_last[one] if last else seen.first_node[one])
        k = place + (seen.first_last[other] if last else seen.first_node[other])
        if (
            nodes.kind[j] != nodes.kind[k]
            or nodes.matrix_flop[j] != nodes.matrix_flop[k]
            or nodes.matrix_work[j] != nodes.matrix_work[k]
            or nodes.vector_flop[j] != nodes.vector_flop[k]
            or nodes.written[j] != nodes.written[k]
            or old.plan_rows[j] != old.plan_rows[k]
            or seen.rank[j] != seen.rank[k]
            or read_ptr[j + 1] - read_ptr[j] != read_ptr[k + 1] - read_ptr[k]
        ):
            return False
        for i in range(read_ptr[j + 1] - read_ptr[j]):
            a, b = read_ptr[j] + i, read_ptr[k] + i
            if reads.read_bytes[a] != reads.read_bytes[b] or reads.read_how[a] != reads.read_how[b]:
                return False
            if not _buffers_agree(stack, old, seen, reads.read_buffer[a], one, reads.read_buffer[b], other):
                return False
    return True


@kernel
def _buffers_agree(stack: Stack, old: DeviceGraph, seen: Seen, one: int, read_by: int, other: int, by: int) -> bool:
    """True if a buffer is to one op what another is to another op."""
    values, moves = old.program.values.shape[0], old.held.moves.shape[0]
    if one < values:
        if other >= values:
            return False
        op, there = old.program.values.value_op[one], old.program.values.value_op[other]
        place, its = one - old.program.result_ptr[op], other - old.program.result_ptr[there]
        return place == its and _places_agree(stack, op, read_by, there, by)
    if one < values + moves:
        if other < values or other >= values + moves:
            return False
        r, s = one - values, other - values
        if seen.is_shared[r] or seen.is_shared[s]:
            return r == s
        j, k = seen.node_of_move[r], seen.node_of_move[s]
    elif other < values + moves:
        return False
    else:
        j, k = seen.node_of_def[one - values - moves], seen.node_of_def[other - values - moves]
    if j < 0 or k < 0 or seen.rank[j] != seen.rank[k]:
        return False
    if op_of(old.graph.nodes.slot[j]) != seen.op_of_node[j] and old.graph.nodes.slot[j] != old.graph.nodes.slot[k]:
        return False
    return _places_agree(stack, seen.op_of_node[j], read_by, seen.op_of_node[k], by)


@kernel
def _places_agree(stack: Stack, op: int, seen_from: int, other: int, other_from: int) -> bool:
    """True if an op is to one what another is to another: in the layer as far from it, or the same in no layer.

    Layers at the ends of the stack read in no layer what others read of their neighbours.
    """
    if stack.chain[op] < 0 or stack.chain[other] < 0:
        return op == other or (stack.chain[op] < 0) != (stack.chain[other] < 0)
    apart, its = stack.layer[op] - stack.layer[seen_from], stack.layer[other] - stack.layer[other_from]
    return stack.chain[op] == stack.chain[other] and apart == its
