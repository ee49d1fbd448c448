"""The arrays that the simulator's kernels read: one tuple per program, one per lowering of it.

    ProgramArrays    what does not depend on the partitioning; made once (`program_arrays`)
    LocalArrays      bytes and elements on one device, and where redistributions stand (`local_arrays`)

A redistribution is called *moved value* r: V + r beside the program's V values in arrays over "buffers". A value that
is redistributed right after its op also has the buffer its op left: V + R + its place in `at_def`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from autopart.core.layout import LAST_TILE, action_of
from autopart.core.program import Program
from autopart.costmodel.op_classes import ELEMENTWISE, OPAQUE, REDUCE, UPDATE, spec_costs

if TYPE_CHECKING:
    from autopart.spmd.device_local import DeviceLocal

BODY, BRANCH = 1, 2
"""Scope kinds that the kernels tell apart: loops (bodies and conditions), and branches; the program itself is 0."""


class ProgramArrays(NamedTuple):
    """A program, op by op; see `Program` for the graph's fields and `SpecCosts` for the costs."""

    operand_ptr: np.ndarray
    operands: np.ndarray
    result_ptr: np.ndarray
    value_op: np.ndarray
    user_ptr: np.ndarray
    user: np.ndarray
    use_op: np.ndarray
    use_scope: np.ndarray
    use_position: np.ndarray
    op_scope: np.ndarray
    scope_parent: np.ndarray
    scope_kind: np.ndarray
    scope_start: np.ndarray
    scope_end: np.ndarray
    """int32[scopes]: the op behind the scope; a condition ends where its loop's body does."""
    scope_twin: np.ndarray
    """int32[scopes]: a condition's body, any other scope itself."""
    scope_trips: np.ndarray
    op_class: np.ndarray
    dtype: np.ndarray
    matrix_flop: np.ndarray
    weight: np.ndarray
    is_view: np.ndarray
    fuses: np.ndarray
    takes: np.ndarray
    passes: np.ndarray
    narrows: np.ndarray
    turns: np.ndarray
    shape: np.ndarray
    rank: np.ndarray
    element_bytes: np.ndarray
    is_argument: np.ndarray
    carry_body: np.ndarray
    """int32[ops]: the body scope of a carry's loop, -1 for other ops."""
    is_splat: np.ndarray
    """bool[values]: constants and what broadcasts them; they cost no memory until they are written out."""
    output_use: np.ndarray
    """int32[outputs]: for a tied output the argument's operand entry that reads it, else -1."""
    output_value: np.ndarray
    output_argument: np.ndarray
    """int32[outputs]: the donated argument whose memory the output takes over, else -1."""


def program_arrays(program: Program) -> ProgramArrays:
    """Collects them; milliseconds for a training step."""
    costs, spec = spec_costs(program), program.op_spec
    user_ptr, user = program.users
    kinds = {"program": 0, "body": BODY, "condition": BODY, "branch": BRANCH}
    carry_body = np.full(program.op_count, -1, np.int32)
    for op, owner in program.owners.items():
        if program.spec(op).kind == "carry":
            carry_body[op] = program.inner_scopes[owner][1]
    is_argument = np.zeros(program.op_count, np.bool_)
    is_argument[program.value_op[program.arguments]] = True
    end, twin = np.array([s.end for s in program.scopes], np.int32), np.arange(len(program.scopes), dtype=np.int32)
    for inner in program.inner_scopes.values():
        if program.scopes[inner[0]].kind == "condition":
            end[inner[0]], twin[inner[0]] = end[inner[1]], inner[1]
    constant = np.array([s.kind == "constant" for s in program.specs])[spec]
    outputs = len(program.outputs)
    output_use, output_argument = np.full(outputs, -1, np.int32), np.full(outputs, -1, np.int32)
    for output, argument in program.ties.items():
        value = program.arguments[argument]
        output_use[output] = program.operand_ptr[program.value_op[value]]
        if argument in program.donated:
            output_argument[output] = value
    return ProgramArrays(
        program.operand_ptr, program.operands, program.result_ptr, program.value_op, user_ptr, user, program.use_op,
        program.use_scope, program.use_position, program.op_scope,
        np.array([s.parent for s in program.scopes], np.int32),
        np.array([kinds[s.kind] for s in program.scopes], np.int8),
        np.array([s.start for s in program.scopes], np.int32), end, twin, program.scope_trips.astype(np.float64),
        costs.op_class[spec], costs.dtype[spec], costs.matrix_flop[spec], costs.weight[spec], costs.is_view[spec],
        costs.fuses[spec], costs.takes[spec], costs.passes[spec], costs.narrows[spec],
        costs.turns[spec],
        program.value_shape, program.value_rank, program.element_bytes,
        is_argument, carry_body, constant[program.value_op], output_use,
        np.array(program.outputs, np.int32), output_argument,
    )  # fmt: skip


class LocalArrays(NamedTuple):
    """What one device holds, in bytes (with layout padding where asked for) and elements.

    native, settled, moved   per value as its op leaves it, as it waits, per redistribution as its uses read it
    of_use, at_def           as in `Placement`; at_def[v] is the place of v in `DeviceLocal.at_def`, else -1
    moves_nothing[r]         the redistribution only slices: no collective, so consumers slice as they read
    ways[op]                 over how many devices the op's work is divided
    shows[v]                 the buffer that value v is; a view shows its operand's
    use_buffer[u]            the buffer that operand entry u reads
    left_in[v]               the buffer in which its op leaves value v
    home[b]                  the scope buffer b belongs to; what a loop carries belongs to its body, its result does not
    vector_flop[op]          operations of the vector unit
    in_step[op]              elements that an elementwise op or a reduction walks through, -1 for any other
    update_bytes[op]         bytes that an update changes, if in place
    """

    native_bytes: np.ndarray
    native_elements: np.ndarray
    settled_bytes: np.ndarray
    settled_elements: np.ndarray
    moved_bytes: np.ndarray
    moved_elements: np.ndarray
    use_elements: np.ndarray
    of_use: np.ndarray
    at_def: np.ndarray
    moved_value: np.ndarray
    moved_scope: np.ndarray
    moved_position: np.ndarray
    moves_nothing: np.ndarray
    ways: np.ndarray
    shows: np.ndarray
    use_buffer: np.ndarray
    left_in: np.ndarray
    home: np.ndarray
    vector_flop: np.ndarray
    in_step: np.ndarray
    update_bytes: np.ndarray


def local_arrays(
    local: DeviceLocal, p: ProgramArrays, layout_tile: tuple[int, int], moves_nothing: np.ndarray
) -> LocalArrays:
    """Sizes on one device; `layout_tile` (1, 1) means no padding."""
    sizes, place = np.array(local.mesh.axis_sizes, np.int64), local.placement
    rows, minor = layout_tile
    native_bytes, native = _sizes(p, np.arange(len(p.value_op), dtype=np.int32), local.native, sizes, rows, minor)
    settled_bytes, settled = _sizes(p, np.arange(len(p.value_op), dtype=np.int32), local.settled, sizes, rows, minor)
    moved_bytes, moved = _sizes(p, place.value, place.target, sizes, rows, minor)
    _, used = _sizes(p, p.operands, local.required, sizes, 1, 1)
    at_def = np.full(len(p.value_op), -1, np.int32)
    at_def[local.at_def] = np.arange(len(local.at_def))
    shows, use_buffer, left_in, home = _buffers(p, place.of_use, moves_nothing, at_def, place.scope, local.at_def)
    return LocalArrays(
        native_bytes, native, settled_bytes, settled, moved_bytes, moved, used, place.of_use, at_def,
        place.value, place.scope, place.position, moves_nothing, _ways(local.mapping, local.passing, sizes),
        shows, use_buffer, left_in, home, *_op_work(p, native, native_bytes, used),
    )  # fmt: skip


@njit(cache=True)
def _buffers(p, of_use, moves_nothing, at_def, moved_scope, def_values):
    """Who reads and writes which buffer; see `LocalArrays`."""
    values, moves = p.value_op.shape[0], moved_scope.shape[0]
    shows, left_in = np.arange(values).astype(np.int32), np.arange(values).astype(np.int32)
    use_buffer = np.empty(p.operands.shape[0], np.int32)
    home = np.empty(values + moves + def_values.shape[0], np.int32)
    for d in range(def_values.shape[0]):
        left_in[def_values[d]] = values + moves + d
        home[values + moves + d] = p.op_scope[p.value_op[def_values[d]]]
    for r in range(moves):
        home[values + r] = moved_scope[r]
    for op in range(p.op_class.shape[0]):
        first, end, operand = p.result_ptr[op], p.result_ptr[op + 1], p.operand_ptr[op]
        for value in range(first, end):
            inside_loop = p.carry_body[op] >= 0 and value == first
            home[value] = p.carry_body[op] if inside_loop else p.op_scope[op]
            if p.is_view[op] and at_def[value] < 0:
                moved = of_use[operand + value - first]
                kept = moved < 0 or moves_nothing[moved]
                shows[value] = shows[p.operands[operand + value - first]] if kept else values + moved
    for use in range(p.operands.shape[0]):
        moved = of_use[use]
        kept = moved < 0 or moves_nothing[moved]
        use_buffer[use] = shows[p.operands[use]] if kept else values + moved
    return shows, use_buffer, left_in, home


@njit(cache=True)
def _op_work(p, native_elements, native_bytes, use_elements):
    ops = p.op_class.shape[0]
    vector, in_step, update = np.zeros(ops), np.full(ops, -1.0), np.zeros(ops)
    for op in range(ops):
        kind, first, end, result = p.op_class[op], p.operand_ptr[op], p.operand_ptr[op + 1], p.result_ptr[op]
        if kind == ELEMENTWISE:
            in_step[op] = native_elements[result]
            vector[op] = p.weight[op] * native_elements[result]
        elif kind in (REDUCE, OPAQUE):
            most = 0.0
            for use in range(first, end):
                most = max(most, use_elements[use])
            vector[op] = p.weight[op] * most
            if kind == REDUCE:
                in_step[op] = use_elements[first]
        elif kind == UPDATE:
            largest = use_elements[min(first + 1, end - 1)]
            for use in range(first + 1, end):
                largest = max(largest, use_elements[use])
            vector[op] = min(native_elements[result], largest)
            update[op] = min(native_bytes[result], largest * p.element_bytes[result])
    return vector, in_step, update


@njit(cache=True)
def _sizes(p, values, layouts, axis_sizes, rows, minor):
    """(bytes, elements) of each value in each layout."""
    count = values.shape[0]
    in_bytes, elements = np.empty(count), np.empty(count)
    dims = np.ones(p.shape.shape[1])
    for i in range(count):
        value, rank = values[i], p.rank[values[i]]
        dims[:] = p.shape[value]
        for axis in range(axis_sizes.shape[0]):
            action = action_of(layouts[i], axis)
            if 0 < action <= LAST_TILE:
                dims[action - 1] /= axis_sizes[axis]
        plain = 1.0
        for d in range(rank):
            plain *= dims[d]
        elements[i] = plain
        in_bytes[i] = plain * p.element_bytes[value]
        if minor > 1 and rank > 0 and plain > 0:
            in_bytes[i] = padded_elements(dims[:rank], p.element_bytes[value], rows, minor) * p.element_bytes[value]
    return in_bytes, elements


@njit(cache=True)
def padded_elements(dims, element_bytes, rows, minor):
    """Elements an array takes in tiles of `rows` 4-byte rows by `minor` columns, minor dims chosen to waste least.

    Rows below a full tile are padded to a power of two, as the TPU compiler does.
    """
    plain = 1.0
    for d in range(dims.shape[0]):
        plain *= dims[d]
    if dims.shape[0] == 1:
        return np.ceil(plain / minor) * minor
    full_rows = rows * max(1.0, 4.0 / element_bytes)
    best = np.inf
    for a in range(dims.shape[0]):
        for b in range(dims.shape[0]):
            if a != b:
                tile = 1.0
                while tile < dims[b] and tile < full_rows:
                    tile *= 2
                held = plain / (dims[a] * dims[b])
                best = min(best, held * np.ceil(dims[a] / minor) * minor * np.ceil(dims[b] / tile) * tile)
    return best


@njit(cache=True)
def _ways(mapping, passing, axis_sizes):
    ways = np.ones(mapping.shape[0])
    for op in range(mapping.shape[0]):
        for axis in range(axis_sizes.shape[0]):
            if mapping[op, axis] >= 0 and not passing[op] >> axis & 1:
                ways[op] *= axis_sizes[axis]
    return ways
