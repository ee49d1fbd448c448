"""A partitioned program, ahead of time: what it is, as text and as layouts, before any device is needed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from autopart.api.as_code.shortest_schedule import Shortest
from autopart.api.compared.named_rows import costed_schedules
from autopart.api.explained.another_program import Remake, what_if_made
from autopart.api.explained.conflict_table import Conflicts
from autopart.api.explained.explain import explain
from autopart.api.explained.explanation import Explanation
from autopart.api.explained.left_whole import replicated
from autopart.api.explained.metadata import Metadata
from autopart.api.explained.remarks import remarks
from autopart.api.explained.resolutions import METADATA_OPS, priced_conflicts
from autopart.api.explained.what_if import WhatIf, what_if
from autopart.api.jitted.compiled import Compiled, concrete_mesh, platform_of, platform_of_devices
from autopart.api.jitted.interpreted import run_in_sequence
from autopart.api.jitted.platform import runnable
from autopart.api.measured.profile import Profile, profile_beside
from autopart.api.plan.host_check import check_hosts
from autopart.api.plan.plan import Plan
from autopart.api.plan.plan_of import plan_of
from autopart.api.report.page import Sheet, head, write_report
from autopart.api.tactics.manual import INPUTS
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.schedule_named import Schedule
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import Traced
from autopart.base.arguments import AXES, FLAG, NONE, PATH, STRING, TEXT, Kind, check, instance, mapping, shown, whole
from autopart.base.errors import ArgumentError, CallError
from autopart.core.doors.jax_internals import module_text
from autopart.core.mesh import Mesh
from autopart.core.passes import PassReport
from autopart.core.program_text import program_text
from autopart.core.table.partitioning import Partitioning
from autopart.core.table.text import core_text
from autopart.costmodel.compiled.links.redistribution_costs import axis_seconds
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.flop_shares import divided
from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.hardware.links import mesh_links
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.export import export
from autopart.spmd.hlo_text import hlo_text
from autopart.spmd.lowering.gathered import Price, gathered
from autopart.spmd.run import input_layouts, named_axes, on_mesh, output_layouts, spec_of

_OPTION = Kind(
    "text, a number or a flag",
    lambda v: isinstance(v, (str, float)) or (type(v) in (bool, int) and abs(v) < 2**63),
)
COMPILER_OPTIONS = mapping(STRING, _OPTION, "a dict of XLA's options by name, each text, a number or a flag") | NONE
"""What XLA is told."""

HOST = "pinned_host"
"""The kind of memory that jax means by `jax.memory.Space.Host`."""

NAMED_OPS = 100_000
"""Ops of the largest program whose named schedules a report costs without being asked."""


@dataclass(frozen=True)
class Lowered:
    """A partitioned program, ahead of time. Needs no devices until it is compiled."""

    traced: Traced
    scheduled: Scheduled
    mesh: Mesh
    devices: jax.sharding.Mesh | None = None
    compiler_options: Mapping[str, Any] | None = None
    inline: bool = False
    remake: Remake | None = field(default=None, repr=False, compare=False)
    free_layouts: bool = False

    def __repr__(self) -> str:
        cost = f", {replace(self.estimate, simulation=None)}" if self.estimate else ""
        return " ".join(f"<{type(self).__name__} of {self.traced.program.op_count} ops over {self.mesh}{cost}>".split())

    @property
    def program(self) -> DeviceLocal:
        """The device-local program: what cost models take."""
        return self.scheduled.device_local

    @property
    def estimate(self) -> Estimate | None:
        """Seconds and bytes of a step on one device; None where the mesh names no device and no cost model is given."""
        return self.scheduled.estimate

    @property
    def passes(self) -> tuple[PassReport, ...]:
        """What each pass over the program took and did, before the schedule."""
        return self.traced.passes

    @functools.cached_property
    def metadata(self) -> Metadata:
        """One report per tactic, and where inputs and outputs live."""
        program = self.traced.program
        outputs = [f"outputs/{n}".rstrip("/") for n in program.output_names]
        return Metadata(
            mesh=self.mesh.shape,
            device=self.mesh.device,
            tactics=self.scheduled.reports,
            in_specs=dict(zip(program.argument_names, map(self._axes, self._input_layouts), strict=True)),
            out_specs=dict(zip(outputs, map(self._axes, self._output_layouts), strict=True)),
            flop_divided=divided(self.scheduled.uses),
            gathered=tuple(gathered(self.scheduled.partitioning, self.program, self._price())),
            conflicts=priced_conflicts(self.scheduled, METADATA_OPS),
            replicated=replicated(self.scheduled.partitioning, self.program, self.scheduled.reports),
            remarks=tuple(remarks(self.traced, self.scheduled)),
            shortest=Shortest(self.scheduled),
        )

    @functools.cached_property
    def plan(self) -> Plan:
        """What the schedule decided, as a value to save, compare and give to `ap.jit` in the schedule's place.

        Raises `PlanError` where a tactic cannot be written down: microbatches cut by a function.
        """
        return plan_of(self.scheduled)

    @functools.cached_property
    def conflicts(self) -> Conflicts:
        """The conflicts that the schedule left, each with what every way out would cost. A lowering per way."""
        return Conflicts(priced_conflicts(self.scheduled))

    def explain(self, path: str) -> Explanation:
        """Why the values of a path are laid out as they are: tactic, action, ops on the way, readers, collectives.

        `path` is a full name ("params/blocks/3/qkv", "outputs/1"), a leading part of one, a tag, or a glob. For an axis
        that tiles none of a value's dims it says why, and what tiling one would cost where that takes about a second
        in all; `what_if` prices the others. Raises `UnknownNameError` for a path that names nothing.
        """
        check("Lowered.explain", path=(path, TEXT))
        return explain(self.scheduled, path)

    def what_if(
        self,
        what: Mapping[str, Any] | Tactic | Schedule | None = None,
        axis: str | Sequence[str] | None = None,
        *,
        batch: int | None = None,
        mesh: Mesh | None = None,
        device: str | Device | None = None,
    ) -> WhatIf:
        """What another decision would cost: seconds, bytes and collectives beside the plan's, and where it fails.

        what     with `axis` the inputs of `ap.ManualPartition`, whose errors it raises for names that are not there; a
                 dim that the axis does not divide is no error here, but an entry of `fails`. A tactic is added to the
                 schedule, whatever it does: `ap.Recompute("blocks")`, a search. A schedule takes the schedule's place
        batch    another size of the batch; mesh, device   another mesh, or the same one of other devices

        All but the first lowers the function again, by the plan of this program where its mesh has these axes.
        """
        if axis is not None:
            check("Lowered.what_if", inputs=(what, INPUTS), axis=(axis, AXES))
            return what_if(self.scheduled, cast("Mapping[str, Any]", what), axis)
        if isinstance(what, Mapping):
            raise ArgumentError(
                "Lowered.what_if: along which axis?", hint=f"axis=, one of {', '.join(self.mesh.shape)}"
            )
        check("Lowered.what_if", batch=(batch, whole(1) | NONE), mesh=(mesh, instance("an ap.Mesh", Mesh) | NONE))
        if what is None and batch is None and mesh is None and device is None:
            raise ArgumentError("Lowered.what_if: what?", hint="inputs and axis, a tactic, batch=, mesh= or device=")
        over = mesh or (Mesh(self.mesh.shape, device) if device is not None else self.mesh)
        return what_if_made(self.traced, self.scheduled, self.remake, what, batch, over)

    def report(
        self, path: str | Path, *, tokens: int | None = None, named: bool | None = None, beside: Lowered | None = None,
        trace: str | Path | None = None,
    ) -> Path:  # fmt: skip
        """Writes a page that shows all of this, one HTML file that needs no network; returns where it is.

        Tactics, named schedules beside the result, memory over the program, seconds by op, axis, collective and source
        line, the roofline, layouts drawn on the mesh and by host, conflicts, the search's progress, the plan as code.
        `tokens` are those of a step, counted in the inputs where they can be. `named` schedules are costed, a lowering
        each, where no search did; by default if the program is of at most `NAMED_OPS` ops. `beside` is another lowered
        program to put beside this one, `trace` the folder of a profile of the step, as in `ap.calibrate`.
        """
        check("Lowered.report", path=(path, PATH), tokens=(tokens, whole(1) | NONE), named=(named, FLAG | NONE))
        check("Lowered.report", beside=(beside, instance("what ap.jit(...).lower(...) returns", Lowered) | NONE))
        named = self.traced.program.op_count <= NAMED_OPS if named is None else named
        sheet = self._sheet(tokens, named, beside)
        return write_report(sheet if trace is None else replace(sheet, profile=self.profile(trace)), path)

    def profile(self, trace: str | Path) -> Profile:
        """A profile of the step beside its estimate: what `ap.calibrate(trace=..., of=...)` gives."""
        check("Lowered.profile", trace=(trace, PATH))
        if self.estimate is None or self.estimate.simulation is None:
            raise ArgumentError("a profile beside what?", why="there is no estimate", hint="ap.Mesh(..., device=...)")
        return profile_beside(trace, self.estimate, self.compile().as_text() or "", self.mesh)

    def _sheet(self, tokens: int | None = None, named: bool = False, beside: Lowered | None = None) -> Sheet:
        costed = named and not any("baselines" in tactic.report for tactic in self.metadata.tactics)
        simulated = self.mesh.device is not None and self.estimate is not None and self.estimate.simulation is not None
        return Sheet(
            self.metadata,
            self.scheduled,
            tokens,
            costed_schedules(Partitioning(self.traced.program, self.mesh)) if costed and simulated else None,
            None if beside is None else (beside.metadata, beside.estimate),
            None if self.devices is None else self.devices.devices,
        )

    def _repr_html_(self) -> str:
        """For notebooks: the head of the report."""
        return head(self._sheet())

    def _price(self) -> Price | None:
        if self.mesh.device is None:
            return None
        links = mesh_links(self.mesh)
        return lambda plan, element_bytes, axis: axis_seconds(plan, element_bytes, links, axis)

    @property
    def in_shardings(self) -> Any:
        """NamedShardings of the inputs, as the pytree `(args, kwargs)`."""
        return self.shardings_on()[0]

    @property
    def out_shardings(self) -> Any:
        """NamedShardings of the outputs, in their pytree."""
        return self.shardings_on()[1]

    def as_jax_shardings(self) -> tuple[Any, Any]:
        """(in_shardings, out_shardings) on real devices, for plain `jax.jit`: XLA's partitioner does the rest.

        The inputs' shardings are one pytree per positional argument, as `jax.jit` takes them.
        """
        (args, kwargs), outputs = self.shardings_on(concrete_mesh(self.mesh, self.devices))
        if kwargs:
            raise CallError(
                f"jax.jit takes no shardings for keyword arguments ({', '.join(kwargs)})",
                hint="lower with positional arguments",
            )
        return args, outputs

    def shardings_on(self, mesh: Any = None) -> tuple[Any, Any]:
        """NamedShardings of the inputs, as the pytree `(args, kwargs)`, and of the outputs, on a mesh of devices."""
        inputs, outputs = self._placed(mesh)
        inputs = self.traced.of_leaves(inputs)
        return jax.tree.unflatten(self.traced.in_tree, inputs), jax.tree.unflatten(self.traced.out_tree, outputs)

    def as_text(self, form: str = "hlo", *, lines: bool = False) -> str:
        """As text: "core" (PartIR:Core), "hlo" (device-local, collectives over axes) or "stablehlo" (what runs).

        "program" is what the schedule was given: unpartitioned, after all passes. The text of "stablehlo" parses again;
        constants of more than 16 elements are left out of it. `lines` adds to each op of "hlo" the user's source line
        and the modules it is in.
        """
        check("Lowered.as_text", lines=(lines, FLAG))
        asked = cast(object, form)
        match asked if isinstance(asked, str) else None:
            case "program":
                return program_text(self.traced.program)
            case "core":
                return core_text(self.scheduled.partitioning)
            case "hlo":
                return hlo_text(self.program, lines)
            case "stablehlo":
                return module_text(self.exported)
            case _:
                raise ArgumentError(f'no text form {shown(form)}; there are "program", "core", "hlo" and "stablehlo"')

    @functools.cached_property
    def exported(self) -> Any:
        """The device-local StableHLO module."""
        return export(self.program)

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        """Compiles for the mesh's devices, with XLA's options if there are any, as `jax.stages.Lowered.compile` does.

        The options come on top of those that `ap.jit` was given. Over several hosts, raises `PlanError` on each of them
        where they did not partition the program alike.
        Raises `CallError` where there are too few devices, or where the program calls a library of another platform
        than theirs and cannot be lowered for them with the same layouts. What XLA itself refuses is XLA's error.
        """
        check("Lowered.compile", compiler_options=(compiler_options, COMPILER_OPTIONS))
        compiled = self.compiled_when_called(compiler_options)
        _ = compiled.executable
        return compiled

    def interpret(self, /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, with every loop nest of PartIR:Core run in sequence on jax's default device.

        Tiles are concatenated, sums added and slices sliced straight from the table that the tactics filled. Neither
        layouts nor collectives are involved, so a partitioned run is tested against it. Each op runs by itself: meant
        for small arrays. Nothing is donated. Raises `CallError` where the arguments are not those it was lowered for,
        and for a model with a `shard_map`.
        """
        if self.traced.program.manual.names:
            raise CallError(
                "interpret cannot run a shard_map of the model",
                why="what is in it communicates between devices, and interpret runs on one",
                hint="lowered.compile(), or interpret the model without its shard_map",
            )
        traced, scheduled = runnable(self.traced, self.scheduled, platform_of(jax.devices()[0]))
        return run_in_sequence(traced, scheduled.partitioning, args, kwargs)

    def compiled_when_called(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        """As `compile`, but XLA compiles at the first call, and not at all where every call is traced by jax."""
        mesh = concrete_mesh(self.mesh, self.devices)
        check_hosts(mesh, lambda: self.plan, self.as_text)
        asked = {**(self.compiler_options or {}), **(compiler_options or {})}
        traced, scheduled = runnable(self.traced, self.scheduled, platform_of_devices(mesh))
        module = self.exported if traced is self.traced else export(scheduled.device_local)
        inputs, outputs = self._placed(mesh)
        weak = {n for n, aval in enumerate(traced.out_avals) if aval.weak_type}
        placed = on_mesh(scheduled.device_local, module, mesh, inputs, outputs, self.inline, weak, self.free_layouts)
        return Compiled(placed, traced, asked)

    @property
    def _input_layouts(self) -> list[int]:
        return input_layouts(self.program)

    @property
    def _output_layouts(self) -> list[int]:
        return output_layouts(self.program)

    def _axes(self, layout: int) -> tuple[tuple[str, ...], ...]:
        return named_axes(self.mesh, layout)

    def _placed(self, mesh: Any) -> tuple[list[NamedSharding], list[NamedSharding]]:
        """Of all arguments and outputs, in the kinds of memory that given shardings ask for."""
        program, given = self.traced.program, dict[str, str]()
        for tactic in self.scheduled.reports:
            given |= tactic.report.get("memory_kinds", {})
        inputs = [given.get(f"in_shardings of {name}") for name in program.argument_names]
        outputs = [given.get(f"out_shardings of outputs/{name}".rstrip("/")) for name in program.output_names]
        outputs = [HOST if n in self.traced.on_host else kind for n, kind in enumerate(outputs)]
        return (
            self._shardings(self._input_layouts, self.traced.in_avals, inputs, mesh),
            self._shardings(self._output_layouts, self.traced.out_avals, outputs, mesh),
        )

    def _shardings(
        self, layouts: list[int], avals: Sequence[Any], kinds: Sequence[str | None], mesh: Any = None
    ) -> list[NamedSharding]:
        """One per aval; a PRNG key has no dim for its bits, so an axis that tiles them is left out."""
        mesh = mesh or AbstractMesh(
            self.mesh.axis_sizes, self.mesh.axis_names, (AxisType.Auto,) * len(self.mesh.axis_names)
        )
        specs = [spec_of(self.mesh, layout) for layout in layouts]
        return [
            NamedSharding(mesh, PartitionSpec(*spec[: len(aval.shape)]), memory_kind=kind)
            for spec, aval, kind in zip(specs, avals, kinds, strict=True)
        ]
