"""The kernels of a whole program, from those of one with fewer of its layers (`core/fewer_layers.py`).

    simulated     layers 1  2  3              8       kernels of layer 3: %q = dot %h %w, where %h is layer 2's
    whole         layers 1  2  3  4  5  6  7  8       of layer 6: %q = dot %h %w, where %h is layer 5's

Where reductions of the layers wait for each other in no order that repeats itself, no layer stands for others while a
step runs: all of them have to run. Their kernels are alike all the same, so fusion is worked out for few layers, and
nodes and buffers of the typical one are written down once for each that it stands for. Ops that run nothing and
leave nothing behind are left out: what a step walks through is as long as its kernels are many, not its ops.

Where the layers beside the typical one do not have the same kernels, or a kernel reads what is at no corresponding
place, there is no answer. Nor is there one for programs with loops, branches, barriers, images in parts or collectives
of their own.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.core.kernels import kernel
from autopart.core.like_ops import Like
from autopart.core.program import Program
from autopart.costmodel.simulator.arrays import (
    MOVE_FIELDS,
    OP_FIELDS,
    USE_FIELDS,
    VALUE_FIELDS,
    LocalArrays,
    ProgramArrays,
    Records,
    output_places,
)
from autopart.costmodel.simulator.kernel_graph import (
    DEF_MOVE,
    KERNEL,
    NODE_FIELDS,
    READ_FIELDS,
    USE_MOVE,
    KernelGraph,
)
from autopart.costmodel.simulator.room import Empty
from autopart.costmodel.simulator.slots import SLOTS_PER_OP, before, op_of

NOWHERE = -1
"""Instead of an op or a buffer: there is none at the corresponding place."""

DROPPED, KEPT, HELD = 0, 1, 2
"""Of an op: it runs nothing and leaves nothing behind; it does; it is one of `ProgramArrays.structure`."""


class DeviceGraph(NamedTuple):
    """What a device runs of a program, as a step reads it.

    def_values       the values that are redistributed after their ops
    plan_rows[k]     the row of a node's plan in `KnownPlans.figures`
    narrow[r]        redistribution r is moved as bf16
    """

    program: ProgramArrays
    held: LocalArrays
    graph: KernelGraph
    def_values: np.ndarray
    plan_rows: np.ndarray
    narrow: np.ndarray


class Stack(NamedTuple):
    """How a whole program is like one with fewer layers; the end of a program counts as an op in no chain.

    like           int32[whole ops + 1]: the op with fewer layers that each op is like
    whole_layer    int32[whole ops + 1]: its layer
    kept_as        int32[ops + 1]: the op of the whole program that is kept as an op
    chain, layer   int32[ops + 1]: as in `FewerLayers`
    table, low     as in `RepeatedLayers`
    three          as in `FewerLayers`, ops
    output_value, output_argument, output_at   of the whole program's outputs: the value; the donated argument whose
                   memory it takes over, or -1; the argument's op, or -1
    """

    like: np.ndarray
    whole_layer: np.ndarray
    kept_as: np.ndarray
    chain: np.ndarray
    layer: np.ndarray
    table: np.ndarray
    low: int
    three: np.ndarray
    value_op: np.ndarray
    result_ptr: np.ndarray
    output_value: np.ndarray
    output_argument: np.ndarray
    output_at: np.ndarray


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

    @staticmethod
    def empty(old: DeviceGraph, empty: Empty) -> Seen:
        """Room for what there is to know of a graph."""
        ops, moves, nodes = len(old.program.ops), len(old.held.moves), len(old.graph.nodes)
        return Seen(
            empty(ops + 1, np.int8), empty(ops + 2, np.int32), empty(ops + 1, np.int32), empty(ops + 1, np.int32),
            empty(nodes, np.int32), empty(nodes, np.int32),
            empty(moves, np.int32), empty(len(old.def_values), np.int32), empty(moves, np.int32), empty(moves, np.bool_),
        )  # fmt: skip


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


@dataclass(frozen=True, eq=False)
class AllLayers:
    """Makes the graph of a whole program; make it with `AllLayers.of`.

    passed   values of the whole program's arguments that a device is given
    """

    stack: Stack = field(repr=False)
    passed: np.ndarray = field(repr=False)

    @staticmethod
    def of(whole: Program, fewer: FewerLayers, like: Like) -> AllLayers | None:
        """`like` from the whole program's ops to those with fewer layers; None for programs that it knows nothing of."""
        if len(whole.scopes) > 1 or whole.barriers:
            return None
        layers, places = fewer.layers, output_places(whole)
        at = np.where(places.use >= 0, whole.use_op[places.use], -1)

        def with_end(array: np.ndarray, end: int) -> np.ndarray:
            return np.append(array, end).astype(np.int32)

        stack = Stack(
            like=with_end(like.ops, fewer.program.op_count), whole_layer=with_end(layers.layer, 0),
            kept_as=with_end(fewer.ops, whole.op_count), chain=with_end(fewer.chain, -1),
            layer=with_end(fewer.layer, 0), table=layers.table(), low=layers.low,
            three=fewer.three.ops, value_op=whole.value_op.astype(np.int32),
            result_ptr=whole.result_ptr.astype(np.int32), output_value=places.value, output_argument=places.argument,
            output_at=at.astype(np.int32),
        )  # fmt: skip
        less = fewer.program
        if not _reads_correspond(
            stack, whole.operands, whole.use_op, like.uses, less.operands, less.value_op.astype(np.int32)
        ):
            return None
        return AllLayers(stack, np.array(whole.arguments, np.int64)[whole.passed_arguments])

    def unfolded(self, old: DeviceGraph, empty: Empty) -> tuple[DeviceGraph, np.ndarray] | None:
        """(the whole program's graph, its values of arguments that a device is given); None where layers differ."""
        if len(old.held.images) or len(old.program.fences):
            return None
        seen, numbers = Seen.empty(old, empty), Numbers.empty(len(self.stack.like) - 1, empty)
        if not _count(self.stack, old, seen, numbers):
            return None
        new = _empty(old, numbers, len(self.stack.output_value), empty)
        if not _unfold(self.stack, old, seen, numbers, new):
            return None
        return new, numbers.value[numbers.number[self.stack.value_op[self.passed]]]


def _empty(old: DeviceGraph, numbers: Numbers, outputs: int, empty: Empty) -> DeviceGraph:
    """Room for a graph of as much as is counted, of a program whose ops read nothing: its kernels do."""
    ops, values, moves, defs, nodes, reads, writes, structure = numbers.counts.tolist()
    program = old.program
    without = np.zeros(0, np.int32)
    return DeviceGraph(
        program._replace(
            operand_ptr=np.zeros(ops + 1, program.operand_ptr.dtype), result_ptr=empty(ops + 1, program.result_ptr.dtype),
            user_ptr=np.zeros(values + 1, program.user_ptr.dtype), user=np.zeros(0, program.user.dtype),
            ops=empty(ops, program.ops.dtype), values=empty(values, program.values.dtype),
            uses=np.zeros(1, program.uses.dtype), outputs=empty(outputs, program.outputs.dtype),
            structure=empty(structure, np.int32), carries=without, views=without, spread=without,
            place=numbers.whole[: ops + 1],
        ),
        LocalArrays(
            values=empty(values, VALUE_FIELDS), moves=empty(moves, MOVE_FIELDS), uses=empty(outputs, USE_FIELDS),
            ops=empty(ops, OP_FIELDS), images=old.held.images, padding=old.held.padding,
            home=empty(values + moves + defs, np.int32),
        ),
        KernelGraph(
            empty(nodes, NODE_FIELDS), empty(reads, READ_FIELDS), empty(nodes + 1, np.int32),
            empty(nodes + 1, np.int32), empty(writes, np.int32),
        ),
        empty(defs, np.int32), empty(nodes, np.int32), empty(moves, np.bool_),
    )  # fmt: skip


@kernel
def _reads_correspond(
    stack: Stack,
    operands: np.ndarray,
    use_op: np.ndarray,
    like: np.ndarray,
    like_operands: np.ndarray,
    like_value_op: np.ndarray,
) -> bool:
    """True if each op of the whole program reads what corresponds to what the op reads that it is like.

    `like[use]` is a use of the program with fewer layers, whose operands and values the last two are about.
    """
    for use in range(operands.shape[0]):
        op, there = use_op[use], like_value_op[like_operands[like[use]]]
        if stack.value_op[operands[use]] != _corresponding(stack, there, stack.like[op], op):
            return False
    return True


# ---- what is kept, and do three layers agree?


@kernel
def _count(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers) -> bool:
    """Fills in `seen` and `numbers`; False where layers do not agree."""
    _look(stack, old, seen)
    if not _agree(stack, old, seen):
        return False
    _number(stack, old, seen, numbers)
    return True


@kernel
def _look(stack: Stack, old: DeviceGraph, seen: Seen) -> None:
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
def _agree(stack: Stack, old: DeviceGraph, seen: Seen) -> bool:
    """True if the three layers have the same nodes."""
    for i in range(stack.three.shape[1]):
        for turn in range(2):
            one, other = stack.three[turn, i], stack.three[turn + 1, i]
            if not _nodes_agree(stack, old, seen, one, other, False):
                return False
            if not _nodes_agree(stack, old, seen, one, other, True):
                return False
    return True


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


@kernel
def _number(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers) -> None:
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


# ---- the whole program's


@kernel
def _unfold(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers, new: DeviceGraph) -> bool:
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

    In the layer as far from it, which for operands is so (`_reads_correspond`), and with them for all that kernels read.
    """
    found = _corresponding(stack, there, like, op)
    return numbers.number[found] if found >= 0 else NOWHERE


@kernel
def _corresponding(stack: Stack, there: int, like: int, op: int) -> int:
    """The op that is to `op` of the whole program what `there` is to the op that it is like, or `NOWHERE`."""
    if stack.chain[there] < 0 or stack.chain[like] < 0:
        return stack.kept_as[there]
    column = stack.whole_layer[op] + stack.layer[there] - stack.layer[like] - stack.low
    if column < 0 or column >= stack.table.shape[1]:
        return NOWHERE
    return stack.table[stack.chain[there], column]


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
