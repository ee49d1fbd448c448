"""The program after fusion, as nodes that run and buffers between them.

    node     a kernel (a root op with what is computed inside it), a redistribution before a use, or one after an op
    buffer   value v; V + r for redistribution r of a use; V + R + d for what an op leaves before redistribution d

    slot     4 o      redistributions before op o        4 o + 2  redistributions of its results
             4 o + 1  op o                               4 o + 3  what is run early, because op o made it possible

A kernel reads each buffer once, however often its members do. Reads of loops, branches, arguments and outputs, which
run nothing, are in `structure` reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import BODY, LocalArrays, ProgramArrays, records
from autopart.costmodel.simulator.op_classes import CONV, FREE, SLICING, UPDATE

KERNEL, USE_MOVE, DEF_MOVE = 0, 1, 2
"""Kinds of node."""

STREAMED, OVERWRITTEN, MULTIPLIED, TURNED = 1, 2, 4, 8
"""How a buffer is read: as long as the result and in step with it; as the array an update changes; by a matmul only;
through a transpose."""


class KernelGraph(NamedTuple):
    """See the module; node k reads `read_ptr[k]:read_ptr[k+1]` of `reads`, and writes the buffers
    `write_buffer[write_ptr[k]:write_ptr[k+1]]`.

    nodes  kind; subject: an op, a redistribution r, or a place d, by kind; slot; scope; matrix_flop; matrix_work: that
           times passes; vector_flop; matrix_dtype; is_conv; written: bytes, if nothing is in place
    reads  read_buffer, read_bytes, read_how
    """

    nodes: np.ndarray
    reads: np.ndarray
    read_ptr: np.ndarray
    write_ptr: np.ndarray
    write_buffer: np.ndarray


def kernel_graph(p: ProgramArrays, here: LocalArrays, fused_away: np.ndarray, def_values: np.ndarray) -> KernelGraph:
    """Builds it; nodes are in slot order. `fused_away` is `fused_away_values`, `def_values[d]` the value of place d."""
    kind, subject, slot = _nodes(p, here, fused_away, def_values)
    order = np.argsort(slot, kind="stable")
    kind, subject, slot = kind[order], subject[order], slot[order]
    inside = _inside(p, here, fused_away)
    pointers, reads, work = _fill(p, here, inside, kind, subject, def_values)
    names = ("scope", "matrix_flop", "matrix_work", "vector_flop", "matrix_dtype", "is_conv", "written")
    return KernelGraph(
        records(kind=kind, subject=subject, slot=slot, **dict(zip(names, work, strict=True))),
        records(**dict(zip(("read_buffer", "read_bytes", "read_how"), reads, strict=True))),
        *pointers,
    )


_READ, _NOTHING = -1, -2


@njit(cache=True)
def _inside(p, here, fused_away):
    """int32[uses]: the op computed inside the reader, `_READ` for a buffer, `_NOTHING` for constants spread out."""
    inside, empty = np.full(p.uses.shape[0], _READ, np.int32), np.zeros(p.values.shape[0], np.bool_)
    for op in range(p.ops.shape[0]):
        nothing = p.ops.weight[op] == 0 and p.ops.matrix_flop[op] == 0
        for use in range(p.operand_ptr[op], p.operand_ptr[op + 1]):
            value, moved = p.uses.operands[use], here.uses.of_use[use]
            source = p.values.value_op[value]
            direct = (moved < 0 or here.moves.moves_nothing[moved]) and here.values.at_def[value] < 0
            if direct and (p.ops.is_view[source] or fused_away[value]):
                inside[use] = _NOTHING if empty[value] else source
            nothing = nothing and inside[use] == _NOTHING
        if p.result_ptr[op + 1] - p.result_ptr[op] == 1:
            value = p.result_ptr[op]
            empty[value] = nothing and fused_away[value]
    return inside


@njit(cache=True)
def _nodes(p, here, fused_away, def_values):
    """(kind, subject, slot) of every node."""
    moves, ops, count = here.moves.shape[0], p.ops.shape[0], 0
    kind = np.empty(ops + moves + def_values.shape[0], np.int8)
    subject, slot = np.empty(kind.shape[0], np.int32), np.empty(kind.shape[0], np.int64)
    for op in range(ops):
        first, end = p.result_ptr[op], p.result_ptr[op + 1]
        computed = p.ops.op_class[op] != FREE or (end > first and p.values.is_splat[first])
        if computed and not (end - first == 1 and fused_away[first]):
            kind[count], subject[count], slot[count] = KERNEL, op, 4 * op + 1
            count += 1
    for r in range(moves):
        if not here.moves.moves_nothing[r]:
            kind[count], subject[count], slot[count] = USE_MOVE, r, 4 * here.moves.moved_position[r]
            count += 1
    for d in range(def_values.shape[0]):
        kind[count], subject[count], slot[count] = DEF_MOVE, d, 4 * p.values.value_op[def_values[d]] + 2
        count += 1
    return kind[:count], subject[:count], slot[:count]


@njit(cache=True)
def _fill(p, here, inside, kind, subject, def_values):
    """Reads, writes and work of every node, by a walk through what each root computes inside itself."""
    values, ops, count = p.values.shape[0], p.ops.shape[0], kind.shape[0]
    scope, read_ptr, write_ptr = np.zeros(count, np.int32), np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    matrix, work, vector, written = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    dtype, is_conv = np.zeros(count, np.int8), np.zeros(count, np.bool_)
    write_buffer, writes = np.empty(here.home.shape[0], np.int32), 0
    reads, room = 0, 4 * ops + 64
    buffer, size, how = np.empty(room, np.int32), np.empty(room), np.empty(room, np.int8)
    transposed, seen_op, seen = (
        np.zeros(ops, np.bool_),
        np.full(ops, -1, np.int32),
        np.full(here.home.shape[0], -1, np.int64),
    )
    stack = np.empty(ops + 1, np.int32)
    for k in range(count):
        if reads + ops + 8 > room:
            room *= 2
            buffer, size, how = _grown(buffer, room), _grown(size, room), _grown(how, room)
        if kind[k] == USE_MOVE:
            r = subject[k]
            scope[k], written[k] = here.moves.moved_scope[r], here.moves.moved_bytes[r]
            buffer[reads], size[reads], how[reads] = here.values.shows[here.moves.moved_value[r]], 0.0, 0
            write_buffer[writes] = values + r
            reads, writes = reads + 1, writes + 1
        elif kind[k] == DEF_MOVE:
            value = def_values[subject[k]]
            op, source = p.values.value_op[value], here.values.left_in[value]
            if p.ops.is_view[op]:
                source = here.uses.use_buffer[p.operand_ptr[op] + value - p.result_ptr[op]]
            scope[k], written[k] = p.ops.op_scope[op], here.values.settled_bytes[value]
            buffer[reads], size[reads], how[reads] = source, 0.0, 0
            write_buffer[writes] = value
            reads, writes = reads + 1, writes + 1
        else:
            root = subject[k]
            scope[k], dtype[k], in_step = p.ops.op_scope[root], p.ops.matrix_dtype[root], here.ops.in_step[root]
            for value in range(p.result_ptr[root], p.result_ptr[root + 1]):
                written[k] += here.values.native_bytes[value]
                write_buffer[writes] = here.values.left_in[value]
                writes += 1
            stack[0], depth, seen_op[root], transposed[root] = root, 1, root, p.ops.turns[root]
            while depth > 0:
                depth -= 1
                op = stack[depth]
                flop = p.ops.matrix_flop[op] / here.ops.ways[op]
                matrix[k] += flop
                work[k] += p.ops.passes[op] * flop
                vector[k] += here.ops.vector_flop[op]
                if flop > 0:
                    dtype[k], is_conv[k] = p.ops.matrix_dtype[op], p.ops.op_class[op] == CONV
                for use in range(p.operand_ptr[op], p.operand_ptr[op + 1]):
                    source = inside[use]
                    if source >= 0:
                        if seen_op[source] != root:
                            seen_op[source], transposed[source] = root, transposed[op] or p.ops.turns[source]
                            stack[depth] = source
                            depth += 1
                        continue
                    if source == _NOTHING:
                        continue
                    read, moved = here.uses.use_buffer[use], here.uses.of_use[use]
                    if read < values:
                        whole, elements = here.values.settled_bytes[read], here.values.settled_elements[read]
                    else:
                        whole = here.moves.moved_bytes[read - values]
                        elements = here.moves.moved_elements[read - values]
                    taken = whole
                    if moved >= 0 and read < values:
                        taken = min(taken, here.moves.moved_bytes[moved])
                    if p.ops.op_class[op] == SLICING:
                        taken = min(taken, here.values.native_bytes[p.result_ptr[op]])
                    mark = (MULTIPLIED if p.ops.narrows[op] else 0) | (TURNED if transposed[op] else 0)
                    if taken == whole and elements == in_step:
                        mark |= STREAMED
                    if op == root and p.ops.op_class[op] == UPDATE and use == p.operand_ptr[op]:
                        mark |= OVERWRITTEN
                    if seen[read] >= read_ptr[k]:
                        also: Any = how[seen[read]]
                        how[seen[read]] = (also | mark) & ~MULTIPLIED | (also & mark & MULTIPLIED)
                    else:
                        seen[read] = reads
                        buffer[reads], size[reads], how[reads] = read, taken, mark
                        reads += 1
        read_ptr[k + 1], write_ptr[k + 1] = reads, writes
    pointers = (read_ptr, write_ptr, write_buffer[:writes].copy())
    return pointers, (buffer[:reads].copy(), size[:reads].copy(), how[:reads].copy()), (
        scope, matrix, work, vector, dtype, is_conv, written,
    )  # fmt: skip


@njit(cache=True)
def _grown(array, room):
    grown = np.empty(room, array.dtype)
    grown[: array.shape[0]] = array
    return grown


@kernel
def until(scopes, defined_in, used_in, slot):
    """The slot until which a buffer of scope `defined_in` must live for a read at `slot` in scope `used_in`.

    What a loop reads from outside lives until the loop ends.
    """
    scope = used_in
    while scope > 0 and scope != defined_in and scopes.scope_twin[scope] != defined_in:
        if scopes.scope_kind[scope] == BODY:
            slot = max(slot, 4 * scopes.scope_end[scope])
        scope = scopes.scope_parent[scope]
    return slot
