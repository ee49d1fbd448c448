"""The arrays that the simulator's kernels read: one tuple per program, one per lowering of it.

    ProgramArrays    what does not depend on the partitioning; made once (`program_arrays.py`)
    LocalArrays      bytes and elements on one device, and where redistributions stand (`local_arrays.py`, `op_work.py`)
    Lowered          the lowering, as kernels read it

Arrays over "buffers" have an entry for each of the V values, then V + r for each redistribution r of the R before uses,
then V + R + d for each value that is redistributed right after its op, d being its place in `at_def`: the buffer into
which the op writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autopart.costmodel.compiled.arena import Empty

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
             carry_body (the body scope of a carry's loop, -1 for other ops), changes,
             added (`added_updates.py`), operands (how many it has, each counted once), reshapes, mixes
             (`reshape_barriers.py`), made_again (`library_calls.py`), of_tasks (a convolution in groups, which are
             tasks)
    specs    the other columns of `SpecCosts`: a row per distinct op, so that rows of `ops` are short and stay on chip
    values   value_op, rank, elements (of the whole array), element_bytes, size_id (equal for those of one type),
             is_splat (a constant: no memory until it is written out), is_donated (an argument whose memory an output
             takes over), is_output, exponential (`softmax_rows.py`), is_looked_up (wider than what it is computed
             from, element by element, and written for a look-up alone), is_written (for slices and joints:
             `cut_arrays.py`, before it is spread: `spread_results.py`, or reshaped: `reshape_barriers.py`), laid
             (`cut_arrays.py`)
    uses     operands, use_op, use_scope, use_position (as in `Program`), producer (the op that makes the operand)
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
    """

    operand_ptr: np.ndarray
    result_ptr: np.ndarray
    user_ptr: np.ndarray
    user: np.ndarray
    shape: np.ndarray
    ops: Records
    specs: Records
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


ROWS_AT_ONCE = 8192
"""Of a record array, written field by field while they are in the processor's cache."""


def records(**fields: np.ndarray) -> Records:
    """One record array with a field per array, wide fields first, so that rows are short; all of one length."""
    length = len(next(iter(fields.values())))
    fields = dict(sorted(fields.items(), key=lambda field: -field[1].dtype.itemsize))
    table = np.empty(length, np.dtype([(name, array.dtype) for name, array in fields.items()], align=True))
    for first in range(0, length, ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        for name, array in fields.items():
            table[name][rows] = array[rows]
    return table


class LocalArrays(NamedTuple):
    """What one device holds, in bytes (with layout padding where asked for) and elements.

    values   native_bytes, native_elements: size of the value in the layout in which its op computes it;
             settled_bytes, settled_elements: size in the layout in which it settles; at_def: its place in
             `DeviceLocal.at_def`, else -1; shows: the buffer from which the value is read, for a view the buffer of
             the view's operand; left_in: the buffer into which its op writes it; copy_bytes: of the copy in another
             layout that is held beside it; registers: `registers_over_tiles` of it as its op leaves it; on a GPU,
             laid_anew: an op reads it in another layout, and turned: its op lays what it reads otherwise
    moves    moved_bytes, moved_elements: size of what a redistribution makes; moved_value, moved_scope, moved_position
             as in `Placement`; moves_nothing: the redistribution only slices, so its consumers slice as they read
    uses     use_elements: as the use reads it; of_use as in `Placement`; use_buffer: the buffer it reads
    ops      ways: over how many devices the op's work is divided; unfilled: how many times more work the matrix unit
             does than its tiles would need if they were filled; vector_flop: operations of the vector unit; in_step:
             elements an elementwise op or a reduction walks through, else -1; update_bytes: what an update changes;
             registers: how many more it walks through than its tiles fill; copied_bytes: that pass HBM while copies
             are made for it, of operands into other layouts, or between the products of a transform
             (`transform_copies.py`); beside_bytes: that such copies take while it runs
    home[b]  the scope buffer b belongs to; what a loop carries belongs to its body, its result does not
    """

    values: Records
    moves: Records
    uses: Records
    ops: Records
    home: np.ndarray


VALUE_FIELDS = np.dtype(
    [
        ("native_bytes", np.float64), ("native_elements", np.float64), ("settled_bytes", np.float64),
        ("settled_elements", np.float64), ("copy_bytes", np.float64), ("registers", np.float64),
        ("at_def", np.int32), ("shows", np.int32), ("left_in", np.int32), ("laid_anew", np.bool_),
        ("turned", np.bool_),
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
        ("update_bytes", np.float64), ("copied_bytes", np.float64), ("beside_bytes", np.float64),
        ("registers", np.float64),
    ],
    align=True,
)  # fmt: skip


class Lowered(NamedTuple):
    """The arrays of a `DeviceLocal`, and what they are looked at by.

    mapping, passing, native, settled, required, at_def   its own
    value, target, scope, position, of_use                its placement's
    by_position    the redistributions before uses in the order of their positions
    shares[r]      share of what redistribution r makes that is read, where stretches are; empty where none are
    narrow[r]      redistribution r moves bf16 for f32 (`bf16_collectives.py`)
    plan_rows      int32[at_def, then redistributions for uses]: rows of `KnownPlans`
    moves_nothing  of each such row
    order, priority, along_lanes, looks_up, copied, kept, left, twice   `Assigned` of `layout_assignment/assignment.py`
    axis_sizes     of the mesh
    layout_tile, matmul_tile   of the device; ones mean no padding
    spread_flop    as many operations as the vector unit could do while it puts one number along a row
    turned_bytes   that pass HBM in the time in which one element is copied that comes to lie along the lanes
    on_chip_bytes  as in `Device`
    library        as in `Device`, its numbers in order; zeros where there is none
    byte_cycles    clock cycles of all lanes while a byte passes HBM, where the compiler asks what computing again takes
                   (XLA:GPU); else infinite
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
    order: np.ndarray
    priority: np.ndarray
    along_lanes: np.ndarray
    looks_up: np.ndarray
    copied: np.ndarray
    kept: np.ndarray
    left: np.ndarray
    twice: np.ndarray
    axis_sizes: np.ndarray
    layout_tile: tuple[int, int]
    matmul_tile: tuple[int, int, int]
    spread_flop: float
    turned_bytes: float
    on_chip_bytes: float
    library: tuple[float, float, float, float]
    byte_cycles: float


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
    return LocalArrays(
        values=empty(values, VALUE_FIELDS),
        moves=empty(moves, MOVE_FIELDS),
        uses=empty(len(program.uses), USE_FIELDS),
        ops=empty(len(program.ops), OP_FIELDS),
        home=empty(values + moves + defs, np.int32),
    )
