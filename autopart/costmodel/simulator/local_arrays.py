"""What a device holds of a lowered program: bytes and elements of values, redistributions and uses, and its buffers."""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import NARROW_SHARE, LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.op_work import op_work
from autopart.costmodel.simulator.sizes import SizeTable, size_row


@kernel
def local_arrays(program: ProgramArrays, known: SizeTable, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in `held`; `known` are sizes of earlier lowerings of the program."""
    defs = lowered.at_def.shape[0]
    for r in range(lowered.value.shape[0]):
        held.moves.moved_value[r], held.moves.moved_scope[r] = lowered.value[r], lowered.scope[r]
        held.moves.moved_position[r] = lowered.position[r]
        held.moves.moves_nothing[r] = lowered.moves_nothing[lowered.plan_rows[defs + r]]
    for use in range(lowered.of_use.shape[0]):
        held.uses.of_use[use] = lowered.of_use[use]
    _sizes(program, known, lowered, held)
    _buffers(program, lowered.at_def, held)
    op_work(program, lowered, held)


@kernel
def _sizes(program: ProgramArrays, known: SizeTable, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in bytes and elements of values, redistributions and uses."""
    native, settled, required = lowered.native, lowered.settled, lowered.required
    target, axis_sizes, layout_tile = lowered.target, lowered.axis_sizes, lowered.layout_tile
    in_bytes = row_bytes = elements = 0.0
    for value in range(native.shape[0]):
        last, by_rows = value - 1, program.values.in_rows[value]
        size_id, layout = program.values.size_id[value], native[value]
        if value == 0 or size_id != program.values.size_id[last] or layout != settled[last]:
            row = size_row(program, known, value, layout, axis_sizes, layout_tile)
            size = known.sizes[row]
            in_bytes, row_bytes, elements = size.in_bytes, size.row_bytes, size.elements
        held.values.native_bytes[value] = row_bytes if by_rows else in_bytes
        held.values.native_elements[value] = elements
        if settled[value] != layout:
            row = size_row(program, known, value, settled[value], axis_sizes, layout_tile)
            size = known.sizes[row]
            in_bytes, row_bytes, elements = size.in_bytes, size.row_bytes, size.elements
        held.values.settled_bytes[value] = row_bytes if by_rows else in_bytes
        held.values.settled_elements[value], held.values.row_bytes[value] = elements, row_bytes
    for r in range(target.shape[0]):
        row = size_row(program, known, held.moves.moved_value[r], target[r], axis_sizes, layout_tile)
        share = lowered.shares[r] if lowered.shares.shape[0] > 0 else 1.0
        by_rows = program.values.in_rows[held.moves.moved_value[r]]
        size = known.sizes.row_bytes[row] if by_rows else known.sizes.in_bytes[row]
        held.moves.moved_bytes[r] = size * share * (NARROW_SHARE if lowered.narrow[r] else 1.0)
        held.moves.moved_elements[r] = known.sizes.elements[row] * share
    for use in range(required.shape[0]):
        value = program.uses.operands[use]
        if required[use] == settled[value]:
            held.uses.use_elements[use] = held.values.settled_elements[value]
        else:
            row = size_row(program, known, value, required[use], axis_sizes, layout_tile)
            held.uses.use_elements[use] = known.sizes.elements[row]


@kernel
def _buffers(program: ProgramArrays, def_values: np.ndarray, held: LocalArrays) -> None:
    """Fills in who reads and writes which buffer: at_def, shows, left_in, use_buffer and home."""
    values, moves = program.values.shape[0], held.moves.shape[0]
    for value in range(values):
        held.values.at_def[value] = -1
        held.values.shows[value] = held.values.left_in[value] = value
    for d in range(def_values.shape[0]):
        held.values.at_def[def_values[d]] = d
        held.values.left_in[def_values[d]] = values + moves + d
        held.home[values + moves + d] = program.ops.op_scope[program.values.value_op[def_values[d]]]
    for r in range(moves):
        held.home[values + r] = held.moves.moved_scope[r]
    for op in range(program.ops.shape[0]):
        first, end, operand = program.result_ptr[op], program.result_ptr[op + 1], program.operand_ptr[op]
        for value in range(first, end):
            inside_loop = program.ops.carry_body[op] >= 0 and value == first
            held.home[value] = program.ops.carry_body[op] if inside_loop else program.ops.op_scope[op]
            if program.ops.is_view[op] and held.values.at_def[value] < 0:
                held.values.shows[value] = _read_from(program, held, operand + value - first)
    for use in range(program.uses.shape[0]):
        held.uses.use_buffer[use] = _read_from(program, held, use)


@kernel
def _read_from(program: ProgramArrays, held: LocalArrays, use: int) -> int:
    """The buffer that a use reads."""
    moved = held.uses.of_use[use]
    kept = moved < 0 or held.moves.moves_nothing[moved]
    return held.values.shows[program.uses.operands[use]] if kept else program.values.shape[0] + moved
