"""The program after fusion, as nodes that run and buffers between them.

    node     a kernel (a root op with what is computed inside it), a redistribution before a use, or one after an op
    buffer   value v; V + r for redistribution r of a use; V + R + d for what an op leaves before redistribution d

A kernel reads each buffer once, however often its members read it. Of what it slices it reads as much as the slice
keeps, be it computed inside from what is read: of a gradient that is transposed and cut into those of four gates, each
add reads a quarter. But what a product's operand is sliced of counts as read whole, in place of the copy in another
layout that the compiler makes of the operand (Swin's queries on v5e). What is written for a look-up alone is a kernel
and computed inside its other readers. Loops, branches, arguments and outputs run nothing and are no nodes;
`liveness.structure_reads` says what they read.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.arrays import BODY, NARROW_SHARE, LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.facts.cut_arrays import NESTED
from autopart.costmodel.compiled.facts.op_classes import CONV, FREE, OPAQUE, SLICING, UPDATE
from autopart.costmodel.compiled.fusion.reread_operands import read_again
from autopart.costmodel.compiled.slots import after, before, slot_of

KERNEL, USE_MOVE, DEF_MOVE = 0, 1, 2
"""Kinds of node."""

STREAMED, OVERWRITTEN, MULTIPLIED, TRANSPOSED, ROUNDED, LOOKED_UP, LAID, RESHAPED = 1, 2, 4, 8, 16, 32, 64, 128
"""How a kernel reads a buffer. STREAMED: whole, one element for each element of the result. OVERWRITTEN: it is the
array that an update changes. MULTIPLIED: only matmuls read it, as bf16. TRANSPOSED: through a transpose. ROUNDED:
a matmul in a loop reads what does not change there; it is rounded to bf16 before the loop. LOOKED_UP: some rows of it,
which is not then on the chip. LAID: whole, as a part of an array that lies beside others in step with the result.
RESHAPED: behind a reshape that ends kernels (`reshape_barriers.py`)."""


class KernelGraph(NamedTuple):
    """Node k reads `reads[read_ptr[k]:read_ptr[k+1]]`, and writes buffers `write_buffer[write_ptr[k]:write_ptr[k+1]]`.

    nodes  kind: KERNEL, USE_MOVE or DEF_MOVE; subject: the op, the redistribution r or the place d, by kind; slot;
           scope; matrix_flop; matrix_work: matrix_flop times the passes and the unfilled tiles of each product;
           vector_flop; matrix_dtype; is_conv; written: the bytes
           it writes if no result is written in place; again_bytes, again_element_bytes:
           see `reread_operands.py`
    reads  read_buffer, read_bytes, read_how
    """

    nodes: Records
    reads: Records
    read_ptr: np.ndarray
    write_ptr: np.ndarray
    write_buffer: np.ndarray


NODE_FIELDS = np.dtype(
    [
        ("kind", np.int8), ("subject", np.int32), ("slot", np.int32), ("scope", np.int32),
        ("matrix_flop", np.float64), ("matrix_work", np.float64), ("vector_flop", np.float64),
        ("matrix_dtype", np.int8), ("is_conv", np.bool_), ("written", np.float64),
        ("again_bytes", np.float64), ("again_element_bytes", np.float64),
    ],
    align=True,
)  # fmt: skip

READ_FIELDS = np.dtype([("read_buffer", np.int32), ("read_bytes", np.float64), ("read_how", np.int16)], align=True)


class Walk(NamedTuple):
    """Scratch of `list_nodes` and `fill_nodes`.

    away[value]      as in `Fused`
    found[value]     `_WRITTEN`; `_INSIDE` where its readers compute it, or go on to what it is a view of; `_NOTHING`
                     where it is computed there from nothing but constants
    stack            ops still to visit, of what a root computes inside itself; -1 - op: only for what it reads, again
    root_of[op]      the last root whose walk came to the op
    transposed[op]   in that walk, a transpose stands between the op and the root
    multiplied[op]   in that walk, a product reads its result, be it cut or laid beside others before
    mixed[op]        in that walk, several arrays are mixed of what it reads; apart[op]: behind a reshape of its result
    share[op]        of its result, how much is computed there: what slices keep
    place[buffer]    where in `reads` the last kernel that read the buffer has it
    """

    away: np.ndarray
    found: np.ndarray
    stack: np.ndarray
    root_of: np.ndarray
    transposed: np.ndarray
    multiplied: np.ndarray
    mixed: np.ndarray
    apart: np.ndarray
    share: np.ndarray
    place: np.ndarray

    @staticmethod
    def empty(program: ProgramArrays, away: np.ndarray, buffers: int, empty: Empty) -> Walk:
        """Room for a program with so many buffers."""
        ops = len(program.ops)
        transposed, multiplied, mixed, apart = empty((4, ops), np.bool_)
        return Walk(
            away, empty(len(program.values), np.int8), empty(2 * ops + 1, np.int32), empty(ops, np.int32),
            transposed, multiplied, mixed, apart, empty(ops), empty(buffers, np.int32),
        )  # fmt: skip


def empty_graph(ops: int, nodes: int, buffers: int, empty: Empty) -> KernelGraph:
    """Room for at most so many nodes, and for about as many reads as a program of so many ops has."""
    return KernelGraph(
        empty(nodes, NODE_FIELDS), empty(4 * ops + 64, READ_FIELDS), empty(nodes + 1, np.int32),
        empty(nodes + 1, np.int32), empty(buffers, np.int32),
    )  # fmt: skip


def with_more_reads(graph: KernelGraph, ops: int, empty: Empty) -> KernelGraph:
    """The graph with room for twice as many."""
    more = empty(2 * len(graph.reads) + ops, READ_FIELDS)
    more[: len(graph.reads)] = graph.reads
    return graph._replace(reads=more)


def cut_to(graph: KernelGraph, nodes: int) -> KernelGraph:
    """The graph without the room that is left."""
    return KernelGraph(
        graph.nodes[:nodes], graph.reads[: graph.read_ptr[nodes]], graph.read_ptr[: nodes + 1],
        graph.write_ptr[: nodes + 1], graph.write_buffer[: graph.write_ptr[nodes]],
    )  # fmt: skip


@kernel
def list_nodes(
    program: ProgramArrays, local: LocalArrays, def_values: np.ndarray, by_position: np.ndarray, graph: KernelGraph,
    walk: Walk,
) -> int:  # fmt: skip
    """Begins a graph with its nodes in slot order; returns how many there are.

    `def_values[d]` is the value of place d; `by_position` are the redistributions before uses as they stand.
    """
    count = _list(program, local, def_values, by_position, graph.nodes, walk.away)
    graph.read_ptr[0] = graph.write_ptr[0] = 0
    _find(program, local, def_values, walk)
    for op in range(walk.root_of.shape[0]):
        walk.root_of[op] = -1
    for buffer in range(walk.place.shape[0]):
        walk.place[buffer] = -1
    return count


_WRITTEN, _INSIDE, _NOTHING = 0, 1, 2


@kernel
def _find(program: ProgramArrays, local: LocalArrays, def_values: np.ndarray, walk: Walk) -> None:
    """Fills in `Walk.found`."""
    found, away = walk.found, walk.away
    for value in range(found.shape[0]):
        found[value] = _INSIDE if away[value] else _WRITTEN
    for i in range(program.views.shape[0]):
        op = program.views[i]
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            found[value] = _INSIDE
    for value in def_values:
        found[value] = _WRITTEN
    for i in range(program.spread.shape[0]):
        op = program.spread[i]
        nothing = away[program.result_ptr[op]]
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            nothing = nothing and _reads_through(local, use) and found[program.uses.operands[use]] == _NOTHING
        if nothing and found[program.result_ptr[op]] == _INSIDE:
            found[program.result_ptr[op]] = _NOTHING


@kernel
def _reads_through(local: LocalArrays, use: int) -> bool:
    """True if a use reads what is settled: no redistribution moves anything for it."""
    moved = local.uses.of_use[use]
    return moved < 0 or local.moves.moves_nothing[moved]


@kernel
def _list(
    program: ProgramArrays,
    local: LocalArrays,
    def_values: np.ndarray,
    by_position: np.ndarray,
    nodes: Records,
    away: np.ndarray,
) -> int:
    """Lists the nodes, without work yet; returns how many there are.

    What a loop leaves is redistributed where the loop ends.
    """
    count = moved = left = over = 0
    for op in range(program.ops.shape[0] + 1):
        while over < program.ended.shape[0] and _ends(program, program.ended[over]) == op:
            place = local.values.at_def[program.result_ptr[program.ended[over]] + 1]
            if place >= 0:
                _node(nodes, count, DEF_MOVE, place, before(op))
                count += 1
            over += 1
        while moved < by_position.shape[0] and local.moves.moved_position[by_position[moved]] == op:
            if not local.moves.moves_nothing[by_position[moved]]:
                _node(nodes, count, USE_MOVE, by_position[moved], before(op))
                count += 1
            moved += 1
        if op == program.ops.shape[0]:
            break
        first, end = program.result_ptr[op], program.result_ptr[op + 1]
        inside = end - first == 1 and away[first] and not program.values.is_looked_up[first]
        runs = program.ops.op_class[op] != FREE or (end > first and program.values.is_splat[first])
        if (runs and not inside) or is_copied_carry(program, local, op):
            _node(nodes, count, KERNEL, op, slot_of(op))
            count += 1
        while left < def_values.shape[0] and program.values.value_op[def_values[left]] == op:
            if program.ops.carry_body[op] < 0 or def_values[left] == first:
                _node(nodes, count, DEF_MOVE, left, after(op))
                count += 1
            left += 1
    return count


@kernel
def is_copied_carry(program: ProgramArrays, local: LocalArrays, op: int) -> bool:
    """True for what a loop carries in another layout than it comes or goes in: a copy is a kernel of its own."""
    return program.ops.carry_body[op] >= 0 and local.ops.copied_bytes[op] > 0.0


@kernel
def _ends(program: ProgramArrays, carry: int) -> int:
    """The op before which the loop of a carry ends."""
    return int(program.scopes.scope_end[program.ops.carry_body[carry]])


@kernel
def _node(nodes: Records, k: int, kind: int, subject: int, slot: int) -> None:
    """Fills in node k, without work."""
    nodes.kind[k], nodes.subject[k], nodes.slot[k] = kind, subject, slot
    nodes.matrix_flop[k] = nodes.matrix_work[k] = nodes.vector_flop[k] = 0.0
    nodes.matrix_dtype[k], nodes.is_conv[k], nodes.written[k] = 0, False, 0.0
    nodes.again_bytes[k], nodes.again_element_bytes[k] = 0.0, 1.0


@kernel
def fill_nodes(
    program: ProgramArrays,
    local: LocalArrays,
    def_values: np.ndarray,
    graph: KernelGraph,
    first: int,
    end: int,
    walk: Walk,
) -> int:
    """Fills in the work, reads and writes of nodes from `first` to `end`, while there is room for what a node may read.

    Returns the first node that is not filled in.
    """
    values, ops, nodes, reads = program.values.shape[0], program.ops.shape[0], graph.nodes, graph.reads
    read, written = graph.read_ptr[first], graph.write_ptr[first]
    for k in range(first, end):
        if read + ops + 8 > reads.shape[0]:
            return k
        if nodes.kind[k] == KERNEL and program.ops.carry_body[nodes.subject[k]] >= 0:
            nodes.scope[k] = program.ops.op_scope[nodes.subject[k]]
        elif nodes.kind[k] == KERNEL:
            root = nodes.subject[k]
            for value in range(program.result_ptr[root], program.result_ptr[root + 1]):
                nodes.written[k] += local.values.native_bytes[value]
                graph.write_buffer[written] = local.values.left_in[value]
                written += 1
            read = _kernel(program, local, nodes, k, reads, read, walk)
            if nodes.matrix_flop[k] > 0.0:
                again, each = read_again(program, local, root, reads, graph.read_ptr[k], read)
                nodes.again_bytes[k], nodes.again_element_bytes[k] = again, each
        else:
            if nodes.kind[k] == USE_MOVE:
                source = _use_move(local, nodes, k)
                graph.write_buffer[written] = values + nodes.subject[k]
            else:
                source = _def_move(program, local, def_values[nodes.subject[k]], nodes, k)
                graph.write_buffer[written] = def_values[nodes.subject[k]]
            reads.read_buffer[read], reads.read_bytes[read], reads.read_how[read] = source, 0.0, 0
            read, written = read + 1, written + 1
        graph.read_ptr[k + 1], graph.write_ptr[k + 1] = read, written
    return end


@kernel
def _use_move(local: LocalArrays, nodes: Records, k: int) -> int:
    """Fills in node k, a redistribution before a use; returns the buffer it reads."""
    r = nodes.subject[k]
    nodes.scope[k], nodes.written[k] = local.moves.moved_scope[r], local.moves.moved_bytes[r]
    return local.values.shows[local.moves.moved_value[r]]


@kernel
def _def_move(program: ProgramArrays, local: LocalArrays, value: int, nodes: Records, k: int) -> int:
    """Fills in node k, a redistribution of `value` after its op; returns the buffer it reads."""
    op = program.values.value_op[value]
    nodes.scope[k], nodes.written[k] = program.ops.op_scope[op], local.values.settled_bytes[value]
    if program.ops.is_view[op]:
        return local.uses.use_buffer[program.operand_ptr[op] + value - program.result_ptr[op]]
    return local.values.left_in[value]


@kernel
def _kernel(
    program: ProgramArrays,
    local: LocalArrays,
    nodes: Records,
    k: int,
    reads: Records,
    read: int,
    walk: Walk,
) -> int:
    """Fills in node k, a kernel: the work of its root and of all that is computed inside; its reads from `read` on.

    Returns the number of reads so far.
    """
    root, first_read = nodes.subject[k], read
    nodes.scope[k], nodes.matrix_dtype[k] = program.ops.op_scope[root], program.ops.matrix_dtype[root]
    walk.stack[0], depth = root, 1
    walk.root_of[root], walk.transposed[root], walk.share[root] = root, program.ops.turns[root], 1.0
    walk.multiplied[root] = walk.apart[root] = False
    walk.mixed[root] = program.ops.mixes[root]
    changed = _changed_use(program, local, root, walk)
    while depth > 0:
        depth -= 1
        op = walk.stack[depth]
        again = op < 0
        if again:
            op = -1 - op
        else:
            _add_work(program, local, nodes, k, op)
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            value = program.uses.operands[use]
            looked_up = program.values.is_looked_up[value] and not program.ops.takes[op]
            if walk.found[value] == _WRITTEN or looked_up or not _reads_through(local, use):
                read = _add_read(program, local, root, op, use, changed, again, reads, first_read, read, walk)
                continue
            source = program.uses.producer[use]
            if walk.found[value] != _INSIDE:
                continue
            if walk.root_of[source] != root:
                walk.root_of[source], walk.share[source] = root, 1.0
                slices = walk.share[op] < 1.0 or program.ops.op_class[op] == SLICING
                if slices and program.ops.matrix_flop[root] == 0:
                    walk.share[source] = _share(program, local, op, use, walk)
                walk.transposed[source] = walk.transposed[op] or program.ops.turns[source]
                cuts = program.ops.op_class[source] == SLICING
                moves = cuts or program.values.laid[value] == NESTED or program.ops.is_view[source]
                walk.mixed[source] = walk.mixed[op] or program.ops.mixes[source]
                walk.apart[source] = walk.apart[op] or (walk.mixed[op] and program.ops.reshapes[source])
                walk.multiplied[source] = moves and (program.ops.narrows[op] or walk.multiplied[op])
                walk.stack[depth] = source
                depth += 1
            elif walk.share[source] < 1.0:
                walk.share[source], walk.stack[depth] = 1.0, -1 - source
                depth += 1
    return read


@kernel
def _changed_use(program: ProgramArrays, local: LocalArrays, root: int, walk: Walk) -> int:
    """The use of the array that an update changes in place, behind views, or of the product that it shows turned: that
    is written as it is changed; -1 if there is none."""
    if program.ops.op_class[root] != UPDATE:
        return -1
    shown = use = program.ops.changes[root]
    source, turned = program.uses.producer[shown], False
    while program.ops.turns[source] or program.ops.is_view[source]:
        if walk.found[program.uses.operands[shown]] != _INSIDE or not _reads_through(local, shown):
            break
        shown = program.operand_ptr[source] + program.uses.operands[shown] - program.result_ptr[source]
        turned = turned or program.ops.turns[source]
        source = program.uses.producer[shown]
    return int(use if turned and program.ops.matrix_flop[source] == 0 else shown)


@kernel
def _share(program: ProgramArrays, local: LocalArrays, op: int, use: int, walk: Walk) -> float:
    """How much a kernel computes of what `use` reads: a slice keeps a part, any other op reads at most as many elements
    as are computed of it."""
    result = program.result_ptr[op]
    if program.ops.is_view[op]:
        result = min(result + use - program.operand_ptr[op], program.result_ptr[op + 1] - 1)
    read, made = local.uses.use_elements[use], local.values.native_elements[result]
    if program.ops.op_class[op] == SLICING and use == program.operand_ptr[op] and made < read:
        return walk.share[op] * made / read
    return min(1.0, walk.share[op] * made / read) if made >= read > 0 else 1.0


@kernel
def _add_work(program: ProgramArrays, local: LocalArrays, nodes: Records, k: int, op: int) -> None:
    nodes.vector_flop[k] += local.ops.vector_flop[op]
    if program.ops.matrix_flop[op] > 0:
        flop = program.ops.matrix_flop[op] / local.ops.ways[op]
        nodes.matrix_flop[k] += flop
        nodes.matrix_work[k] += program.specs.passes[program.ops.spec[op]] * local.ops.unfilled[op] * flop
        nodes.matrix_dtype[k], nodes.is_conv[k] = program.ops.matrix_dtype[op], program.ops.op_class[op] == CONV


@kernel
def _add_read(
    program: ProgramArrays,
    local: LocalArrays,
    root: int,
    op: int,
    use: int,
    changed: int,
    again: bool,
    reads: Records,
    first_read: int,
    read: int,
    walk: Walk,
) -> int:
    """Notes that a kernel reads the buffer of `use`, once however often it does, of slices each; returns the number of
    reads so far.

    `changed`: the use of what the kernel changes in place. `again`: it is noted, as a slice, and now more is computed
    of it.
    """
    values = program.values.shape[0]
    buffer, moved = local.uses.use_buffer[use], local.uses.of_use[use]
    if buffer < values:
        whole, elements = local.values.settled_bytes[buffer], local.values.settled_elements[buffer]
    else:
        whole, elements = local.moves.moved_bytes[buffer - values], local.moves.moved_elements[buffer - values]
    taken = whole
    if moved >= 0 and buffer < values:
        taken = min(taken, local.moves.moved_bytes[moved])
    cuts = program.ops.op_class[op] == SLICING and program.ops.fuses[op]
    if program.ops.op_class[op] == SLICING:
        taken = min(taken, local.values.native_bytes[program.result_ptr[op]])
    elif program.ops.op_class[op] == OPAQUE:
        taken *= program.specs.read_share[program.ops.spec[op]]
    if walk.share[op] < 1.0 and elements >= local.values.native_elements[program.result_ptr[op]]:
        taken *= walk.share[op]
    how = MULTIPLIED if program.ops.narrows[op] or walk.multiplied[op] else 0
    how |= (TRANSPOSED if walk.transposed[op] else 0) | (RESHAPED if walk.apart[op] else 0)
    result = program.result_ptr[op]
    if taken == whole and elements == local.ops.in_step[root]:
        how |= STREAMED
    elif program.values.laid[result] == NESTED and local.values.native_elements[result] == local.ops.in_step[root]:
        how |= LAID
    if use == changed:
        how |= OVERWRITTEN
    if program.ops.op_class[op] == SLICING and not program.ops.fuses[op] and use == program.operand_ptr[op]:
        how |= LOOKED_UP
    scope = program.ops.op_scope[root]
    if (
        program.ops.narrows[op]
        and buffer < values
        and local.home[buffer] != scope
        and program.scopes.scope_kind[scope] == BODY
    ):
        taken, how = taken * NARROW_SHARE, how | ROUNDED
    place = walk.place[buffer]
    if place >= first_read:
        also = reads.read_how[place]
        if cuts and not again and not also & ROUNDED:
            reads.read_bytes[place] = min(whole, reads.read_bytes[place] + taken)
        elif again or (also & ROUNDED and not how & ROUNDED):
            reads.read_bytes[place] = max(reads.read_bytes[place], taken)
        both = MULTIPLIED | ROUNDED | LOOKED_UP
        reads.read_how[place] = (also | how) & ~both | (also & how & both)
        return read
    walk.place[buffer] = read
    reads.read_buffer[read], reads.read_bytes[read], reads.read_how[read] = buffer, taken, how
    return read + 1


@kernel
def until(scopes: Records, defined_in: int, used_in: int, slot: int) -> int:
    """The slot until which a buffer of scope `defined_in` must live for a read at `slot` in scope `used_in`.

    What a loop reads from outside lives until the loop ends.
    """
    scope = used_in
    while scope > 0 and scope != defined_in and scopes.scope_twin[scope] != defined_in:
        if scopes.scope_kind[scope] == BODY:
            slot = max(slot, before(scopes.scope_end[scope]))
        scope = scopes.scope_parent[scope]
    return slot
