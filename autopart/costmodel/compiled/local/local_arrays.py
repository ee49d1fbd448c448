"""What a device holds of a lowered program: bytes and elements of values, redistributions and uses, and its buffers."""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import NARROW_SHARE, LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.compiled.layout_assignment.layout_constraints import UNASKED
from autopart.costmodel.compiled.local.op_work import op_work
from autopart.costmodel.compiled.sizes import SizeTable, size_row
from autopart.costmodel.compiled.tiled_layouts import row_major


@kernel
def local_arrays(program: ProgramArrays, known: SizeTable, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in `held`; `known` are sizes of earlier lowerings of the program."""
    _moves(program, known, lowered, held)
    _values(program, known, lowered, held)
    _left_in(program, lowered.at_def, held)
    _shows(program, lowered.of_use, held)
    _uses(program, known, lowered, held)
    op_work(program, lowered, held)


@kernel
def _moves(program: ProgramArrays, known: SizeTable, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in redistributions, and the homes of their buffers."""
    defs, values = lowered.at_def.shape[0], program.values.shape[0]
    for r in range(lowered.value.shape[0]):
        value = lowered.value[r]
        held.moves.moved_value[r], held.moves.moved_scope[r] = value, lowered.scope[r]
        held.moves.moved_position[r], held.home[values + r] = lowered.position[r], lowered.scope[r]
        held.moves.moves_nothing[r] = lowered.moves_nothing[lowered.plan_rows[defs + r]]
        row = size_row(
            program, known, value, lowered.target[r], lowered.order[value], lowered.axis_sizes, lowered.layout_tile
        )
        share = lowered.shares[r] if lowered.shares.shape[0] > 0 else 1.0
        held.moves.moved_bytes[r] = known.sizes.in_bytes[row] * share * (NARROW_SHARE if lowered.narrow[r] else 1.0)
        held.moves.moved_elements[r] = known.sizes.elements[row] * share


@kernel
def _values(program: ProgramArrays, known: SizeTable, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in values as if nothing was redistributed after its op and none was a view, and their homes."""
    native, settled, axis_sizes, layout_tile = lowered.native, lowered.settled, lowered.axis_sizes, lowered.layout_tile
    in_bytes = elements = registers = 0.0
    for value in range(native.shape[0]):
        last, size_id, layout, order = value - 1, program.values.size_id[value], native[value], lowered.order[value]
        same = value > 0 and size_id == program.values.size_id[last] and order == lowered.order[last]
        if not same or layout != settled[last]:
            row = size_row(program, known, value, layout, order, axis_sizes, layout_tile)
            size = known.sizes[row]
            in_bytes, elements, registers = size.in_bytes, size.elements, size.registers
        op = program.values.value_op[value]
        held.values.native_bytes[value] = in_bytes
        if lowered.left[op] != 0.0 and program.ops.carry_body[op] < 0:
            row = size_row(
                program, known, value, layout, row_major(program.values.rank[value]), axis_sizes, layout_tile
            )
            held.values.native_bytes[value] = known.sizes.in_bytes[row]
        held.values.native_elements[value], held.values.registers[value] = elements, registers
        if settled[value] != layout:
            row = size_row(program, known, value, settled[value], order, axis_sizes, layout_tile)
            size = known.sizes[row]
            in_bytes, elements, registers = size.in_bytes, size.elements, size.registers
        held.values.settled_bytes[value] = in_bytes
        held.values.settled_elements[value] = elements
        held.values.at_def[value] = -1
        on_gpu = lowered.layout_tile[1] == 1
        held.values.laid_anew[value] = on_gpu and lowered.kept[value]
        held.values.turned[value] = on_gpu and program.ops.turns[op] and lowered.priority[value] == UNASKED
        held.values.copy_bytes[value] = lowered.twice[op] * program.values.element_bytes[value]
        held.values.shows[value] = held.values.left_in[value] = value
        inside_loop = program.ops.carry_body[op] >= 0 and value == program.result_ptr[op]
        held.home[value] = program.ops.carry_body[op] if inside_loop else program.ops.op_scope[op]


@kernel
def _left_in(program: ProgramArrays, def_values: np.ndarray, held: LocalArrays) -> None:
    """Fills in what ops leave where a redistribution follows: at_def, left_in and home."""
    first = program.values.shape[0] + held.moves.shape[0]
    for d in range(def_values.shape[0]):
        held.values.at_def[def_values[d]], held.values.left_in[def_values[d]] = d, first + d
        held.home[first + d] = program.ops.op_scope[program.values.value_op[def_values[d]]]


@kernel
def _shows(program: ProgramArrays, of_use: np.ndarray, held: LocalArrays) -> None:
    """Fills in the buffers that views show."""
    for i in range(program.views.shape[0]):
        op = program.views[i]
        first = program.result_ptr[op]
        for value in range(first, program.result_ptr[op + 1]):
            if held.values.at_def[value] < 0:
                held.values.shows[value] = _read_from(program, of_use, held, program.operand_ptr[op] + value - first)


@kernel
def _uses(program: ProgramArrays, known: SizeTable, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in uses."""
    for use in range(lowered.required.shape[0]):
        value, required = program.uses.operands[use], lowered.required[use]
        held.uses.of_use[use] = lowered.of_use[use]
        held.uses.use_buffer[use] = _read_from(program, lowered.of_use, held, use)
        if required == lowered.settled[value]:
            held.uses.use_elements[use] = held.values.settled_elements[value]
        else:
            row = size_row(
                program, known, value, required, lowered.order[value], lowered.axis_sizes, lowered.layout_tile
            )
            held.uses.use_elements[use] = known.sizes.elements[row]


@kernel
def _read_from(program: ProgramArrays, of_use: np.ndarray, held: LocalArrays, use: int) -> int:
    """The buffer that a use reads."""
    moved = of_use[use]
    kept = moved < 0 or held.moves.moves_nothing[moved]
    return held.values.shows[program.uses.operands[use]] if kept else program.values.shape[0] + moved
