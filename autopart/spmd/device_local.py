"""PartIR:HLO: the device-local program, as arrays over the unpartitioned one.

    %w1 [{B},{}]                     settled layout of a value: what each device keeps
    %w1g = all_gather [{"B"},{}]     a redistribution: settled layout -> the layout a use requires
    %x1 = dot_general %x, %w1g       an op on local shapes, by the mappings of its loop nest

This is the one lowering. Export emits it, the cost model reads its arrays, search evaluates it.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from autopart.base.arguments import FLAG, Kind, check_fields, having, whole
from autopart.core.layout import axes_by_dim, local_shape, pending_axes
from autopart.core.mesh import Mesh
from autopart.core.op import SUM, TensorType
from autopart.core.program import Program
from autopart.core.table.mapping_table import MappingTable
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.lowering.layouts import layouts_hash, loops_hash
from autopart.spmd.lowering.lowered_layouts import lowered_layouts
from autopart.spmd.lowering.placement import Grouping, Placement, place, read_positions, stored_values, use_places
from autopart.spmd.lowering.read_stretches import unpacked
from autopart.spmd.lowering.shared_stretches import shared_stretches
from autopart.spmd.redistribution import DistributedType, Plan, plan
from autopart.spmd.redistribution.forms import EmittedCost
from autopart.spmd.redistribution.stretch_step import with_stretches
from autopart.spmd.redistribution.types import SubAxis
from autopart.spmd.sums.passage_arrays import PassageArrays, passage_arrays
from autopart.spmd.sums.pending_prices import Given

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_permute")
"""Kinds that communicate, in the order in which tables show them; all_slice is local and not counted."""

COST = Kind("'elements'", lambda value: isinstance(value, str) and value == "elements") | having(
    "an object with step_cost, such as AlphaBeta", "step_cost"
)


@dataclass(frozen=True)
class LoweringOptions:
    """Choices that lowering leaves to the user.

    share_within       a stored-sharded value that is gathered for two uses at most this many ops apart is gathered once
                       for both; 0 gathers it anew for each use (least memory), unless an action shares gathers
    redistribution_cost  "elements" (bytes moved, Figure 11) or an object with seconds per step
    sums_through_converts  a sum that is pending is converted part by part where it is then cheaper to reduce, also to
                       a narrower type, with whose rounding the parts are added; to a wider one it always is
    regather           an activation, too, is gathered anew for each use: less memory, more communication
    """

    share_within: int = 0
    redistribution_cost: Any = "elements"
    sums_through_converts: bool = False
    regather: bool = False

    def __post_init__(self) -> None:
        check_fields(self, share_within=whole(0), redistribution_cost=COST, sums_through_converts=FLAG, regather=FLAG)


@dataclass(frozen=True)
class LoweringContext:
    """What lowering needs of a program whatever its partitioning; computed once."""

    stored: np.ndarray
    places: tuple[np.ndarray, np.ndarray]
    needed: np.ndarray
    is_output: np.ndarray
    passages: PassageArrays

    @staticmethod
    def of(program: Program) -> LoweringContext:
        """Collects them from a program."""
        is_output = np.zeros(program.value_count, np.bool_)
        is_output[[v for i, v in enumerate(program.outputs) if i not in program.ties]] = True
        return LoweringContext(
            stored_values(program), use_places(program), read_positions(program), is_output, passage_arrays(program)
        )


Runs = tuple[int, int, int, bool]
"""What a lowering does, as a key: hashes of its layouts and of its loops, and how redistributions are shared."""


@dataclass(frozen=True)
class DeviceLocal:
    """A device-local program.

    mapping[op, axis]     the mapping of each op's loop over each axis (-1: none), entered at op_stamp[op, axis]
    native[value]         layout in which the op leaves the value
    settled[value]        layout in which the value waits for its uses
    required[use]         layout in which a use reads it
    stretch[use]          the stretches that a use reads instead of the tile, packed (`read_stretches.py`); 0: none
    passing[op]           bit a: the op does not loop over axis a, but works on parts of what is pending on it
    at_def                values that are redistributed from native to settled right after their op
    placement             redistributions for uses
    grouping              by what uses share one
    forms                 by what the form of each collective is chosen; None: every planned step is one collective
    """

    program: Program
    mesh: Mesh
    table: MappingTable
    options: LoweringOptions
    mapping: np.ndarray
    op_stamp: np.ndarray
    native: np.ndarray
    settled: np.ndarray
    required: np.ndarray
    stretch: np.ndarray
    passing: np.ndarray
    at_def: np.ndarray
    placement: Placement
    grouping: Grouping = field(repr=False)
    statics: LoweringContext = field(repr=False)
    forms: EmittedCost | None = None

    def distributed_type(self, value: int, layout: int) -> DistributedType:
        """A value in a layout, in the redistribution paper's terms."""
        shape = self.program.type_of(value).shape
        names = self.mesh.axis_names
        axes = [tuple(names[a] for a in dim) for dim in axes_by_dim(layout, len(names), len(shape))]
        pending = tuple((names[a], code) for a, code in pending_axes(layout, len(names)))
        return DistributedType.of(shape, axes, self.mesh.shape, pending)

    def _held_apart(self, value: int, type_: DistributedType, source: int) -> DistributedType:
        """The type of what is cut by hand: like parts of a reduction that stays pending, no copies for the planner."""
        names = self.program.manual.of(int(self.program.value_op[value]))
        if not names:
            return type_
        codes = [code for _, code in pending_axes(source, len(self.mesh.axis_names))]
        apart = tuple((SubAxis(name, self.mesh.shape[name]), codes[0] if codes else SUM) for name in names)
        return replace(type_, pending=(*apart, *type_.pending))

    def plan_between(self, value: int, source: int, target: int, stretch: int = 0) -> Plan:
        """The sequence of collectives that takes `value` from one layout to another, and to stretches of its tile."""
        start, end = (
            self._held_apart(value, self.distributed_type(value, layout), source) for layout in (source, target)
        )
        element_bytes, cost = self.program.type_of(value).element_bytes, self.options.redistribution_cost

        def plan_to(there: DistributedType) -> Plan:
            return plan(start, there, element_bytes=element_bytes, cost=cost, forms=self.forms)

        if stretch == 0:
            return plan_to(end)
        return with_stretches(plan_to, end, unpacked(self.table, stretch), element_bytes, cost, self.forms)

    @cached_property
    def def_plans(self) -> list[Plan]:
        """The plan of each entry of `at_def`."""
        return self._plans(
            self.at_def, self.native[self.at_def], self.settled[self.at_def], np.zeros(len(self.at_def), np.int64)
        )

    @cached_property
    def use_plans(self) -> list[Plan]:
        """The plan of each redistribution of `placement`."""
        values = self.placement.value
        return self._plans(values, self.settled[values], self.placement.target, self.placement.stretch)

    @cached_property
    def first_reader(self) -> np.ndarray:
        """int32[redistributions for uses]: the first op that reads what each leaves."""
        reader = np.full(len(self.placement.value), -1, np.int32)
        moved = np.flatnonzero(self.placement.of_use >= 0)[::-1]
        reader[self.placement.of_use[moved]] = self.program.use_op[moved]
        return reader

    def _plans(self, values: np.ndarray, sources: np.ndarray, targets: np.ndarray, stretches: np.ndarray) -> list[Plan]:
        known: dict[tuple[int, int, int, int], Plan] = {}
        plans = []
        for value, *way in zip(*(a.tolist() for a in (values, sources, targets, stretches)), strict=True):
            key = (int(self.program.value_type_id[value]), *way)
            if key not in known:
                known[key] = self.plan_between(value, *way)
            plans.append(known[key])
        return plans

    def redistributions(self) -> Iterator[tuple[Plan, int, int]]:
        """(plan, value, scope) of every redistribution in the program."""
        scopes = self.program.op_scope[self.program.value_op[self.at_def]]
        yield from zip(self.def_plans, self.at_def.tolist(), scopes.tolist(), strict=True)
        yield from zip(self.use_plans, self.placement.value.tolist(), self.placement.scope.tolist(), strict=True)

    def collectives(self) -> Counter[str]:
        """Collectives by kind, as they are emitted; one in a loop counts as often as it runs."""
        return self._count(lambda step: step.emitted_as)

    def collectives_by_axis(self) -> dict[str, dict[str, int]]:
        """Collectives by the mesh axes they run over ("batch", "batch,model"), then by kind."""
        count = self._count(lambda step: (",".join(step.mesh_axes), step.emitted_as))
        table: dict[str, dict[str, int]] = {}
        for (axes, kind), number in count.items():
            table.setdefault(axes, {})[kind] = number
        return table

    def _count(self, key: Any) -> Counter:
        trips = self.program.scope_trips
        count: Counter = Counter()
        for steps, _, scope in self.redistributions():
            for step in steps.steps:
                if step.kind in COLLECTIVES:
                    count[key(step)] += int(trips[scope]) * step.collectives
        return count

    @property
    def moved_bytes(self) -> float:
        """Bytes of the larger side of all collectives on a device; of one in a loop, as often as it runs."""
        trips, program = self.program.scope_trips, self.program
        return sum(
            int(trips[scope]) * step.largest_elements * program.type_of(value).element_bytes
            for steps, value, scope in self.redistributions()
            for step in steps.steps
            if step.kind in COLLECTIVES
        )

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that identify every layout: programs of one partitioning's table may differ in the order of axes."""
        return int(layouts_hash(self.native, self.settled, self.required))

    @cached_property
    def runs(self) -> Runs:
        """Equal for lowerings of one program that do the same on a device, whatever may still be decided there."""
        stretch = self.stretch if self.table.stretches else self.stretch[:0]
        loops = int(loops_hash(self.mapping, self.passing, stretch))
        return self.fingerprint, loops, self.grouping.share_within, self.grouping.sharded_loops

    def local_type(self, value: int, layout: int) -> TensorType:
        """What one device holds of a value in a layout."""
        type_ = self.program.type_of(value)
        return TensorType(local_shape(type_.shape, layout, self.mesh.axis_sizes), type_.dtype)

    def read_type(self, value: int, layout: int, stretch: int) -> TensorType:
        """What one device is given of a value: its tile in the layout, or the stretches that are read of it."""
        type_ = self.local_type(value, layout)
        if not stretch:
            return type_
        shape, whole = list(type_.shape), self.program.type_of(value).shape
        for dim, read in unpacked(self.table, stretch):
            shape[dim] = read.length(whole[dim] // shape[dim])
        return TensorType(tuple(shape), type_.dtype)

    def part_read(self, use: int) -> list[tuple[int, int, int]]:
        """(dim, first row, rows) of what a use reads of a stretch that it shares with others; none where it reads
        all."""
        moved = int(self.placement.of_use[use])
        packed, sent = int(self.stretch[use]), int(self.placement.stretch[moved]) if moved >= 0 else 0
        if packed == sent or moved < 0:
            return []
        value, own, found = int(self.program.operands[use]), dict(unpacked(self.table, packed)), []
        whole, tile = self.program.type_of(value).shape, self.local_type(value, int(self.required[use])).shape
        for dim, shared in unpacked(self.table, sent):
            low, rows = (own[dim].low, own[dim].length(whole[dim] // tile[dim])) if dim in own else (0, tile[dim])
            found.append((dim, shared.low - low, rows))
        return found

    @cached_property
    def nests(self) -> list[tuple[tuple[int, int], ...]]:
        """Per op, (axis, mapping) of its loops, outermost first; equal nests are one object."""
        axes = np.arange(len(self.mesh.axis_names))
        looping = np.where(self.passing[:, None] >> axes & 1, -1, self.mapping)
        outermost_first = np.argsort(self.op_stamp, axis=1, kind="stable")
        rows = np.concatenate([looping, outermost_first], axis=1)
        distinct, row_of_op = np.unique(rows, axis=0, return_inverse=True)
        nests = [tuple((a, row[a]) for a in row[len(axes) :] if row[a] >= 0) for row in distinct.tolist()]
        return [nests[row] for row in row_of_op.tolist()]


def lower(
    partitioning: Partitioning,
    options: LoweringOptions = LoweringOptions(),
    statics: LoweringContext | None = None,
    forms: EmittedCost | None = None,
) -> DeviceLocal:
    """The device-local program of a partitioning, as it stands now; `costmodel.lower_for_device` fills in `forms`."""
    program, state = partitioning.program, partitioning.state
    state = state._replace(mapping=state.mapping.copy(), op_stamp=state.op_stamp.copy())
    statics = statics if statics is not None else LoweringContext.of(program)
    given = Given(
        partitioning.nests._replace(state=state), statics.passages, program.value_shape, statics.is_output,
        statics.stored, options.sums_through_converts, partitioning.sharded_loops,
    )  # fmt: skip
    share_within = max(options.share_within, partitioning.share_within)
    found = lowered_layouts(given, bool(partitioning.table.stretches), share_within)
    native, settled, required = found.native, found.settled, found.required
    grouping = Grouping(found.grows, share_within, partitioning.sharded_loops)
    return DeviceLocal(
        program=program,
        mesh=partitioning.mesh,
        table=partitioning.table,
        options=options,
        mapping=state.mapping,
        op_stamp=state.op_stamp,
        native=native,
        settled=settled,
        required=required,
        stretch=found.stretch,
        passing=found.passing,
        at_def=np.flatnonzero(native != settled).astype(np.int32),
        placement=placed(program, partitioning.table, options, statics, settled, required, found.stretch, grouping),
        grouping=grouping,
        statics=statics,
        forms=forms,
    )


def placed(
    program: Program,
    table: MappingTable,
    options: LoweringOptions,
    statics: LoweringContext,
    settled: np.ndarray,
    required: np.ndarray,
    stretch: np.ndarray,
    grouping: Grouping,
) -> Placement:
    """Where the redistributions of a lowering stand."""
    gathered_anew = np.ones_like(statics.stored) if options.regather else statics.stored
    sent = shared_stretches(table, program.users, required, stretch)
    return place(program, statics.places, statics.needed, gathered_anew, settled, required, sent, grouping)
