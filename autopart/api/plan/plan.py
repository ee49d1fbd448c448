"""`ap.Plan`: what a schedule decided, as a value: saved, loaded, compared, and given to `ap.jit` in a schedule's place.

    plan = ap.jit(train_step, mesh, [BP, auto]).lower(*args).plan        the search runs here, once
    plan.save("plan.json")
    step = ap.jit(train_step, mesh, ap.Plan.load("plan.json"))           and not here
    print(plan.diff(other))                                              layouts, collectives, seconds that differ

A plan is a sequence of tactics, so it stands wherever a schedule does. Each of them takes the actions that a tactic of
the schedule took, in a canonical order (`canonical_actions.py`), on values that are named by paths, tags and roles
(`value_keys.py`). The first checks the mesh and the program, the last that everything lies where the plan says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from autopart.api.plan.as_jax import AsJax
from autopart.api.plan.code_lines import CodeLine
from autopart.api.plan.decided_lines import decided_lines
from autopart.api.plan.plan_check import Spec, options_of, spec_text
from autopart.api.plan.plan_diff import PlanDiff, differences
from autopart.api.plan.plan_file import hash_of, parsed_plan, read_plan, written_plan
from autopart.api.plan.plan_tactics import PlannedTactic
from autopart.api.plan.rewrites import rewriting_tactic
from autopart.api.tactics.stages import Stages
from autopart.api.tactics.tactic import Tactic
from autopart.base.arguments import PATH, STRING, check, instance
from autopart.base.errors import PlanError
from autopart.base.html import lines_html, table_html
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, seconds_text
from autopart.core.mesh import Mesh
from autopart.spmd.device_local import LoweringOptions


@dataclass(frozen=True)
class PlanArray:
    """An input or output of the program: its path, its type ("f32[8,4]"), and the axes that tile each dim.

    dims   what each dim is ("embed"), by what the program does with it; "" where that is not known, () for outputs
    """

    name: str
    type: str
    spec: Spec
    dims: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class PlanStep:
    """What one tactic did.

    actions   as rows (`core/table/actions.py`), with keys of values in place of numbers
    rewrite   (kind, settings) of a tactic that wrote another program, such as ("microbatch", {...})
    """

    name: str
    actions: tuple[tuple[Any, ...], ...] = ()
    rewrite: tuple[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True, repr=False)
class Plan(Sequence[Tactic]):
    """What a schedule decided for one program on one mesh. `lowered.plan` makes it.

    axes          (name, size) of each mesh axis, major first
    device, links what the costs are of; a plan also applies to a mesh that names no device, or another
    program       fingerprint of the program that the actions were taken on
    options       the settings of `ap.LoweringOptions`
    steps         what each tactic did
    inputs        arguments, in order, with their layouts
    outputs       the same of the outputs
    collectives   kind -> count, an op in a loop counted by trip count
    step_s, peak_bytes   estimates for one device; None where nothing priced them
    made_by       the version of autopart
    lines         lines of the model's code at which values come to lie otherwise (`as_jax`)

    As a sequence it holds the tactics that do it again.
    """

    axes: tuple[tuple[str, int], ...]
    device: str | None
    links: tuple[tuple[str, str], ...]
    program: str
    options: Mapping[str, Any]
    steps: tuple[PlanStep, ...]
    inputs: tuple[PlanArray, ...]
    outputs: tuple[PlanArray, ...]
    collectives: Mapping[str, int] = field(default_factory=dict)
    step_s: float | None = None
    peak_bytes: float | None = None
    made_by: str = ""
    lines: tuple[CodeLine, ...] = field(default=(), compare=False)

    # ---- files

    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON, a line per decision and array. Equal plans are equal files.

        Raises `PlanError` where the file cannot be written.
        """
        check("Plan.save", path=(path, PATH))
        content = written_plan(self)
        try:
            Path(path).write_bytes(content)
        except OSError as error:
            raise PlanError(f"{path!s} cannot be written", why=error.strerror or str(error)) from None

    @staticmethod
    def load(path: str | Path) -> Plan:
        """The plan that `save` wrote. Raises `PlanError` where the file is no plan, is damaged, or of a later version.

        Whether it fits a program and a mesh shows when it is lowered with them.
        """
        check("Plan.load", path=(path, PATH))
        return Plan(**read_plan(Path(path), PlanStep, PlanArray, CodeLine))

    def to_json(self) -> str:
        """What `save` writes."""
        return written_plan(self).decode()

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote. Raises as `load` does."""
        check("Plan.from_json", text=(text, STRING))
        return Plan(**parsed_plan(text.encode(errors="replace"), "the text", PlanStep, PlanArray, CodeLine))

    # ---- comparing

    @cached_property
    def hash(self) -> str:
        """Hex digest of what the plan decides, for which program and mesh. Costs and names of tactics are no part."""
        return hash_of(self)

    def __hash__(self) -> int:
        return hash(self.hash)

    def diff(self, other: Plan) -> PlanDiff:
        """What differs from this plan to the other: mesh, layouts, collectives, seconds. Prints as a table."""
        check("Plan.diff", other=(other, instance("an ap.Plan, such as lowered.plan or ap.Plan.load(...)", Plan)))
        return differences(self, other)

    # ---- in other programs

    def as_jax(self) -> AsJax:
        """As jax, flax and MaxText take it: PartitionSpecs by path, constraints by line, logical axis rules.

        As data, and printed as code; `.explicit` is that of explicit axes.
        """
        return AsJax(self)

    # ---- a schedule

    @cached_property
    def tactics(self) -> tuple[Tactic, ...]:
        """The tactics that do it again."""
        acting = [n for n, step in enumerate(self.steps) if step.rewrite is None]
        first, last = (acting[0], acting[-1]) if acting else (None, None)
        tactics = [
            rewriting_tactic(*step.rewrite, step.name)
            if step.rewrite is not None
            else PlannedTactic(self, step.name, step.actions, n == first, n == last)
            for n, step in enumerate(self.steps)
        ]
        return tuple(tactics) if acting else (*tactics, PlannedTactic(self, "Plan", (), True, True))

    def __len__(self) -> int:
        return len(self.tactics)

    @overload
    def __getitem__(self, index: int) -> Tactic: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Tactic]: ...

    def __getitem__(self, index: int | slice) -> Tactic | Sequence[Tactic]:
        return self.tactics[index]

    def __iter__(self) -> Iterator[Tactic]:
        return iter(self.tactics)

    def lowering_options(self, given: LoweringOptions = LoweringOptions()) -> LoweringOptions:
        """The options of the plan. Raises `PlanError` where `given` are others than these and the default ones."""
        settings = options_of(given)
        if settings == dict(self.options):
            return given
        if given != LoweringOptions():
            raise PlanError(
                "the plan was made with other options",
                why=f"{dict(self.options)}, and not {settings}",
                hint="leave out options=..., or plan anew",
            )
        try:
            return LoweringOptions(**self.options)
        except (TypeError, ValueError) as error:
            raise PlanError(
                "the plan's options have to be given once more",
                why=f"options={one_line(str(dict(self.options)))} holds an object that no file can: {error}",
            ) from None

    def __str__(self) -> str:
        mesh = ", ".join(f"{name}={size}" for name, size in self.axes)
        lines = [f"plan {self.hash[:12]} on {mesh}" + (f", {self.device}" if self.device else "")]
        for step in self.steps:
            what = step.rewrite[0] if step.rewrite else f"{len(step.actions)} actions"
            lines.append(f"  {one_line(step.name)}: {what}")
            lines += [f"    {text}" for text in decided_lines(step.actions)]
        tiled = [a for a in self.inputs if a.spec]
        lines.append(f"  {len(tiled)} of {len(self.inputs)} inputs tiled")
        lines += [f"  {count} {kind}" for kind, count in self.collectives.items() if count]
        if self.step_s is not None and self.peak_bytes is not None:
            lines.append(f"  {seconds_text(self.step_s)}, {bytes_text(self.peak_bytes)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Plan({self.hash[:12]}, {len(self.steps)} tactics)"

    def _repr_html_(self) -> str:
        """For notebooks: what the text says, and the inputs that axes tile."""
        tiled = [(row.name, row.type, spec_text(row.spec)) for row in self.inputs if any(row.spec)]
        return lines_html(str(self).splitlines()) + table_html(["input", "type", "axes of each dim"], tiled)

    @property
    def stages(self) -> Stages | None:
        """The stages of an `ap.Pipeline`: of each layer, their schedule, and what is handed over; None without."""
        said = (step.rewrite[1] for step in self.steps if step.rewrite and step.rewrite[0] == "pipeline")
        return next(map(Stages.of, said), None)

    @property
    def mesh(self) -> Mesh:
        """The mesh that it was made for."""
        return Mesh(dict(self.axes), device=self.device, links=dict(self.links))
