"""Makes explanations: from names to values, and of each value what the table, the lowering and the estimate say.

name -> value        paths, tags and globs, as tactics take them
value -> axes        `DecisionHistory` for what tiles it, `WhyWhole` for what does not, `what_if` for what it would cost
value -> readers     ops that read it, or what is made of it by ops of one operand
value -> collectives redistributions of values that belong to it: its gathers, its gradient's reduction
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from autopart.api.explained.explanation import (
    AxisExplained,
    CollectiveExplained,
    Explanation,
    Option,
    ReaderExplained,
    ValueExplained,
)
from autopart.api.explained.left_whole import WhyWhole, action_text, tactic_of
from autopart.api.tactics.manual import known_values
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.stages import Stages
from autopart.api.tracing.names import OUTPUTS, Named, Names, names_of_nothing, select
from autopart.base.errors import TileError
from autopart.base.quoting import short_place
from autopart.core.ops.ops_table import factor_text
from autopart.core.ops.rule import describe, named
from autopart.core.program import Program
from autopart.core.table.actions import Propagate, Tile
from autopart.core.table.decision_history import DecisionHistory
from autopart.costmodel.breakdown import path
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.links.redistribution_costs import StepCost, plan_cost
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import COLLECTIVES, DeviceLocal
from autopart.spmd.redistribution import Plan
from autopart.spmd.run import named_axes, output_layouts

PRICED_OPS = 200_000
"""How many ops one explanation lowers for what other tiles would cost: about a second. What is left says so."""

HOPS = 4
"""How many ops of one operand (a cast, a reshape) a reader is looked for behind."""


def explain(scheduled: Scheduled, wanted: str) -> Explanation:
    """The values that a name, path or glob names. Raises `UnknownNameError` with the nearest names if there is none."""
    program = scheduled.partitioning.program
    selected = select(Names.of(program), wanted, names_of_nothing(program))
    found = [named for named, _ in known_values(selected, scheduled.partitioning)]
    values = tuple(map(_Maker(scheduled).value, found))
    axes = {axis for value in values for dim in value.spec for axis in dim}
    staged = (Stages.of(r.report["pipeline"]) for r in scheduled.reports if "pipeline" in r.report)
    return Explanation(
        wanted,
        values,
        scheduled.estimate.step_s if scheduled.estimate else None,
        scheduled.estimate.peak_bytes if scheduled.estimate else None,
        next((stages for stages in staged if stages is not None and stages.axis in axes), None),
    )


@dataclass
class _Maker:
    """Explains values of one scheduled program; `ops_left` is what may still be lowered for prices."""

    scheduled: Scheduled
    ops_left: int = PRICED_OPS
    history: DecisionHistory = field(init=False)

    def __post_init__(self) -> None:
        partitioning = self.scheduled.partitioning
        self.history = DecisionHistory(partitioning.program, partitioning.mesh, self.scheduled.actions)
        self.why = WhyWhole(partitioning, self.scheduled.reports, self.history)

    @property
    def program(self) -> Program:
        """The program as the schedule was given it."""
        return self.scheduled.partitioning.program

    @property
    def local(self) -> DeviceLocal:
        """Its lowering."""
        return self.scheduled.device_local

    @functools.cached_property
    def links(self) -> Links | None:
        """What collectives are priced on; None where the mesh names no device."""
        mesh = self.scheduled.partitioning.mesh
        return None if mesh.device is None else mesh_links(mesh)

    @functools.cached_property
    def run(self) -> Simulation | None:
        """The simulation behind the estimate, if there is one."""
        return self.scheduled.estimate.simulation if self.scheduled.estimate else None

    # ---- a value

    def value(self, named: Named) -> ValueExplained:
        """All of it."""
        program, value = self.program, named.value
        layout, role = int(self.local.settled[value]), "tag"
        if named.exact:
            role = "value"
        elif value in program.argument_place and named.head != OUTPUTS:
            role = "argument"
        elif named.head == OUTPUTS:
            role = "output"
            names = [f"{OUTPUTS}/{n}".rstrip("/") for n in program.output_names]
            layout = output_layouts(self.local)[names.index(named.name)]
        type_, local_type = program.type_of(value), self.local.local_type(value, layout)
        spec = named_axes(self.scheduled.partitioning.mesh, layout)
        return ValueExplained(
            name=named.name,
            role=role,
            type_=str(type_),
            local_type=str(local_type),
            bytes=type_.bytes,
            local_bytes=local_type.bytes,
            spec=spec,
            where="" if role == "argument" else program.where(int(program.value_op[value])),
            axes=tuple(self._axis(value, axis, spec) for axis in self.scheduled.partitioning.mesh.axis_names),
            readers=tuple(self._readers(value)),
            collectives=tuple(self._collectives(value, named.name)),
        )

    def _axis(self, value: int, axis: str, spec: Sequence[Sequence[str]]) -> AxisExplained:
        size = self.scheduled.partitioning.mesh.shape[axis]
        held = next((dim for dim, axes in enumerate(spec) if axis in axes), None)
        if held is not None:
            return self._tiled(value, axis, size, held)
        tiled = self.scheduled.partitioning.tiled_dim(value, axis)
        if tiled >= 0:
            why = f"its op makes it tiled on dim {tiled}, and it is gathered for those who read it"
            return AxisExplained(axis, size, None, "", "", (), "gathered", why)
        left = self.why.of(value, axis)
        options, untried = self._options(value, axis, left.dims)
        number = self.history.kept_by(value, axis)
        tactic = tactic_of(self.scheduled.reports, number).name if number is not None else ""
        action = action_text(self.scheduled.reports, number) if number is not None else ""
        return AxisExplained(axis, size, None, tactic, action, (), left.kind, left.why, options, untried)

    def _tiled(self, value: int, axis: str, size: int, dim: int) -> AxisExplained:
        cause = self.history.tiled_by(value, axis)
        if cause is None:
            return AxisExplained(axis, size, dim, "", "", ())
        reports = self.scheduled.reports
        via = tuple(self._link(op, axis) for op in cause.ops if not self.scheduled.partitioning.graph.is_argument[op])
        spread, decided = tactic_of(reports, cause.spread).name, tactic_of(reports, cause.action).name
        if spread != decided:
            via += (f'spread so far by tactic "{spread}"',)
        return AxisExplained(axis, size, dim, decided, action_text(reports, cause.action), via)

    def _link(self, op: int, axis: str) -> str:
        mapping, where = self.history.mapping(op, axis), self.program.where(op)
        text = f"{named(self.program.spec(op))}  {factor_text(mapping) if mapping else ''}"
        return text + (f"  at {short_place(where)}" if where else "")

    def _options(self, value: int, axis: str, dims: Sequence[int]) -> tuple[tuple[Option, ...], int]:
        """What tiling each of the dims would make of the program; and how many were not tried."""
        found: list[Option] = []
        for dim in dims if self.scheduled.estimate is not None else ():
            self.ops_left -= self.program.op_count
            if self.ops_left < 0:
                break
            partitioning = self.scheduled.partitioning.copy()
            try:
                partitioning.apply_all([Tile(value, dim, axis), Propagate(axis)])
            except TileError:
                continue
            local = lower_for_device(partitioning, self.local.options)
            estimate = self.scheduled.price(local)
            if estimate is not None:
                count = local.collectives()
                kinds = {kind: count[kind] for kind in COLLECTIVES if count[kind]}
                found.append(Option(dim, estimate.step_s, estimate.peak_bytes, kinds))
        priced = self.scheduled.estimate is not None
        return tuple(found), len(dims) - len(found) if priced and self.ops_left < 0 else 0

    # ---- readers

    def _readers(self, value: int) -> Iterator[ReaderExplained]:
        groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[int]] = defaultdict(list)
        for op in dict.fromkeys(self._read_by(value, HOPS)):
            loops = tuple(
                (axis, factor_text(mapping))
                for index, axis in enumerate(self.scheduled.partitioning.mesh.axis_names)
                if (mapping := self.history.mapping(op, axis)) and not self.local.passing[op] >> index & 1
            )
            groups[describe(self.program.spec(op)), self.program.where(op), loops].append(op)
        for (op, where, loops), members in groups.items():
            seconds = None if self.run is None else sum(map(self._kernel_s, members))
            yield ReaderExplained(op, len(members), where, dict(loops), seconds)

    def _read_by(self, value: int, hops: int) -> Iterator[int]:
        """Ops that read the value, or behind ops of one operand what is made of it."""
        program, graph = self.program, self.scheduled.partitioning.graph
        pointer, uses = program.users
        for op in program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist():
            if graph.is_argument[op]:
                continue
            results = program.results_of(op)
            passes_on = len(program.operands_of(op)) == 1 and len(results) == 1
            behind = list(self._read_by(results[0], hops - 1)) if hops and passes_on else []
            yield from behind or [op]

    @functools.cached_property
    def _node_s(self) -> dict[int, float]:
        run = self.run
        if run is None:
            return {}
        kernels = np.flatnonzero(run.graph.nodes["kind"] == KERNEL)
        seconds = run.node_s[kernels] * run.node_trips[kernels]
        return dict(zip(run.graph.nodes["subject"][kernels].tolist(), seconds.tolist(), strict=True))

    def _kernel_s(self, op: int) -> float:
        return self._node_s.get(op, 0.0)

    # ---- collectives

    @functools.cached_property
    def _moved(self) -> dict[str, list[int]]:
        """Path -> numbers of the redistributions, those after ops first, of the values that belong to it."""
        found: dict[str, list[int]] = defaultdict(list)
        whose: dict[int, str] = {}
        for number, (_, value, _) in enumerate(self._redistributions):
            if value not in whose:
                whose[value] = path(self.program, value)
            found[whose[value]].append(number)
        return found

    @functools.cached_property
    def _redistributions(self) -> list[tuple[Plan, int, int]]:
        return list(self.local.redistributions())

    def _line_op(self, number: int, value: int) -> int:
        """The op whose line a redistribution belongs to: who makes the value, of an argument who reads it first."""
        op, before_use = int(self.program.value_op[value]), number - len(self.local.at_def)
        is_argument = self.scheduled.partitioning.graph.is_argument[op]
        return int(self.local.first_reader[before_use]) if is_argument and before_use >= 0 else op

    def _step_costs(self, number: int, plan: Plan, element_bytes: float) -> tuple[StepCost, ...]:
        """Prices of a redistribution's collectives, as the estimate has them where there is a simulation behind it."""
        if self.run is not None and self.run.local is self.local:
            after, before = self.run.plans
            return [*after, *before][number].steps
        return plan_cost(plan, element_bytes, self.links).steps if self.links else ()

    def _collectives(self, value: int, name: str) -> list[CollectiveExplained]:
        """Its own, and those of values that belong to its path; equal ones are one row."""
        numbers = set(self._moved.get(name, ()))
        numbers |= {n for n, (_, moved, _) in enumerate(self._redistributions) if moved == value}
        rows: dict[tuple[str, tuple[str, ...], str, str], CollectiveExplained] = {}
        for number in sorted(numbers):
            plan, moved, scope = self._redistributions[number]
            trips, size = int(self.program.scope_trips[scope]), self.program.type_of(moved).element_bytes
            costs = iter(self._step_costs(number, plan, size))
            where = self.program.where(self._line_op(number, moved))
            for step in plan.steps:
                if step.kind not in COLLECTIVES:
                    continue
                cost = next(costs, None)
                in_bytes = trips * (size * step.largest_elements if cost is None else cost.bytes)
                shape = ",".join(map(str, step.source.local_shape))
                key = step.emitted_as, tuple(step.mesh_axes), f"{self.program.type_of(moved).dtype}[{shape}]", where
                known = rows.get(key)
                rows[key] = CollectiveExplained(
                    *key[:2],
                    trips * step.collectives + (known.count if known else 0),
                    in_bytes + (known.bytes if known else 0.0),
                    None if cost is None else trips * cost.seconds + ((known.seconds or 0.0) if known else 0.0),
                    *key[2:],
                )
        return sorted(rows.values(), key=lambda row: (-(row.seconds or 0.0), -row.bytes))
