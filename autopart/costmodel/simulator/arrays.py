"""The arrays that the simulator's kernels read: one tuple per program, one per lowering of it.

    ProgramArrays    what does not depend on the partitioning; made once (`program_arrays`)
    LocalArrays      bytes and elements on one device, and where redistributions stand (`local_arrays.py`, `op_work.py`)
    Lowered          the lowering, as kernels read it

Arrays over "buffers" have an entry for each of the V values, then V + r for each redistribution r of the R before uses,
then V + R + d for each value that is redistributed right after its op, d being its place in `at_def`: the buffer into
which the op writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.simulator.facts.added_updates import added_updates
from autopart.costmodel.simulator.facts.batch_layouts import beside_products, outer_dims
from autopart.costmodel.simulator.facts.behind_reshapes import behind_reshapes
from autopart.costmodel.simulator.facts.cache_layouts import caches
from autopart.costmodel.simulator.facts.counted_values import counted_shares
from autopart.costmodel.simulator.facts.cut_arrays import BY_PARTS, cut_arrays, cuts_tiles, laid_parts
from autopart.costmodel.simulator.facts.flattened_images import flattened_images
from autopart.costmodel.simulator.facts.group_sums import group_sums
from autopart.costmodel.simulator.facts.head_copies import between_heads
from autopart.costmodel.simulator.facts.head_layouts import token_lanes
from autopart.costmodel.simulator.facts.image_layouts import (
    few_features,
    gradient_rows,
    outside_images,
    rounded_images,
    written_images,
)
from autopart.costmodel.simulator.facts.image_uses import image_uses
from autopart.costmodel.simulator.facts.joined_images import (
    added_images,
    joined_arrays,
    joined_images,
    split_images,
)
from autopart.costmodel.simulator.facts.library_calls import operands_alone
from autopart.costmodel.simulator.facts.looked_up_windows import outside_windows, sums_windows
from autopart.costmodel.simulator.facts.masked_products import masked_products
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE, FREE, SLICING, UPDATE, spec_costs
from autopart.costmodel.simulator.facts.patches import patches
from autopart.costmodel.simulator.facts.pools import read_rounded
from autopart.costmodel.simulator.facts.repeats import repeats
from autopart.costmodel.simulator.facts.row_kernels import row_kernels
from autopart.costmodel.simulator.facts.row_layouts import in_rows
from autopart.costmodel.simulator.facts.short_rows import short_rows
from autopart.costmodel.simulator.facts.softmax_rows import softmax_rows
from autopart.costmodel.simulator.facts.spread_results import spread_results
from autopart.costmodel.simulator.facts.swapped_windows import reversed_arrays, swapped_windows
from autopart.costmodel.simulator.facts.taken_apart import taken_apart
from autopart.costmodel.simulator.room import Empty
from autopart.costmodel.simulator.sizes import size_ids

if TYPE_CHECKING:
    from autopart.spmd.device_local import DeviceLocal

F32_BYTES = 4.0

NARROW_SHARE = 0.5
"""The share of an f32's bytes that a bf16 has."""

CARRIED_SHARE = 0.75
"""What a loop holds throughout takes at most this share of the memory on the chip: libtpu 0.0.51 on v5e leaves three
caches of 32 MiB there, or one beside a table of 62 MiB, one of 64 MiB, and none of the next."""

BODY, BRANCH = 1, 2
"""Scope kinds that the kernels tell apart: loops (bodies and conditions), and branches; the program itself is 0."""


Records = Any
"""A NumPy record array, whose fields kernels read as attributes; NumPy's types know no fields."""


class ProgramArrays(NamedTuple):
    """A program, op by op. Facts about one kind of thing are the fields of one record array, so that an argument is few
    arrays: numba compiles each array of an argument anew for every function that takes it.

    ops      the columns of `SpecCosts` that passes over all ops read; spec (its row in `specs`), op_scope, is_argument,
             carry_body (the body scope of a carry's loop, -1 for other ops), is_gradient, image_stride
             (`image_uses.py`), is_largest (`softmax_rows.py`), between_heads (`head_copies.py`), few_features,
             gradient_row (`image_layouts.py`), of_rows (`row_kernels.py`), changes, added (`added_updates.py`),
             is_swapped (`swapped_windows.py`), sums_groups (`group_sums.py`), copied, features (`taken_apart.py`),
             operands (how many it has, each counted once), reshapes, mixes (`behind_reshapes.py`),
             cuts_tiles, laid_parts (`cut_arrays.py`), moved (`patches.py`, `repeats.py`),
             apart (`masked_products.py`), flattened (`flattened_images.py`), made_again (`library_calls.py`)
    specs    the other columns of `SpecCosts`: a row per distinct op, so that rows of `ops` are short and stay on chip
    values   value_op, rank, elements (of the whole array), element_bytes, size_id (equal for those with
             equal bytes in equal layouts), outer (a bit for each dim outside the layout tiles: `batch_layouts.py`,
             `image_layouts.py`; `LANES_BIT` of the dim along the lanes: `head_layouts.py`),
             is_splat (a constant: no memory until it is written out), is_donated (an argument whose memory an output
             takes over), is_output, in_rows (its rows may lie side by side), row_arrays (`row_layouts.py`,
             `cache_layouts.py`), exponential (`softmax_rows.py`), shifted (`row_kernels.py`), is_of_images (what a
             convolution leaves, and what is computed of it), is_image (written for convolutions: `image_layouts.py`),
             is_looked_up (wider than what it is computed from, element by element, and written for a look-up alone),
             is_written (for slices and joints: `cut_arrays.py`, for convolutions:
             `swapped_windows.py`, `joined_images.py`, for products: `taken_apart.py`, before it is spread:
             `spread_results.py`, or reshaped: `behind_reshapes.py`), laid (`cut_arrays.py`), looked_up (a bit for each
             dim of indices: `looked_up_windows.py`), split (`joined_images.py`), short_row (`short_rows.py`), masked
             (`masked_products.py`), counted (`counted_values.py`)
    spaces   the other facts of `image_uses.py`: a row per distinct op
    uses     operands, use_op, use_scope, use_position (as in `Program`), producer (the op that makes the operand),
             reads (`image_uses.py`), joined (`joined_images.py`)
    scopes   scope_parent, scope_kind, scope_start, scope_end (a condition ends where its loop's body does),
             scope_twin (a condition's body, any other scope itself), scope_trips
    outputs  output_value, output_use (a tied output's operand entry at its argument, else -1), output_argument (the
             donated argument whose memory the output takes over, else -1)

    Lists of ops, so that a pass that is about few of them walks through no more:

    structure   what runs nothing and yet holds or reads memory: loops, branches, constants that are no splats
    carries     of structure, what loops carry
    ended       the same as their loops end
    views       what another name is given to
    fences      of views, the barriers: what reads through them runs no earlier than they stand
    spread      constants, and what is made of nothing but these without work: what is spread out of them

    place       int32[ops + 1]: where an op stands; its number, unless ops are left out (`all_layers.py`)
    """

    operand_ptr: np.ndarray
    result_ptr: np.ndarray
    user_ptr: np.ndarray
    user: np.ndarray
    shape: np.ndarray
    ops: Records
    specs: Records
    spaces: Records
    values: Records
    uses: Records
    scopes: Records
    outputs: Records
    structure: np.ndarray
    carries: np.ndarray
    ended: np.ndarray
    views: np.ndarray
    fences: np.ndarray
    spread: np.ndarray
    place: np.ndarray


OP_COLUMNS = (
    "op_class", "matrix_dtype", "is_view", "fuses", "takes", "narrows", "turns", "spreads", "matrix_flop",
    "weight",
)  # fmt: skip
"""Columns of `SpecCosts` that stand with each op."""

LOOKED_AT = ("op_class", "fuses", "weight", "spreads", "narrows")
"""Those that depend on what is around the op, too."""


def records(**fields: np.ndarray) -> Records:
    """One record array with a field per array, wide fields first, so that rows are short; all of one length."""
    length = len(next(iter(fields.values())))
    fields = dict(sorted(fields.items(), key=lambda field: -field[1].dtype.itemsize))
    table = np.empty(length, np.dtype([(name, array.dtype) for name, array in fields.items()], align=True))
    for name, array in fields.items():
        table[name] = array
    return table


def program_arrays(program: Program, chip: Device) -> ProgramArrays:
    """Collects them, for the device's compiler; milliseconds for a training step."""
    costs, spec = spec_costs(program, chip)._asdict(), program.op_spec
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
    constant, op_class = costs["is_constant"][spec], costs["op_class"][spec]
    updates = added_updates(program, op_class == UPDATE, chip.selects_updates)
    inside, sums = updates.scatters, updates.added >= 0
    op_class = np.where(inside, ELEMENTWISE, np.where(sums, UPDATE, op_class)).astype(np.int8)
    cached, outer_of_sums = caches(program, op_class)
    rounded = rounded_images(program)
    of_products, images = outer_dims(program, op_class, outer_of_sums), image_uses(program, op_class)
    of_images = np.where(of_products > 0, 0, outside_images(program, op_class, rounded))
    outer = np.where(of_products > 0, of_products, of_images)
    outer = np.where(outer > 0, outer, token_lanes(program))
    looked_up = outside_windows(program, op_class, costs["spreads"][spec], costs["turns"][spec], chip.layout_tile[1])
    outer = np.where(outer > 0, outer, looked_up)
    narrows = costs["narrows"][spec]
    few = few_features(program, rounded, narrows)
    swapped = swapped_windows(program) & chip.selects_updates
    joined = joined_images(program) * chip.selects_updates
    apart, (by_row, row_arrays) = taken_apart(program), in_rows(program, op_class, updates)
    softmax = softmax_rows(program, op_class, costs["weight"][spec], chip.selects_updates)
    rows = row_kernels(program, op_class, costs["weight"][spec], chip.selects_updates)
    places = output_places(program)
    is_donated, is_output = np.zeros(program.value_count, np.bool_), np.zeros(program.value_count, np.bool_)
    is_donated[places.argument[places.argument >= 0]] = True
    is_output[program.outputs] = True
    is_view, is_splat = costs["is_view"][spec], constant[program.value_op]
    moves = is_view | ((op_class == ELEMENTWISE) & (costs["weight"][spec] == 0))
    computed = spread_results(program, op_class, moves)
    made_of_splats = np.zeros(program.op_count, np.bool_)
    made_of_splats[program.value_op[is_splat]] = True
    idle = ((costs["weight"] == 0) & (costs["matrix_flop"] == 0))[spec]
    spread, moved = _spread(program, idle & ~is_argument), _spread(program, idle)
    structure = ((op_class == FREE) & ~is_view & ~is_argument & ~made_of_splats) | (carry_body >= 0)
    carries = np.flatnonzero(carry_body >= 0).astype(np.int32)
    cut = cut_arrays(program, is_argument | structure | (op_class == UPDATE), chip.layout_tile[1])
    patch, again = patches(program), repeats(program)
    written = reversed_arrays(program, swapped) | joined_arrays(program, joined) | cut.written | apart.written
    behind = behind_reshapes(program, op_class, costs["fuses"][spec], spread)
    certain = cut.multiplied & ~spread[program.value_op] | (cut.laid == BY_PARTS) | patch.written | again.written
    flat = flattened_images(program, op_class, outer)
    written = ((written | flat.written) & ~moved[program.value_op]) | certain | behind.written | computed
    masked = masked_products(program, op_class, moves, is_splat, written | _read_written(program, costs["takes"][spec]))
    return ProgramArrays(
        operand_ptr=program.operand_ptr,
        result_ptr=program.result_ptr,
        user_ptr=user_ptr,
        user=user,
        shape=program.value_shape,
        ops=records(
            **{name: costs[name][spec] for name in OP_COLUMNS if name not in LOOKED_AT},
            op_class=op_class,
            fuses=(costs["fuses"][spec] & ~sums) | inside,
            weight=np.where(inside | sums, 0.0, costs["weight"][spec]),
            narrows=narrows | read_rounded(program, narrows),
            changes=updates.changes,
            added=updates.added,
            spreads=costs["spreads"][spec] & ~beside_products(program, of_products),
            is_argument=is_argument,
            spec=spec.astype(np.int32),
            op_scope=program.op_scope,
            carry_body=carry_body,
            is_gradient=images.gradient,
            image_stride=images.strides,
            is_largest=softmax.largest,
            of_rows=rows.inside,
            between_heads=between_heads(program, op_class) * chip.selects_updates,
            few_features=few,
            gradient_row=gradient_rows(program),
            sums_windows=sums_windows(program, looked_up),
            sums_groups=group_sums(program, op_class) & chip.selects_updates,
            is_swapped=swapped,
            copied=apart.copied,
            reshapes=behind.reshapes & chip.selects_updates,
            mixes=behind.mixes,
            cuts_tiles=cuts_tiles(program, chip.layout_tile),
            laid_parts=laid_parts(program, cut.laid * chip.selects_updates, chip.layout_tile[1]),
            moved=(patch.moved + again.marks) * chip.selects_updates,
            apart=masked.apart,
            flattened=flat.copied,
            features=apart.features,
            operands=_distinct_operands(program),
            made_again=_made_again(program, chip, op_class, costs),
        ),
        specs=records(**{name: column for name, column in costs.items() if name not in OP_COLUMNS}),
        spaces=images.spaces,
        values=records(
            value_op=program.value_op,
            rank=program.value_rank,
            elements=program.value_shape.prod(axis=1, dtype=np.float64),
            element_bytes=program.element_bytes,
            size_id=size_ids(program.value_type_id, outer),
            outer=outer,
            is_splat=is_splat,
            is_donated=is_donated,
            is_output=is_output,
            masked=masked.masked * chip.selects_updates,
            in_rows=cached | by_row,
            row_arrays=np.where(cached, 0, row_arrays).astype(np.int32),
            exponential=softmax.exponential,
            shifted=rows.shifted,
            is_of_images=(of_images > 0) & chip.selects_updates,
            is_image=written_images(program, rounded, few),
            is_written=written & chip.selects_updates,
            laid=cut.laid * chip.selects_updates,
            is_looked_up=_looked_up(program, op_class, costs["takes"][spec]),
            looked_up=looked_up,
            split=split_images(program) * chip.selects_updates,
            short_row=short_rows(program, chip.layout_tile[1]) * chip.selects_updates,
            counted=counted_shares(program, moves),
        ),
        uses=records(
            operands=program.operands,
            producer=program.value_op[program.operands],
            use_op=program.use_op,
            use_scope=program.use_scope,
            use_position=program.use_position,
            reads=images.reads,
            joined=np.maximum(joined, added_images(program) * chip.selects_updates),
        ),
        scopes=records(
            scope_parent=np.array([s.parent for s in program.scopes], np.int32),
            scope_kind=np.array([kinds[s.kind] for s in program.scopes], np.int8),
            scope_start=np.array([s.start for s in program.scopes], np.int32),
            scope_end=end,
            scope_twin=twin,
            scope_trips=program.scope_trips.astype(np.float64),
        ),
        outputs=records(output_value=places.value, output_use=places.use, output_argument=places.argument),
        structure=np.flatnonzero(structure).astype(np.int32),
        carries=carries,
        ended=carries[np.argsort(end[carry_body[carries]], kind="stable")],
        views=np.flatnonzero(is_view).astype(np.int32),
        fences=np.flatnonzero(is_view & ~costs["takes"][spec]).astype(np.int32),
        spread=np.flatnonzero(spread).astype(np.int32),
        place=np.arange(program.op_count + 1, dtype=np.int32),
    )


class OutputPlaces(NamedTuple):
    """Of outputs: the value; where it is tied, the operand entry at its argument; the argument whose memory it takes
    over. -1 where there is none."""

    value: np.ndarray
    use: np.ndarray
    argument: np.ndarray


def output_places(program: Program) -> OutputPlaces:
    """Those of a program."""
    outputs, passed = len(program.outputs), set(program.passed_arguments)
    use, taken = np.full(outputs, -1, np.int32), np.full(outputs, -1, np.int32)
    for output, argument in program.ties.items():
        value = program.arguments[argument]
        use[output] = program.operand_ptr[program.value_op[value]]
        if argument in program.donated and argument in passed:
            taken[output] = value
    return OutputPlaces(np.array(program.outputs, np.int32), use, taken)


def _read_written(program: Program, takes: np.ndarray) -> np.ndarray:
    """bool[values]: what an op that computes nothing inside itself reads."""
    found = np.zeros(program.value_count, np.bool_)
    found[program.operands[~takes[program.use_op]]] = True
    return found


def _made_again(program: Program, chip: Device, op_class: np.ndarray, costs: dict[str, np.ndarray]) -> np.ndarray:
    """`ProgramArrays.ops.made_again`: nothing without a library."""
    if chip.library is None:
        return np.zeros(program.op_count, np.int8)
    by_op = [costs[name][program.op_spec] for name in ("weight", "is_view", "batches", "behind")]
    return operands_alone(program, op_class, *by_op)


def _distinct_operands(program: Program) -> np.ndarray:
    """`ProgramArrays.ops.operands`."""
    pairs = np.unique(program.use_op.astype(np.int64) * program.value_count + program.operands)
    return np.bincount(pairs // max(1, program.value_count), minlength=program.op_count).astype(np.int32)


def _looked_up(program: Program, op_class: np.ndarray, takes: np.ndarray) -> np.ndarray:
    """`ProgramArrays.values.is_looked_up`."""
    found, elements = np.zeros(program.value_count, np.bool_), program.value_shape.prod(axis=1)
    for op in np.flatnonzero((op_class == SLICING) & ~takes).tolist():
        value = int(program.operands[program.operand_ptr[op]])
        maker = int(program.value_op[value])
        read = program.operands[program.operand_ptr[maker] : program.operand_ptr[maker + 1]]
        wider = len(read) == 1 and elements[read[0]] == elements[value]
        found[value] = wider and program.element_bytes[read[0]] < program.element_bytes[value]
    return found & (op_class[program.value_op] == ELEMENTWISE)


def _spread(program: Program, idle: np.ndarray) -> np.ndarray:
    """bool[ops]: which of the ops without work read nothing but each other."""
    producer, reads = program.value_op[program.operands], np.diff(program.operand_ptr)
    idle = idle & (np.diff(program.result_ptr) == 1)
    spread = idle & (reads == 0)
    while True:
        more = idle & (np.bincount(program.use_op[spread[producer]], minlength=len(idle)) == reads)
        if (more == spread).all():
            return spread
        spread = more


class LocalArrays(NamedTuple):
    """What one device holds, in bytes (with layout padding where asked for) and elements.

    values   native_bytes, native_elements: size of the value in the layout in which its op computes it;
             settled_bytes, settled_elements: size in the layout in which it settles; row_bytes: the same with its rows
             side by side; in_rows: so it settles (`row_layouts.py`); at_def: its place in `DeviceLocal.at_def`, else
             -1; shows: the buffer from which the value is read, for a view the buffer of the view's operand; left_in:
             the buffer into which its op writes it; is_packed: bits and a rounded array are kept of it
             (`packed_masks.py`); is_rounded: a product's kernel leaves it as bf16 (`rounded_once.py`)
    moves    moved_bytes, moved_elements: size of what a redistribution makes; moved_value, moved_scope, moved_position
             as in `Placement`; moves_nothing: the redistribution only slices, so its consumers slice as they read
    uses     use_elements: as the use reads it; of_use as in `Placement`; use_buffer: the buffer it reads
    ops      ways: over how many devices the op's work is divided; unfilled: how many times more work the matrix unit
             does than its tiles would need if they were filled; vector_flop: operations of the vector unit; in_step:
             elements an elementwise op or a reduction walks through, else -1; update_bytes: what an update changes;
             copied_bytes: moved by copies of its result for products of another kind (`head_copies.py`), of what is
             taken apart (`taken_apart.py`), or between those of a transform (`transform_copies.py`) or sort;
             image_bytes: that it reads of a copy of its images, not of these (`few_features.py`); tiled_flop: to
             walk through windows that were looked up, once in a kernel (`window_tiles.py`); padded_copy: with what
             fills up the lanes, over elements, of the copy of its result that heads keep (`head_copies.py`); 0 if they
             keep none; laid_flop, laid_once: to lay parts beside each other inside a
             kernel, for each op and once in a kernel (`laid_parts.py`)
    images   of values: part: of images in parts, the share that each has of an image's places; cut_by: the convolution
             that leaves them so, -1 for whole images; is_copied: they are put together, too, or whole images are cut,
             too; is_written: they are cut again into longer parts, or it is spread over parts of images; padded: rows
             that whole images are padded to over images; written: bytes of the copy that is made of given images
             (`few_features.py`), or of all tasks' for each task (`image_copies.py`). Empty for a program without
             convolutions
    padding  of ops: walked: elements that it walks through, with those that pad images and parts, over elements;
             copies, copied_bytes: kernels that cut images into parts or put them together, and what they move. Empty
             where `images` is
    home[b]  the scope buffer b belongs to; what a loop carries belongs to its body, its result does not
    """

    values: Records
    moves: Records
    uses: Records
    ops: Records
    images: Records
    padding: Records
    home: np.ndarray


VALUE_FIELDS = np.dtype(
    [
        ("native_bytes", np.float64), ("native_elements", np.float64), ("settled_bytes", np.float64),
        ("settled_elements", np.float64), ("row_bytes", np.float64), ("at_def", np.int32), ("shows", np.int32),
        ("left_in", np.int32), ("in_rows", np.bool_), ("is_packed", np.bool_),
        ("is_rounded", np.bool_),
    ],
    align=True,
)  # fmt: skip

MOVE_FIELDS = np.dtype(
    [
        ("moved_bytes", np.float64), ("moved_elements", np.float64), ("moved_value", np.int32),
        ("moved_scope", np.int32), ("moved_position", np.int32), ("moves_nothing", np.bool_),
    ],
    align=True,
)  # fmt: skip

USE_FIELDS = np.dtype([("use_elements", np.float64), ("of_use", np.int32), ("use_buffer", np.int32)], align=True)

OP_FIELDS = np.dtype(
    [
        ("ways", np.float64), ("unfilled", np.float64), ("vector_flop", np.float64), ("in_step", np.float64),
        ("update_bytes", np.float64), ("copied_bytes", np.float64), ("image_bytes", np.float64),
        ("tiled_flop", np.float64), ("padded_copy", np.float64), ("laid_flop", np.float64),
        ("laid_once", np.float64),
    ],
    align=True,
)  # fmt: skip


IMAGE_FIELDS = np.dtype(
    [
        ("part", np.float64), ("padded", np.float64), ("written", np.float64), ("cut_by", np.int32),
        ("is_copied", np.bool_), ("is_written", np.bool_),
    ],
    align=True,
)  # fmt: skip

PADDING_FIELDS = np.dtype([("walked", np.float64), ("copies", np.float64), ("copied_bytes", np.float64)], align=True)


class Lowered(NamedTuple):
    """The arrays of a `DeviceLocal`, and what they are looked at by.

    mapping, passing, native, settled, required, at_def   its own
    value, target, scope, position, of_use                its placement's
    by_position    the redistributions before uses in the order of their positions
    shares[r]      share of what redistribution r makes that is read, where stretches are; empty where none are
    narrow[r]      redistribution r moves bf16 for f32 (`narrow_moves.py`)
    plan_rows      int32[at_def, then redistributions for uses]: rows of `KnownPlans`
    moves_nothing  of each such row
    axis_sizes     of the mesh
    layout_tile, matmul_tile   of the device; ones mean no padding
    cut_images     as in `Device`
    nests_products   as in `AroundMatmul`
    spread_flop    as many operations as the vector unit could do while it puts one number along a row
    turn_passes    how often the bytes of given images could be read or written at HBM's rate while they are written
                   with features or images along the lanes; 0: they are not
    on_chip_bytes  as in `Device`
    library        as in `Device`, its numbers in order; zeros where there is none
    """

    mapping: np.ndarray
    passing: np.ndarray
    native: np.ndarray
    settled: np.ndarray
    required: np.ndarray
    at_def: np.ndarray
    value: np.ndarray
    target: np.ndarray
    scope: np.ndarray
    position: np.ndarray
    by_position: np.ndarray
    of_use: np.ndarray
    shares: np.ndarray
    narrow: np.ndarray
    plan_rows: np.ndarray
    moves_nothing: np.ndarray
    axis_sizes: np.ndarray
    layout_tile: tuple[int, int]
    matmul_tile: tuple[int, int, int]
    cut_images: int
    nests_products: bool
    spread_flop: float
    turn_passes: float
    on_chip_bytes: float
    library: tuple[float, float, float, float]


def stretch_shares(local: DeviceLocal, plan_rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """`Lowered.shares` of a lowering; redistributions of one plan read the same share, which is worked out once.

    known[row]   that of a plan, NaN where nobody has asked for it; filled in
    """
    place = local.placement
    stretched = np.flatnonzero(place.stretch)
    shares = np.ones(len(place.value) if len(stretched) else 0)
    if not len(stretched):
        return shares
    rows = plan_rows[len(local.at_def) :][stretched]
    new = np.isnan(known[rows])
    for row, r in dict(zip(rows[new].tolist(), stretched[new].tolist(), strict=True)).items():
        value, layout = int(place.value[r]), int(place.target[r])
        known[row] = local.read_type(value, layout, int(place.stretch[r])).bytes / local.local_type(value, layout).bytes
    shares[stretched] = known[rows]
    return shares


def empty_local_arrays(program: ProgramArrays, moves: int, defs: int, empty: Empty) -> LocalArrays:
    """Room for what a device holds, with so many redistributions before uses and after ops."""
    values = len(program.values)
    images = bool(program.spaces["is_one"].any())
    return LocalArrays(
        values=empty(values, VALUE_FIELDS),
        moves=empty(moves, MOVE_FIELDS),
        uses=empty(len(program.uses), USE_FIELDS),
        ops=empty(len(program.ops), OP_FIELDS),
        images=empty(values if images else 0, IMAGE_FIELDS),
        padding=empty(len(program.ops) if images else 0, PADDING_FIELDS),
        home=empty(values + moves + defs, np.int32),
    )
