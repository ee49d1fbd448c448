"""The arrays that the simulator's kernels read: one tuple per program, one per lowering of it.

    ProgramArrays    what does not depend on the partitioning; made once (`program_arrays`)
    LocalArrays      bytes and elements on one device, and where redistributions stand (`local_arrays`)

Arrays over "buffers" have an entry for each of the V values, then V + r for each redistribution r of the R before uses,
then V + R + d for each value that is redistributed right after its op, d being its place in `at_def`: the buffer into
which the op writes.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from autopart.core.kernels import kernel
from autopart.core.layout import LAST_TILE, action_of
from autopart.core.program import Program
from autopart.costmodel.simulator.op_classes import ELEMENTWISE, OPAQUE, REDUCE, UPDATE, spec_costs

if TYPE_CHECKING:
    from autopart.spmd.device_local import DeviceLocal

BODY, BRANCH = 1, 2
"""Scope kinds that the kernels tell apart: loops (bodies and conditions), and branches; the program itself is 0."""


Records = Any
"""A NumPy record array, whose fields kernels read as attributes; NumPy's types know no fields."""


class ProgramArrays(NamedTuple):
    """A program, op by op. Facts about one kind of thing are the fields of one record array, so that an argument is few
    arrays: numba compiles each array of an argument anew for every function that takes it.

    ops      the columns of `SpecCosts`, op_scope, is_argument, carry_body (the body scope of a carry's loop, -1 for
             other ops)
    values   value_op, rank, elements (of the whole array), element_bytes, is_splat (a constant: no memory until it is
             written out), is_donated (an argument whose memory an output takes over)
    uses     operands, use_op, use_scope, use_position (as in `Program`)
    scopes   scope_parent, scope_kind, scope_start, scope_end (a condition ends where its loop's body does),
             scope_twin (a condition's body, any other scope itself), scope_trips
    outputs  output_value, output_use (a tied output's operand entry at its argument, else -1), output_argument (the
             donated argument whose memory the output takes over, else -1)
    """

    operand_ptr: np.ndarray
    result_ptr: np.ndarray
    user_ptr: np.ndarray
    user: np.ndarray
    shape: np.ndarray
    ops: Records
    values: Records
    uses: Records
    scopes: Records
    outputs: Records


def records(**fields: np.ndarray) -> Records:
    """One record array with a field per array; all of one length."""
    length = len(next(iter(fields.values())))
    table = np.empty(length, np.dtype([(name, array.dtype) for name, array in fields.items()], align=True))
    for name, array in fields.items():
        table[name] = array
    return table


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
    constant = costs.is_constant[spec]
    outputs = len(program.outputs)
    output_use, output_argument = np.full(outputs, -1, np.int32), np.full(outputs, -1, np.int32)
    for output, argument in program.ties.items():
        value = program.arguments[argument]
        output_use[output] = program.operand_ptr[program.value_op[value]]
        if argument in program.donated:
            output_argument[output] = value
    is_donated = np.zeros(program.value_count, np.bool_)
    is_donated[output_argument[output_argument >= 0]] = True
    return ProgramArrays(
        operand_ptr=program.operand_ptr,
        result_ptr=program.result_ptr,
        user_ptr=user_ptr,
        user=user,
        shape=program.value_shape,
        ops=records(
            **{name: column[spec] for name, column in costs._asdict().items()},
            op_scope=program.op_scope,
            is_argument=is_argument,
            carry_body=carry_body,
        ),
        values=records(
            value_op=program.value_op,
            rank=program.value_rank,
            elements=program.value_shape.prod(axis=1, dtype=np.float64),
            element_bytes=program.element_bytes,
            is_splat=constant[program.value_op],
            is_donated=is_donated,
        ),
        uses=records(
            operands=program.operands,
            use_op=program.use_op,
            use_scope=program.use_scope,
            use_position=program.use_position,
        ),
        scopes=records(
            scope_parent=np.array([s.parent for s in program.scopes], np.int32),
            scope_kind=np.array([kinds[s.kind] for s in program.scopes], np.int8),
            scope_start=np.array([s.start for s in program.scopes], np.int32),
            scope_end=end,
            scope_twin=twin,
            scope_trips=program.scope_trips.astype(np.float64),
        ),
        outputs=records(
            output_value=np.array(program.outputs, np.int32), output_use=output_use, output_argument=output_argument
        ),
    )


class LocalArrays(NamedTuple):
    """What one device holds, in bytes (with layout padding where asked for) and elements.

    values   native_bytes, native_elements: size of the value in the layout in which its op computes it;
             settled_bytes, settled_elements: size in the layout in which it settles;
             at_def: its place in `DeviceLocal.at_def`, else -1; shows: the buffer from which the value is read, for a
             view the buffer of the view's operand; left_in: the buffer into which its op writes it
    moves    moved_bytes, moved_elements: size of what a redistribution makes; moved_value, moved_scope, moved_position
             as in `Placement`; moves_nothing: the redistribution only slices, so its consumers slice as they read
    uses     use_elements: as the use reads it; of_use as in `Placement`; use_buffer: the buffer it reads
    ops      ways: over how many devices the op's work is divided; unfilled: how many times more work the matrix unit
             does than its tiles would need if they were filled; vector_flop: operations of the vector unit; in_step:
             elements an elementwise op or a reduction walks through, else -1; update_bytes: what an update changes
    home[b]  the scope buffer b belongs to; what a loop carries belongs to its body, its result does not
    """

    values: Records
    moves: Records
    uses: Records
    ops: Records
    home: np.ndarray


def local_arrays(
    local: DeviceLocal,
    program: ProgramArrays,
    layout_tile: tuple[int, int],
    matmul_tile: tuple[int, int, int],
    moves_nothing: np.ndarray,
) -> LocalArrays:
    """Sizes on one device; tiles of ones mean no padding."""
    sizes, place = np.array(local.mesh.axis_sizes, np.int64), local.placement
    rows, minor = layout_tile
    everything = np.arange(len(program.values), dtype=np.int32)
    native_bytes, native = _sizes(program, everything, local.native, sizes, rows, minor)
    settled_bytes, settled, at = native_bytes.copy(), native.copy(), local.at_def
    settled_bytes[at], settled[at] = _sizes(program, at, local.settled[at], sizes, rows, minor)
    moved_bytes, moved = _sizes(program, place.value, place.target, sizes, rows, minor)
    _, used = _sizes(program, local.program.operands, local.required, sizes, 1, 1)
    at_def = np.full(len(program.values), -1, np.int32)
    at_def[local.at_def] = np.arange(len(local.at_def))
    shows, use_buffer, left_in, home = _buffers(program, place.of_use, moves_nothing, at_def, place.scope, local.at_def)
    vector_flop, in_step, update_bytes = _op_work(program, native, native_bytes, used)
    return LocalArrays(
        values=records(
            native_bytes=native_bytes, native_elements=native, settled_bytes=settled_bytes, settled_elements=settled,
            at_def=at_def, shows=shows, left_in=left_in,
        ),
        moves=records(
            moved_bytes=moved_bytes, moved_elements=moved, moved_value=place.value.astype(np.int32),
            moved_scope=place.scope.astype(np.int32), moved_position=place.position.astype(np.int32),
            moves_nothing=moves_nothing,
        ),
        uses=records(use_elements=used, of_use=place.of_use.astype(np.int32), use_buffer=use_buffer),
        ops=records(
            ways=_ways(program, local.mapping, local.passing, sizes),
            unfilled=_unfilled(program, local.required, local.native, sizes, matmul_tile),
            vector_flop=vector_flop, in_step=in_step,
            update_bytes=update_bytes,
        ),
        home=home,
    )  # fmt: skip


@njit(cache=True)
def _buffers(
    program: ProgramArrays,
    of_use: np.ndarray,
    moves_nothing: np.ndarray,
    at_def: np.ndarray,
    moved_scope: np.ndarray,
    def_values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Who reads and writes which buffer; see `LocalArrays`."""
    values, moves = program.values.shape[0], moved_scope.shape[0]
    shows, left_in = np.arange(values).astype(np.int32), np.arange(values).astype(np.int32)
    use_buffer = np.empty(program.uses.shape[0], np.int32)
    home = np.empty(values + moves + def_values.shape[0], np.int32)
    for d in range(def_values.shape[0]):
        left_in[def_values[d]] = values + moves + d
        home[values + moves + d] = program.ops.op_scope[program.values.value_op[def_values[d]]]
    for r in range(moves):
        home[values + r] = moved_scope[r]
    for op in range(program.ops.shape[0]):
        first, end, operand = program.result_ptr[op], program.result_ptr[op + 1], program.operand_ptr[op]
        for value in range(first, end):
            inside_loop = program.ops.carry_body[op] >= 0 and value == first
            home[value] = program.ops.carry_body[op] if inside_loop else program.ops.op_scope[op]
            if program.ops.is_view[op] and at_def[value] < 0:
                moved = of_use[operand + value - first]
                kept = moved < 0 or moves_nothing[moved]
                shows[value] = shows[program.uses.operands[operand + value - first]] if kept else values + moved
    for use in range(program.uses.shape[0]):
        moved = of_use[use]
        kept = moved < 0 or moves_nothing[moved]
        use_buffer[use] = shows[program.uses.operands[use]] if kept else values + moved
    return shows, use_buffer, left_in, home


@njit(cache=True)
def _op_work(
    program: ProgramArrays, native_elements: np.ndarray, native_bytes: np.ndarray, use_elements: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(vector_flop, in_step, update_bytes) of every op; see `LocalArrays`."""
    ops = program.ops.shape[0]
    vector, in_step, update = np.zeros(ops), np.full(ops, -1.0), np.zeros(ops)
    for op in range(ops):
        kind, first, end, result = (
            program.ops.op_class[op],
            program.operand_ptr[op],
            program.operand_ptr[op + 1],
            program.result_ptr[op],
        )
        if kind == ELEMENTWISE:
            in_step[op] = native_elements[result]
            vector[op] = program.ops.weight[op] * native_elements[result]
        elif kind in (REDUCE, OPAQUE):
            most = 0.0
            for use in range(first, end):
                most = max(most, use_elements[use])
            vector[op] = program.ops.weight[op] * most
            if kind == REDUCE:
                in_step[op] = use_elements[first]
        elif kind == UPDATE:
            largest = use_elements[min(first + 1, end - 1)]
            for use in range(first + 1, end):
                largest = max(largest, use_elements[use])
            vector[op] = program.ops.weight[op] * largest
            update[op] = min(native_bytes[result], largest * program.values.element_bytes[result])
    return vector, in_step, update


@njit(cache=True)
def _sizes(
    program: ProgramArrays, values: np.ndarray, layouts: np.ndarray, axis_sizes: np.ndarray, rows: int, minor: int
) -> tuple[np.ndarray, np.ndarray]:
    """(bytes, elements) of each value in each layout."""
    count = values.shape[0]
    in_bytes, elements = np.empty(count), np.empty(count)
    dims = np.ones(program.shape.shape[1])
    for i in range(count):
        value = values[i]
        plain = program.values.elements[value]
        if layouts[i] != 0:
            for axis in range(axis_sizes.shape[0]):
                if 0 < action_of(layouts[i], axis) <= LAST_TILE:
                    plain /= axis_sizes[axis]
        elements[i] = plain
        in_bytes[i] = plain * program.values.element_bytes[value]
        rank = program.values.rank[value]
        if minor > 1 and rank > 0 and plain > 0:
            dims[:] = program.shape[value]
            for axis in range(axis_sizes.shape[0]):
                action = action_of(layouts[i], axis)
                if 0 < action <= LAST_TILE:
                    dims[action - 1] /= axis_sizes[axis]
            in_bytes[i] = (
                padded_elements(dims[:rank], program.values.element_bytes[value], rows, minor)
                * program.values.element_bytes[value]
            )
    return in_bytes, elements


@kernel
def padded_elements(dims: np.ndarray, element_bytes: float, rows: int, minor: int) -> float:
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


def held_elements(shape: tuple[int, ...], element_bytes: float, layout_tile: tuple[int, int]) -> float:
    """Elements that an array of `shape` takes in memory; a `layout_tile` of (1, 1) means no padding."""
    rows, minor = layout_tile
    dims = [n for n in shape if n != 1]
    if minor == 1 or not dims or 0 in dims:
        return float(math.prod(shape))
    return float(padded_elements(np.array(dims, np.float64), element_bytes, rows, minor))


@njit(cache=True)
def _unfilled(
    program: ProgramArrays, required: np.ndarray, native: np.ndarray, axis_sizes: np.ndarray, tile: tuple[int, int, int]
) -> np.ndarray:
    """float64[ops]: the work of a matrix product with its short dims filled up, over its work.

    A product [m, k] . [k, n] runs through the matrix unit in tiles of k and n. A dim shorter than its tile leaves the
    rest of the tile idle; of several dims summed over, or several columns, the one that wastes least lies in the tile.
    """
    unfilled = np.ones(program.ops.shape[0])
    for op in range(unfilled.shape[0]):
        if program.ops.summed[op] == 0 and program.ops.columns[op] == 0:
            continue
        use, result = program.operand_ptr[op], program.result_ptr[op]
        k = _fills(program, program.uses.operands[use], program.ops.summed[op], required[use], axis_sizes, tile[2])
        n = _fills(program, result, program.ops.columns[op], native[result], axis_sizes, tile[1])
        unfilled[op] = 1.0 / (k * n)
    return unfilled


@kernel
def _fills(program: ProgramArrays, value: int, dims: int, layout: int, axis_sizes: np.ndarray, tile: int) -> float:
    """The share of a tile that the best of some dims of a value fills; 1 where there are none."""
    if dims == 0:
        return 1.0
    share = 0.0
    for d in range(program.values.rank[value]):
        if dims >> d & 1:
            size = float(program.shape[value, d])
            for axis in range(axis_sizes.shape[0]):
                if action_of(layout, axis) == d + 1:
                    size /= axis_sizes[axis]
            share = max(share, size / tile)
    return min(share, 1.0)


@njit(cache=True)
def _ways(program: ProgramArrays, mapping: np.ndarray, passing: np.ndarray, axis_sizes: np.ndarray) -> np.ndarray:
    """float64[ops]: over how many devices the loops of each op divide it."""
    ways = np.ones(mapping.shape[0])
    for op in range(mapping.shape[0]):
        for axis in range(axis_sizes.shape[0]):
            number = mapping[op, axis]
            if number >= 0 and not passing[op] >> axis & 1 and not program.ops.repeats[op] >> number & 1:
                ways[op] *= axis_sizes[axis]
    return ways
