"""The work of each op on one device: over how many its loops are divided, tiles left unfilled, vector operations."""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import action_of
from autopart.core.ops.groups_as_one import merged
from autopart.costmodel.compiled.arrays import F32_BYTES, LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.compiled.facts.library_calls import COPY_PASSES, unfilled_by_library
from autopart.costmodel.compiled.facts.op_classes import CONV, ELEMENTWISE, MATMUL, OPAQUE, REDUCE
from autopart.costmodel.compiled.layout_assignment.layout_constraints import UNASKED, WRITTEN
from autopart.costmodel.compiled.local.grouped_tiles import padded_groups, share_of_group
from autopart.costmodel.compiled.local.spread_images import spread_work
from autopart.costmodel.compiled.local.transform_copies import transform_copies
from autopart.costmodel.compiled.local.unit_tiles import share_filled

TURNED_ON_CHIP = 0.25
"""Arrays and their copies of at most this share of the memory on the chip are there, both."""

ROWS_ON_CHIP = 0.5
"""Of the time through HBM, what a copy takes there that changes rows of tiles alone: 5.6 to 8.2 for 12.4 on v5e."""

NARROW_BYTES = 2.0
"""Of an element of a copy that a product of f32 reads: it is rounded as it is copied."""


@kernel
def op_work(program: ProgramArrays, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in `LocalArrays.ops`."""
    required, native, axis_sizes = lowered.required, lowered.native, lowered.axis_sizes
    for op in range(program.ops.shape[0]):
        kind, result = program.ops.op_class[op], program.result_ptr[op]
        first, end = program.operand_ptr[op], program.operand_ptr[op + 1]
        held.ops.ways[op] = _ways(program, lowered.mapping, lowered.passing, op, axis_sizes)
        held.ops.unfilled[op], held.ops.copied_bytes[op], held.ops.beside_bytes[op] = 1.0, 0.0, 0.0
        held.ops.registers[op] = _registers(program, lowered, held, op)
        _copy_operands(program, lowered, held, op)
        if lowered.left[op] != 0.0:
            each = program.values.element_bytes[result]
            held.ops.copied_bytes[op] += _copied_bytes(lowered, lowered.left[op], 2.0 * each)
        elif lowered.twice[op] != 0.0:
            held.ops.copied_bytes[op] += lowered.twice[op] * program.values.element_bytes[result]
        if kind in (MATMUL, CONV):
            in_groups = _groups_as_one(program, lowered, held, op)
            held.ops.unfilled[op] = _unfilled(
                program, op, in_groups,
                required[first], native[result], axis_sizes, lowered.matmul_tile,
                lowered.layout_tile, lowered.library,
            )  # fmt: skip
            for i in range(end - first):
                if program.ops.made_again[op] >> i & 1:
                    each = program.values.element_bytes[program.uses.operands[first + i]]
                    held.ops.copied_bytes[op] += COPY_PASSES * each * held.uses.use_elements[first + i]
            if in_groups[0] > in_groups[1] and lowered.layout_tile[1] > 1:
                _fill_groups(program, lowered, held, op, in_groups[1])
        vector, in_step, update = 0.0, -1.0, 0.0
        if kind == ELEMENTWISE:
            in_step = held.values.native_elements[result]
            vector = program.ops.weight[op] * in_step * _tiles_over_elements(program, held, result)
            if program.ops.spreads[op] and lowered.along_lanes[op]:
                vector += lowered.spread_flop * held.uses.use_elements[first]
        elif kind in (REDUCE, OPAQUE, CONV):
            copies = program.specs.transforms[program.ops.spec[op]]
            if copies >= 0:
                points = max(held.values.native_elements[result], held.uses.use_elements[first])
                held.ops.copied_bytes[op] += transform_copies(points, copies, lowered.on_chip_bytes)
                if program.values.element_bytes[result] > program.values.element_bytes[program.uses.operands[first]]:
                    _take(held, result, points * program.values.element_bytes[result])
            vector = program.ops.weight[op] * _largest(held, first, end, 0.0) * held.ops.unfilled[op]
            if kind == REDUCE and program.ops.takes[op]:
                in_step = _largest(held, first, end, 0.0)
        if program.ops.changes[op] >= 0:
            largest = _largest(held, first + 1, end, held.uses.use_elements[min(first + 1, end - 1)])
            vector += program.ops.weight[op] * largest
            update = min(held.values.native_bytes[result], largest * program.values.element_bytes[result])
        if program.ops.added[op] >= 0:
            update = _added_bytes(program, held, op)
        if kind == REDUCE:
            vector *= _tiles_over_elements(program, held, program.uses.operands[first])
        held.ops.vector_flop[op], held.ops.in_step[op], held.ops.update_bytes[op] = vector, in_step, update


@kernel
def _copy_operands(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Counts the copies of operands in another layout with the first op that asks; later ones read the copy.

    What is moved for a use is left as the use asks.
    """
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        value = program.uses.operands[use]
        moved = held.uses.use_elements[use] != held.values.native_elements[value]
        if lowered.copied[use] == 0.0 or moved:
            continue
        elements = abs(lowered.copied[use])
        each = NARROW_BYTES if program.ops.narrows[op] else program.values.element_bytes[value]
        if lowered.kept[value]:
            held.values.copy_bytes[value] = elements * each
        elif program.ops.carry_body[op] < 0:
            held.ops.beside_bytes[op] += elements * each
        both = each + program.values.element_bytes[value]
        held.ops.copied_bytes[op] += _copied_bytes(lowered, lowered.copied[use], both)


@kernel
def _copied_bytes(lowered: Lowered, elements: float, element_bytes: float) -> float:
    """Bytes that pass HBM in the time of a copy of `elements`, of which one and its copy take `element_bytes`.

    Where both are on the chip, tiles are turned as they pass the vector unit, which takes no time of its own.
    """
    on_chip = abs(elements) * element_bytes <= TURNED_ON_CHIP * lowered.on_chip_bytes
    if on_chip and elements < 0.0:
        return 0.0
    return (
        2.0 * F32_BYTES * elements * (ROWS_ON_CHIP if on_chip else 1.0)
        if elements > 0.0
        else -elements * lowered.turned_bytes
    )


@kernel
def _registers(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> float:
    """`LocalArrays.ops.registers`: of what an op leaves, or a reduction reads, if that cannot lie otherwise."""
    kind, value = program.ops.op_class[op], program.result_ptr[op]
    if kind == REDUCE:
        value = program.uses.operands[program.operand_ptr[op]]
    elif kind not in (ELEMENTWISE, CONV) or value == program.result_ptr[op + 1]:
        return 1.0
    return held.values.registers[value] if lowered.priority[value] not in (UNASKED, WRITTEN) else 1.0


@kernel
def _tiles_over_elements(program: ProgramArrays, held: LocalArrays, value: int) -> float:
    """How many times its elements a value takes in its layout tiles, which are computed whole."""
    plain = held.values.native_elements[value] * program.values.element_bytes[value]
    return max(1.0, held.values.native_bytes[value] / plain) if plain > 0 else 1.0


@kernel
def _added_bytes(program: ProgramArrays, held: LocalArrays, op: int) -> float:
    """What a sum changes in place of an array (`added_updates.py`); all of it, read and written, if what is added is
    moved before."""
    use = program.ops.added[op]
    if held.uses.of_use[use] >= 0 or held.values.at_def[program.uses.operands[use]] >= 0:
        return 2.0 * held.values.native_bytes[program.result_ptr[op]]
    return held.ops.update_bytes[program.uses.producer[use]]


@kernel
def _largest(held: LocalArrays, first: int, end: int, least: float) -> float:
    """Elements of the largest of some uses, at least `least`."""
    for use in range(first, end):
        least = max(least, held.uses.use_elements[use])
    return least


@kernel
def _ways(program: ProgramArrays, mapping: np.ndarray, passing: np.ndarray, op: int, axis_sizes: np.ndarray) -> float:
    """Over how many devices the loops of an op divide it."""
    ways, repeats = 1.0, program.specs.repeats[program.ops.spec[op]]
    for axis in range(axis_sizes.shape[0]):
        number = mapping[op, axis]
        if number >= 0 and not passing[op] >> axis & 1 and not repeats >> number & 1:
            ways *= axis_sizes[axis]
    return ways


@kernel
def _unfilled(
    program: ProgramArrays,
    op: int,
    in_groups: tuple[int, int],
    required: int,
    native: int,
    axis_sizes: np.ndarray,
    tile: tuple[int, int, int],
    layout_tile: tuple[int, int],
    library: tuple[float, float, float, float],
) -> float:
    """The work of a matrix product or convolution with its short dims filled up, over its work.

    A product [m, k] . [k, n] runs through the matrix unit in tiles of k and n; several dims summed over, or several
    columns, lie side by side. Where they are shorter than a tile, the rest of it is idle. A convolution's features fill
    its last tile up, too. One whose features each have a window of their own takes a tile for each place: libtpu 0.0.51
    on v5e counts 2 cycles for 8 x 128 elements and place, windows of 3, 5 and 7.

    Where holes lie between the places of images, rows are images alone (`spread_images.py`).

    in_groups: as `_groups_as_one` has it. A library fills up channels (`library_calls.py`).
    """
    spec, result, is_conv = program.ops.spec[op], program.result_ptr[op], program.ops.op_class[op] == CONV
    left, rows = program.uses.operands[program.operand_ptr[op]], program.specs.rows[spec]
    of_inner, of_columns, of_images = _groups(program, spec)
    columns = _beside(program, result, program.specs.columns[spec], native, axis_sizes, of_columns)
    images = _beside(program, left, program.specs.images[spec], required, axis_sizes, of_images)
    if rows != 0:
        inner = _beside(program, result, rows, native, axis_sizes, of_inner)
    else:
        inner = _beside(program, left, program.specs.summed[spec], required, axis_sizes, of_inner)
    taps = program.specs.taps[spec]
    if library[0] > 0:
        by_library = is_conv and taps > 0 and of_columns == 1
        return unfilled_by_library(inner, columns, rows != 0, library) if by_library else 1.0
    groups, as_one = in_groups
    inner, columns = as_one * inner, as_one * columns
    if groups > as_one:
        share = share_of_group(inner, columns, images, taps, rows != 0, tile, layout_tile[0])
    else:
        inner_last = program.specs.inner_last[spec]
        share = share_filled(inner, columns, images, taps, rows != 0, inner_last, is_conv, tile)
    work = _few_rows(program, op, native, axis_sizes, tile) / share if share > 0 else 1.0
    if is_conv and program.specs.apart[spec] > 1 and groups == as_one and layout_tile[1] > 1 and images < tile[1]:
        work = max(work, spread_work(inner, columns, images, tile))
    return as_one * work


@kernel
def _groups_as_one(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> tuple[int, int]:
    """Groups of a convolution on one device, and how many of these are one; 1 and 1 of one without groups."""
    spec, result, first = program.ops.spec[op], program.result_ptr[op], program.operand_ptr[op]
    of_inner, of_columns, of_images = _groups(program, spec)
    if of_columns == 1:
        return 1, 1
    left, sides, axis_sizes = program.uses.operands[first], program.specs, lowered.axis_sizes
    columns = _beside(program, result, sides.columns[spec], 0, axis_sizes, of_columns)
    groups = int(
        np.round(_beside(program, result, sides.columns[spec], lowered.native[result], axis_sizes, 1) / columns)
    )
    if lowered.layout_tile[1] == 1:
        return groups, 1
    if sides.rows[spec] != 0:
        inner = _beside(program, result, sides.rows[spec], lowered.native[result], axis_sizes, of_inner)
    else:
        inner = _beside(program, left, sides.summed[spec], lowered.required[first], axis_sizes, of_inner)
    images = _beside(program, left, sides.images[spec], lowered.required[first], axis_sizes, of_images)
    places = held.uses.use_elements[first] / (groups * inner)
    return groups, merged(groups, inner, columns, images, places, program.ops.of_tasks[op])


@kernel
def _fill_groups(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int, as_one: int) -> None:
    """Makes what a convolution in groups leaves as large as its tiles are; not the gradient of a kernel."""
    spec, result, left = program.ops.spec[op], program.result_ptr[op], program.operand_ptr[op]
    images_dims, native = program.specs.images[spec], lowered.native[result]
    if program.specs.rows[spec] != 0 or images_dims == 0:
        return
    given, of = program.uses.operands[left], _groups(program, spec)
    columns = _beside(program, result, program.specs.columns[spec], native, lowered.axis_sizes, of[1])
    inner = _beside(program, given, program.specs.summed[spec], lowered.required[left], lowered.axis_sizes, of[0])
    images = _beside(program, given, images_dims, lowered.required[left], lowered.axis_sizes, of[2])
    inner, columns = inner * as_one, columns * as_one
    each, tile = program.values.element_bytes[result], lowered.layout_tile
    _take(held, result, each * held.values.native_elements[result] * padded_groups(inner, columns, images, each, tile))


@kernel
def _take(held: LocalArrays, value: int, least: float) -> None:
    """Makes a result take so many bytes at least."""
    held.values.native_bytes[value] = max(held.values.native_bytes[value], least)
    if held.values.at_def[value] < 0:
        held.values.settled_bytes[value] = held.values.native_bytes[value]


@kernel
def _few_rows(
    program: ProgramArrays, op: int, native: int, axis_sizes: np.ndarray, tile: tuple[int, int, int]
) -> float:
    """How many times longer a product takes than its rows do: its tiles are no sooner brought into the matrix unit."""
    columns, result = program.specs.columns[program.ops.spec[op]], program.result_ptr[op]
    if columns == 0 or program.ops.op_class[op] == CONV:
        return 1.0
    rows = 1.0
    for d in range(program.values.rank[result]):
        if not columns >> d & 1:
            rows *= program.shape[result, d]
            for axis in range(axis_sizes.shape[0]):
                if action_of(native, axis) == d + 1:
                    rows /= axis_sizes[axis]
    return max(1.0, tile[0] / rows) if rows > 0 else 1.0


@kernel
def _groups(program: ProgramArrays, spec: int) -> tuple[int, int, int]:
    """How many groups of a convolution lie side by side along its inner dims, its columns and its images."""
    specs = program.specs
    return specs.inner_groups[spec], specs.column_groups[spec], specs.image_groups[spec]


@kernel
def _beside(program: ProgramArrays, value: int, dims: int, layout: int, axis_sizes: np.ndarray, groups: int) -> float:
    """Places along some dims of a value on one device, side by side; 0 where there are no dims. Of dims in groups those
    of one group, which no device has a part of."""
    size = 1.0 / groups if dims else 0.0
    for d in range(program.values.rank[value]):
        if dims >> d & 1:
            size *= program.shape[value, d]
            for axis in range(axis_sizes.shape[0]):
                if groups == 1 and action_of(layout, axis) == d + 1:
                    size /= axis_sizes[axis]
    return size
