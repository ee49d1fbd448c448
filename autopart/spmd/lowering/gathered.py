"""Gathers that propagation brings without being asked: an op reads whole what is held in tiles.

    x [{batch},{}]     fft along dim 0          fft has no mapping that slices dim 0, so x is gathered for it, and
                                                every device computes all of it

    op   axis    reason                                               bytes
    fft  batch   fft needs dim 0 of f32[64,8] whole                   7/8 of x

One row per op and axis. The op has no loop over the axis, so the axis divides no work of it, for one of these reasons:
no rule is known, a rule blocks by nature, the rule has no mapping for the tiled dim, the dim is not a multiple of the
axis, several mappings fit (a conflict). Three rows are not that but as costly: a window that moves along a tiled dim
(a scan over it), which every device receives by an all_reduce, of the window or of what is computed from it; an op
without mappings whose result is wanted in tiles (random bits), which every device makes whole; and an op that reads
pieces of other tiles, of which the whole is gathered since all the pieces cost more.

What a tactic asked for is no row: a value kept whole by decision, and stored state (a parameter that the program
updates) that is gathered on its way to the ops that use it (FSDP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from autopart.core.kernel_calls.call_config import config_of
from autopart.core.layout import ACTION_MASK, LAST_TILE
from autopart.core.op import REDUCTION_NAMES, OpSpec
from autopart.core.ops.rule import named, rule_of, traits_of
from autopart.core.table.conflicts import fitting_count
from autopart.core.table.loop_nests import ATOMIC
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.lowering.placement import stored_values
from autopart.spmd.redistribution import Plan

WINDOWS = frozenset(("dynamic_slice",))
"""Ops that take a part of a dim, at a place known when they run."""

Price = Callable[[Plan, float, str], float]
"""Seconds of the collectives of a plan that run over a mesh axis, for elements of so many bytes."""


@dataclass(frozen=True)
class Gathered:
    """An op that an axis does not divide, although what it reads is tiled along it.

    op, kind   its number and kind ("fft", "custom_call @target")
    axis       the mesh axis
    reason     why the op has no loop over the axis
    where      source line, empty where the module has none
    bytes      what a device receives for it in a step; 0 where an earlier row's gather serves this op too
    seconds    of those collectives; None where the mesh names no device
    """

    op: int
    kind: str
    axis: str
    reason: str
    where: str
    bytes: float
    seconds: float | None


def gathered(partitioning: Partitioning, local: DeviceLocal, price: Price | None = None) -> list[Gathered]:
    """The rows of a partitioning and its lowering, in program order."""
    rows: list[Gathered] = []
    for axis in range(len(local.mesh.axis_names)):
        finder = _Finder(partitioning, local, price, axis)
        rows += [*finder.gathers(), *finder.stretches(), *finder.windows(), *finder.made_whole()]
    return sorted(rows, key=lambda row: (row.op, row.axis))


class _Finder:
    """Looks along one axis; see `gathered`."""

    def __init__(self, partitioning: Partitioning, local: DeviceLocal, price: Price | None, axis: int):
        self._partitioning, self._local, self._program = partitioning, local, local.program
        self._price, self._axis, self._name = price, axis, local.mesh.axis_names[axis]
        self._size = local.mesh.axis_sizes[axis]
        self._loops = (local.mapping[:, axis] >= 0) & ((local.passing >> axis & 1) == 0)
        self._keeps_part = _of_mapping(local, local.table.arrays.alone, axis)
        self._held = tiled_dims(local.settled, axis)
        self._paid: set[int] = set()

    def gathers(self) -> Iterator[Gathered]:
        """Ops that read an operand whole which settles in tiles."""
        use_op = self._program.use_op
        whole = (self._held[self._program.operands] >= 0) & (_actions(self._local.required, self._axis) == 0)
        uses = np.flatnonzero(whole & (~self._loops | self._keeps_part)[use_op])
        uses = uses[~self._is_asked_for(uses)]
        for op in np.unique(use_op[uses]).tolist():
            own = uses[use_op[uses] == op].tolist()
            moves = [r for r in dict.fromkeys(self._local.placement.of_use[own].tolist()) if r not in self._paid]
            self._paid.update(moves)
            in_bytes = sum(self._received(int(self._local.placement.value[r])) * self._runs_of(r) for r in moves)
            seconds = self._sum(
                (self._local.use_plans[r], int(self._local.placement.value[r]), self._runs_of(r)) for r in moves
            )
            yield self._row(op, self._why(op, own[0]), in_bytes, seconds)

    def stretches(self) -> Iterator[Gathered]:
        """Ops that read stretches of an operand which is gathered for them, since that costs less than the pieces."""
        places = self._local.placement
        for r in np.flatnonzero(places.stretch).tolist():
            value, plan = int(places.value[r]), self._local.use_plans[r]
            is_gathered = any(step.kind == "all_gather" and self._name in step.mesh_axes for step in plan.steps)
            if is_gathered and r not in self._paid and self._held[value] >= 0:
                op, runs = int(self._local.first_reader[r]), self._runs_of(r)
                dim, type_ = self._held[value], self._program.type_of(value)
                why = f"{self._kind(op)} reads so many pieces of dim {dim} of {type_} that the whole costs less"
                yield self._row(op, why, self._received(value) * runs, self._sum([(plan, value, runs)]))

    def windows(self) -> Iterator[Gathered]:
        """Windows that move along a tiled dim: their parts are summed on every device."""
        plan_of = dict(zip(self._local.at_def.tolist(), self._local.def_plans, strict=True))
        kinds = np.array([s.kind in WINDOWS for s in self._program.specs], np.bool_)[self._program.op_spec]
        for op in np.flatnonzero(kinds & self._loops).tolist():
            window = int(self._program.result_ptr[op])
            mapping = self._local.table.of[self._program.op_spec[op]][self._local.mapping[op, self._axis]]
            value = self._reduced_at(window)
            if mapping.results[0] not in REDUCTION_NAMES or self._held[value] >= 0 or value not in plan_of:
                continue
            runs = self._runs_at(value)
            size = self._local.local_type(value, int(self._local.settled[value])).bytes
            of_window = self._local.local_type(window, int(self._local.settled[window])).bytes
            is_received = (size, runs) == (of_window, self._runs_at(window))
            what = "receives the window" if is_received else "works on it, and the results are added"
            why = f"it moves along dim {mapping.operands[0]}, which is tiled: every device {what}"
            yield self._row(op, why, size * runs, self._sum([(plan_of[value], value, runs)]))

    def _reduced_at(self, value: int) -> int:
        """The value at which what is pending on `value` is reduced: itself, or one behind the ops that it passes."""
        program = self._program
        pointer, users = program.users
        while _actions(self._local.settled, self._axis)[value] > LAST_TILE:
            op = int(program.use_op[users[pointer[value]]])
            if not self._local.passing[op] >> self._axis & 1:
                break
            value = int(program.result_ptr[op + 1]) - 1
        return value

    def made_whole(self) -> Iterator[Gathered]:
        """Ops without any mapping, whose results all readers take in tiles."""
        pointer, users = self._program.users
        blocked = [
            not mappings and len(spec.operands) > 0 and any(r.shape for r in spec.results)
            for mappings, spec in zip(self._local.table.of, self._program.specs, strict=True)
        ]
        wanted = _actions(self._local.required, self._axis)
        for op in np.flatnonzero(np.array(blocked, np.bool_)[self._program.op_spec]).tolist():
            for value in self._program.results_of(op):
                readers = wanted[users[pointer[value] : pointer[value + 1]]]
                if len(readers) and ((readers > 0) & (readers <= LAST_TILE)).all() and self._held[value] < 0:
                    yield self._row(op, f"every device makes all of it: {self._no_mapping(op)}", 0.0, self._sum([]))
                    break

    # ---- what a gather is for

    def _is_asked_for(self, uses: np.ndarray) -> np.ndarray:
        """bool[uses]: the reader is an argument kept whole by decision, or passes stored state on."""
        program, action = self._program, self._partitioning.state.action[:, self._axis]
        ops, values = program.use_op[uses], program.operands[uses]
        is_argument = self._partitioning.graph.is_argument
        kept = is_argument[ops] & (action[program.result_ptr[:-1][ops]] == ATOMIC)
        state = stored_values(program, [program.arguments[a] for a in set(program.ties.values())])
        cheap = np.array([traits_of(s).cheap_to_regather for s in program.specs], np.bool_)[program.op_spec]
        return kept | (state[values] & cheap[ops])

    def _why(self, op: int, use: int, tiled: int = -1) -> str:
        """Why the op has no loop that slices this operand as it is tiled, on dim `tiled` where the table says so."""
        spec, table = self._program.spec(op), self._partitioning.table
        if not table.of[self._program.op_spec[op]]:
            return self._no_mapping(op)
        if fitting_count(self._partitioning, op, self._name) > 1:
            return "several mappings fit: a conflict"
        dim = tiled if tiled >= 0 else int(self._held[self._program.operands[use]])
        operand = use - int(self._program.operand_ptr[op])
        fitting = [
            m for m, mapping in enumerate(table.of[self._program.op_spec[op]]) if mapping.operands[operand] == dim
        ]
        if not fitting:
            why = _of_kernel(spec, f"dim {dim} of operand {operand}: ")
            return f"{named(spec)} needs dim {dim} of {spec.operands[operand]} whole{why}"
        extent = table.of[self._program.op_spec[op]][fitting[0]].extent
        ways = self._ways(op, fitting[0])
        before = table.of[self._program.op_spec[op]][fitting[0]].after
        if before is not None:
            major = table.of[self._program.op_spec[op]].index(before)
            room = before.extent * self._size // self._ways(op, major)
            of_major = f"{named(spec)} slices dim {dim} once dim {before.operands[operand]} is cut {before.extent} ways"
            return f"{of_major}{self._two_axes(op, major, room)}"
        if extent % ways == 0 and self._partitioning.state.mapping[op, self._axis] >= 0:
            return self._why_moved(op)
        if extent % ways == 0:
            return "propagation did not reach it"
        return f"{extent} is not a multiple of {ways}{self._two_axes(op, fitting[0], extent // (ways // self._size))}"

    def _why_moved(self, op: int) -> str:
        """Why an op has no loop although the table gives it one: a reader needs all of it, or another tile."""
        value, (pointer, users) = int(self._program.result_ptr[op]), self._program.users
        dim = self._partitioning.tiled_dim(value, self._name)
        for use in users[pointer[value] : pointer[value + 1]].tolist():
            reader = int(self._program.use_op[use])
            if dim >= 0 and _actions(self._local.required[use : use + 1], self._axis)[0] == 0:
                return self._why(reader, use, dim)
        return "it is moved before it is repeated, which moves less"

    def _two_axes(self, op: int, mapping: int, room: int) -> str:
        """Which two axes could tile a factor and the next one, where this axis is too large for what room there is.

        The first has to use the factor up, or the second may not follow.
        """
        mappings = self._partitioning.table.of[self._program.op_spec[op]]
        minor, rest = divmod(self._size, room)
        following = any(m.after == mappings[mapping] and m.extent % minor == 0 for m in mappings if minor)
        fits = following and not rest and room > 1 and minor > 1
        return f": axes of {room} and {minor} instead of {self._name} would fit" if fits else ""

    def _no_mapping(self, op: int) -> str:
        found = rule_of(self._program.spec(op))
        if found is None:
            return f"no rule for {self._kind(op)}: ap.kernel or ap.register_custom_call gives it one"
        return found.blocked_because or f"{self._kind(op)} has no mapping{_of_kernel(self._program.spec(op))}"

    def _ways(self, op: int, mapping: int) -> int:
        sizes, taken = self._local.mesh.axis_sizes, self._local.mapping[op]
        others = [size for a, size in enumerate(sizes) if a != self._axis and taken[a] == mapping]
        return int(np.prod([sizes[self._axis], *others]))

    # ---- figures

    def _received(self, value: int) -> float:
        held = self._local.local_type(value, int(self._local.settled[value])).bytes
        return held * (self._local.mesh.axis_sizes[self._axis] - 1)

    def _runs_at(self, value: int) -> int:
        return int(self._program.scope_trips[self._program.op_scope[self._program.value_op[value]]])

    def _runs_of(self, redistribution: int) -> int:
        return int(self._program.scope_trips[self._local.placement.scope[redistribution]])

    def _sum(self, moves: Iterable[tuple[Plan, int, int]]) -> float | None:
        price = self._price
        if price is None:
            return None
        return sum(price(p, self._program.type_of(v).element_bytes, self._name) * runs for p, v, runs in moves)

    def _kind(self, op: int) -> str:
        return named(self._program.spec(op))

    def _row(self, op: int, why: str, in_bytes: float, seconds: float | None) -> Gathered:
        return Gathered(op, self._kind(op), self._name, why, self._program.where(op), in_bytes, seconds)


def _of_kernel(spec: OpSpec, about: str = "") -> str:
    """Why a kernel is not sliced further, where it is one and that is known; of one dim alone, if that is."""
    kernel = config_of(spec)
    reasons = kernel["whole"].split("; ") if kernel is not None and kernel["whole"] else []
    own = [reason.removeprefix(about) for reason in reasons if about and reason.startswith(about)]
    return ": " + "; ".join(own or reasons) if reasons else ""


def tiled_dims(layouts: np.ndarray, axis: int) -> np.ndarray:
    """int64[layouts]: the dim that `axis` tiles in each layout, or -1."""
    action = _actions(layouts, axis)
    return np.where((action > 0) & (action <= LAST_TILE), action - 1, -1)


def _actions(layouts: np.ndarray, axis: int) -> np.ndarray:
    return ((layouts >> np.uint64(8 * axis)) & np.uint64(ACTION_MASK)).astype(np.int64)


def _of_mapping(local: DeviceLocal, flags: np.ndarray, axis: int) -> np.ndarray:
    """bool[ops]: the flag of the mapping of each op's loop over the axis; False for an op without one."""
    chosen = local.mapping[:, axis]
    rows = local.table.arrays.first[:-1][local.program.op_spec] + np.maximum(chosen, 0)
    return (chosen >= 0) & np.append(flags, False)[np.minimum(rows, len(flags))]
