"""The program after fusion, as nodes that run and buffers between them.

    node     a kernel (a root op with what is computed inside it), a redistribution before a use, or one after an op
    buffer   value v; V + r for redistribution r of a use; V + R + d for what an op leaves before redistribution d

    slot     4 o      redistributions before op o        4 o + 2  redistributions of its results
             4 o + 1  op o                               4 o + 3  what is run early, because op o made it possible

A kernel reads each buffer once, however often its members do. Reads of loops, branches, arguments and outputs, which
run nothing, are in `structure` reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from autopart.costmodel.arrays import BODY
from autopart.costmodel.op_classes import CONV, FREE, MATMUL, SLICING, UPDATE

KERNEL, USE_MOVE, DEF_MOVE = 0, 1, 2
"""Kinds of node."""

STREAMED, OVERWRITTEN, MULTIPLIED, TURNED = 1, 2, 4, 8
"""How a buffer is read: as long as the result and in step with it; as the array an update changes; by a matmul only;
through a transpose."""


class KernelGraph(NamedTuple):
    """See the module. `subject` is an op, a redistribution r, or a place d, by `kind`; reads of node k are
    `read_ptr[k]:read_ptr[k+1]`, in buffers, bytes and how; the buffers it writes are in `write_buffer`."""

    kind: np.ndarray
    subject: np.ndarray
    slot: np.ndarray
    scope: np.ndarray
    read_ptr: np.ndarray
    read_buffer: np.ndarray
    read_bytes: np.ndarray
    read_how: np.ndarray
    write_ptr: np.ndarray
    write_buffer: np.ndarray
    matrix_flop: np.ndarray
    matrix_work: np.ndarray
    """float64[nodes]: matrix flop times passes."""
    vector_flop: np.ndarray
    dtype: np.ndarray
    is_conv: np.ndarray
    written: np.ndarray
    """float64[nodes]: bytes written if nothing is in place."""


_READ, _NOTHING = -1, -2


@njit(cache=True)
def _inside(p, here, virtual):
    """int32[uses]: the op computed inside the reader, `_READ` for a buffer, `_NOTHING` for constants spread out."""
    inside, empty = np.full(p.operands.shape[0], _READ, np.int32), np.zeros(p.value_op.shape[0], np.bool_)
    for op in range(p.op_class.shape[0]):
        nothing = p.weight[op] == 0 and p.matrix_flop[op] == 0
        for use in range(p.operand_ptr[op], p.operand_ptr[op + 1]):
            value, moved = p.operands[use], here.of_use[use]
            source = p.value_op[value]
            direct = (moved < 0 or here.moves_nothing[moved]) and here.at_def[value] < 0
            if direct and (p.is_view[source] or virtual[value]):
                inside[use] = _NOTHING if empty[value] else source
            nothing = nothing and inside[use] == _NOTHING
        if p.result_ptr[op + 1] - p.result_ptr[op] == 1:
            value = p.result_ptr[op]
            empty[value] = nothing and virtual[value]
    return inside


@njit(cache=True)
def kernel_graph(p, here, virtual, def_values):
    """Builds it; nodes are in slot order. `def_values[d]` is the value of place d."""
    values, moves, ops = p.value_op.shape[0], here.moved_value.shape[0], p.op_class.shape[0]
    count = 0
    kind = np.empty(ops + moves + def_values.shape[0], np.int8)
    index, slot = np.empty(kind.shape[0], np.int32), np.empty(kind.shape[0], np.int64)
    for op in range(ops):
        first, end = p.result_ptr[op], p.result_ptr[op + 1]
        computed = p.op_class[op] != FREE or (end > first and p.is_splat[first])
        if computed and not (end - first == 1 and virtual[first]):
            kind[count], index[count], slot[count] = KERNEL, op, 4 * op + 1
            count += 1
    for r in range(moves):
        if not here.moves_nothing[r]:
            kind[count], index[count], slot[count] = USE_MOVE, r, 4 * here.moved_position[r]
            count += 1
    for d in range(def_values.shape[0]):
        kind[count], index[count], slot[count] = DEF_MOVE, d, 4 * p.value_op[def_values[d]] + 2
        count += 1
    order = np.argsort(slot[:count], kind="mergesort")
    kind, index, slot = kind[order], index[order], slot[order]
    scope, read_ptr = np.zeros(count, np.int32), np.zeros(count + 1, np.int64)
    matrix, work, vector, written = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    write_ptr, writes = np.zeros(count + 1, np.int64), 0
    write_buffer = np.empty(values + moves + def_values.shape[0], np.int32)
    dtype, is_conv = np.zeros(count, np.int8), np.zeros(count, np.bool_)
    reads = 0
    buffer, size, how = np.empty(4 * ops + 64, np.int32), np.empty(4 * ops + 64), np.empty(4 * ops + 64, np.int8)
    turned = np.zeros(ops, np.bool_)
    seen_op, seen = np.full(ops, -1, np.int32), np.full(values + moves, -1, np.int64)
    stack, inside = np.empty(ops + 1, np.int32), _inside(p, here, virtual)
    for k in range(count):
        if kind[k] != KERNEL:
            if kind[k] == USE_MOVE:
                scope[k], written[k] = here.moved_scope[index[k]], here.moved_bytes[index[k]]
                source = here.shows[here.moved_value[index[k]]]
                write_buffer[writes] = values + index[k]
            else:
                value = def_values[index[k]]
                op = p.value_op[value]
                written[k], source, scope[k] = here.settled_bytes[value], here.left_in[value], p.op_scope[op]
                if p.is_view[op]:
                    source = here.use_buffer[p.operand_ptr[op] + value - p.result_ptr[op]]
                write_buffer[writes] = value
            writes += 1
            buffer[reads], size[reads], how[reads] = source, 0.0, 0
            reads += 1
        else:
            root = index[k]
            scope[k] = p.op_scope[root]
            first, end = p.result_ptr[root], p.result_ptr[root + 1]
            for value in range(first, end):
                written[k] += here.native_bytes[value]
                write_buffer[writes] = here.left_in[value]
                writes += 1
            dtype[k] = p.dtype[root]
            in_step = here.in_step[root]
            stack[0], depth, seen_op[root], turned[root] = root, 1, root, p.turns[root]
            while depth > 0:
                depth -= 1
                op = stack[depth]
                matrix[k] += p.matrix_flop[op] / here.ways[op]
                work[k] += p.passes[op] * p.matrix_flop[op] / here.ways[op]
                vector[k] += here.vector_flop[op]
                multiplies = p.op_class[op] == MATMUL or p.op_class[op] == CONV
                if multiplies:
                    dtype[k], is_conv[k] = p.dtype[op], p.op_class[op] == CONV
                for use in range(p.operand_ptr[op], p.operand_ptr[op + 1]):
                    source = inside[use]
                    if source >= 0:
                        if seen_op[source] != root:
                            seen_op[source], turned[source] = root, turned[op] or p.turns[source]
                            stack[depth] = source
                            depth += 1
                        continue
                    if source == _NOTHING:
                        continue
                    read, moved = here.use_buffer[use], here.of_use[use]
                    taken = here.settled_bytes[read] if read < values else here.moved_bytes[read - values]
                    whole = taken
                    if moved >= 0 and read < values:
                        taken = min(taken, here.moved_bytes[moved])
                    if p.op_class[op] == SLICING:
                        taken = min(taken, here.native_bytes[p.result_ptr[op]])
                    mark = (MULTIPLIED if p.narrows[op] else 0) | (TURNED if turned[op] else 0)
                    elements = here.settled_elements[read] if read < values else here.moved_elements[read - values]
                    if taken == whole and elements == in_step:
                        mark |= STREAMED
                    if op == root and p.op_class[op] == UPDATE and use == p.operand_ptr[op]:
                        mark |= OVERWRITTEN
                    if seen[read] >= read_ptr[k]:
                        also = how[seen[read]]
                        how[seen[read]] = (also | mark) & ~MULTIPLIED | (also & mark & MULTIPLIED)
                        continue
                    if reads == buffer.shape[0]:
                        buffer = np.concatenate((buffer, np.empty_like(buffer)))
                        size, how = (
                            np.concatenate((size, np.empty_like(size))),
                            np.concatenate((how, np.empty_like(how))),
                        )
                    seen[read] = reads
                    buffer[reads], size[reads], how[reads] = read, taken, mark
                    reads += 1
        if reads + 8 > buffer.shape[0]:
            buffer = np.concatenate((buffer, np.empty_like(buffer)))
            size, how = np.concatenate((size, np.empty_like(size))), np.concatenate((how, np.empty_like(how)))
        read_ptr[k + 1], write_ptr[k + 1] = reads, writes
    return KernelGraph(
        kind, index, slot, scope, read_ptr, buffer[:reads].copy(), size[:reads].copy(), how[:reads].copy(),
        write_ptr, write_buffer[:writes].copy(), matrix, work, vector, dtype, is_conv, written,
    )  # fmt: skip


@njit(cache=True)
def until(scope_parent, scope_twin, scope_kind, scope_end, defined_in, used_in, slot):
    """The slot until which a buffer of scope `defined_in` must live for a read at `slot` in scope `used_in`.

    What a loop reads from outside lives until the loop ends.
    """
    scope = used_in
    while scope > 0 and scope != defined_in and scope_twin[scope] != defined_in:
        if scope_kind[scope] == BODY:
            slot = max(slot, 4 * scope_end[scope])
        scope = scope_parent[scope]
    return slot
