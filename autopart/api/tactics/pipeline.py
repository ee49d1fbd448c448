"""`ap.Pipeline`: a tactic that runs the layers of a training step in stages, one for each device along a mesh axis.

[ap.Pipeline("pipe", microbatches=8), BP, Z3]       device s holds layers s L/p to (s + 1) L/p - 1, and their gradients

The step is what it was, differentiated: its loop over layers and the loop for their gradients become loops over ticks,
in which all stages work on a microbatch each (`spmd/pipeline/`). What the tactic then tiles is the stage dim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autopart.api.programs.rewritings import batch_inputs
from autopart.api.tactics.manual import ManualPartition
from autopart.api.tactics.microbatch import Microbatch, MicrobatchLoop, plain
from autopart.api.tactics.stages import Stages, layers_of, stage_facts
from autopart.api.tactics.tactic import Tactic, TacticContext, TacticResult
from autopart.api.tracing.trace import Traced
from autopart.base.arguments import ANYTHING, NONE, STRING, Kind, check_fields, mapping, whole
from autopart.base.errors import ArgumentError, PartitionError
from autopart.core.mesh import Mesh
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, View
from autopart.core.passes import Pass
from autopart.core.program import Program
from autopart.core.repeats.repeated_blocks import repeated_blocks
from autopart.core.table.actions import Tile
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.pipeline import EXCHANGED, RETURNED, SCHEDULES, SENT, STAGES, own_microbatches, pipelined, rolled

_SCHEDULE = Kind(" or ".join(f'"{name}"' for name in SCHEDULES), lambda v: isinstance(v, str) and v in SCHEDULES)
_INPUTS = mapping(STRING, ANYTHING, "a dict of names to dims, such as {'batch': 0}")


@dataclass(frozen=True)
class Pipeline:
    """Runs the layers of a training step in stages along a mesh axis, several microbatches at a time.

    axis          the mesh axis; as many stages as it has devices
    microbatches  how many parts of the batch go through them; None where the step has a loop over microbatches already,
                  its own or that of an `ap.Microbatch` in the schedule
    inputs        what is cut into microbatches, as in `ap.Microbatch`; None for the inputs that are data
    schedule      "gpipe": all forwards, then all backwards; "1f1b": a backward as soon as it can be, so that at most
                  2 p - 1 microbatches wait for theirs at a stage; "circular": as gpipe, of more stages than devices:
                  each has `repeats` runs of layers, and microbatches go round that often
    repeats       runs of layers of a device; 2 if the schedule is circular and nothing is said
    name          what the metadata calls the tactic

    The layers are a scan over stacked parameters. What is before the first and behind the last runs on all devices of
    the axis, unless a tactic tiles it. With p devices, m microbatches and r repeats, (p - 1) / (r m + p - 1) of the
    time is idle. Parameters of layers are stored in their stage; with repeats, tiled along another dim and exchanged.
    Raises, when applied: `BlockedError` with the op and its source line for what cannot be staged, `ArgumentError` for
    layers that the axis does not divide, and what `ap.Microbatch` raises.
    """

    axis: str
    microbatches: int | None = None
    inputs: Mapping[str, Any] | None = None
    schedule: str = "gpipe"
    repeats: int | None = None
    name: str = "Pipeline"

    def __post_init__(self) -> None:
        inputs, microbatches = _INPUTS | NONE, whole(2, 2**20) | NONE
        check_fields(self, axis=STRING, microbatches=microbatches, inputs=inputs, schedule=_SCHEDULE, name=STRING)
        check_fields(self, repeats=whole(1, 2**20) | NONE)
        if self.repeats is None:
            object.__setattr__(self, "repeats", 2 if self.schedule == "circular" else 1)
        if self.schedule != "circular" and self.repeats != 1:
            raise ArgumentError(
                f'ap.Pipeline(schedule="{self.schedule}", repeats={self.repeats})',
                why="a stage is one run of layers in this schedule",
                hint='schedule="circular", in which each device has several runs',
            )

    @property
    def runs(self) -> int:
        """Runs of layers of a device."""
        return self.repeats or 1

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`: tiles the stage dim. Raises `ArgumentError` where no program can be rewritten."""
        is_staged = STAGES in partitioning.program.tags
        if not is_staged and partitioning.mesh.shape.get(self.axis) == 1:
            return TacticResult([], self.report)
        if context.schedule or not is_staged:
            raise ArgumentError(
                f"ap.Pipeline cannot stand in {context.schedule or 'a schedule of a program that is given'}",
                why="a search decides about one program, and this tactic makes another of it",
                hint="put it into the schedule that ap.jit is given, beside the search",
            )
        stored = self._stored(partitioning)
        partitioning.apply_all(stored)
        tags = [tag for tag in (STAGES, SENT, RETURNED) if partitioning.program.tags[tag]]
        result = ManualPartition(dict.fromkeys(tags, 0), self.axis).act(partitioning, context)
        return TacticResult([*stored, *result.actions], self.report_of(partitioning.program))

    def _stored(self, partitioning: Partitioning) -> list[Tile]:
        """Parameters of which a stage has rows that are not next to each other, that are arguments one by one, or of
        which there are not as many for all stages, tiled along their largest dim but that of the layers. So are their
        gradients where they leave the stages.
        """
        program, dims = partitioning.program, dict[int, int]()
        for value in program.tags[STAGES]:
            found = [*_arguments_behind(program, value)]
            if len(found) > 1 or self.runs > 1 or layers_of(program, value) % partitioning.mesh.shape[self.axis]:
                dims |= dict.fromkeys(found, int(len(found) == 1))
        if dims:
            dims |= dict.fromkeys(program.tags[EXCHANGED], 3 if self.runs > 1 else 2)
        tiles = list[Tile]()
        for value, first in dims.items():
            shape = program.type_of(value).shape
            legal = [d for d in range(first, len(shape)) if not partitioning.why_not_tile(value, d, self.axis)]
            if legal:
                tiles.append(Tile(value, max(legal, key=lambda d: shape[d]), self.axis))
        return tiles

    @property
    def report(self) -> dict[str, Any]:
        """What it says of itself in a report, as plain values."""
        said = {"axis": self.axis, "microbatches": self.microbatches, "schedule": self.schedule, "repeats": self.runs}
        return {"pipeline": said | {"inputs": None if self.inputs is None else plain(self.inputs)}}

    def report_of(self, program: Program) -> dict[str, Any]:
        """The same, with what the program with stages says of them."""
        facts = {"staged": stage_facts(program, self.runs)} if STAGES in program.tags else {}
        return {"pipeline": self.report["pipeline"] | facts}


def _arguments_behind(program: Program, value: int) -> Iterator[int]:
    """The arguments that a value has the elements of, one by one or side by side."""
    op = int(program.value_op[value])
    spec = program.spec(op)
    if value in program.argument_place:
        yield value
    elif (isinstance(traits := traits_of(spec), Elementwise) and traits.joins) or (
        len(spec.operands) == 1 and isinstance(traits, View | Elementwise)
    ):
        for part in program.operands_of(op).tolist():
            yield from _arguments_behind(program, part)


@dataclass(frozen=True)
class PlannedPipeline(Pipeline):
    """The pipeline of a plan, which has its tiles among its own actions."""

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`: the program is another already."""
        return TacticResult([], self.report_of(partitioning.program))


@dataclass(frozen=True)
class Pipelining(Pass):
    """The pass of a `Pipeline` at its place in a schedule."""

    tactic: Pipeline
    context: TacticContext
    stages: int

    def __repr__(self) -> str:
        return repr(self.tactic)

    def __str__(self) -> str:
        """The tactic, as code."""
        repeats = f", repeats={self.tactic.runs}" if self.tactic.runs > 1 else ""
        return f'ap.Pipeline("{self.tactic.axis}", schedule="{self.tactic.schedule}"{repeats})'

    def apply(self, program: Program) -> Program:
        """The program with its stages."""
        try:
            return (
                program
                if self.stages == 1
                else pipelined(self._looped(program), self.stages, self.tactic.schedule, self.tactic.runs)
            )
        except PartitionError as error:
            raise self.context.blamed(error, self.tactic) from None

    def remarks(self, program: Program, made: Program) -> tuple[str, ...]:
        """See `Pass.remarks`: what idle ticks and uneven stages cost."""
        said = Stages.of(self.tactic.report_of(made)["pipeline"])
        return () if said is None else said.remarks()

    def start(self, traced: Traced) -> Traced:
        """The program in which a search writes stages: with its layers in loops."""
        if not repeated_blocks(traced.program):
            return traced
        rolling, again = Rolling(), traced.again
        read = traced.read_with(rolling)
        return read if again is None else replace(read, again=lambda name: again(name, (rolling,)))

    def _looped(self, program: Program) -> Program:
        """The program with a loop over microbatches."""
        steps, inputs = self.tactic.microbatches, self.tactic.inputs
        if steps is None:
            return program
        if (own := own_microbatches(program)) > 0:
            raise ArgumentError(
                f"microbatches={steps}, and the step has a loop over {own} microbatches already",
                why="the microbatches of the inner loop go through stages, and those of the other one after the other",
                hint=f"ap.Pipeline without microbatches, for the {own} that are there; or a step without the loop",
            )
        found = batch_inputs(program, [steps]) if inputs is None else inputs
        if not found:
            raise ArgumentError(
                f"no argument is a batch that {steps} microbatches divide",
                why="no inputs are given, and none was found",
                hint='ap.Pipeline(..., inputs={"batch": 0}), with the arguments that are data, and their batch dims',
            )
        return MicrobatchLoop(Microbatch(found, steps), self.context, staged_by=self.tactic).apply(program)


@dataclass(frozen=True)
class Rolling(Pass):
    """Layers that the program has one by one become loops, before other passes make the first and the last unlike."""

    before_import = True

    def apply(self, program: Program) -> Program:
        """The program with its layers in loops; the same where most of its products are in no equal layers."""
        return rolled(program)


def stages_asked(
    schedule: Sequence[Tactic], contexts: Sequence[TacticContext], meshes: Sequence[Mesh]
) -> tuple[Pass, ...]:
    """The passes of the pipelines in a schedule; they come last, since what others write is found in the layers."""
    passes = list[Pass]()
    for tactic, context in zip(schedule, contexts, strict=True):
        if isinstance(tactic, Pipeline):
            if passes:
                error = ArgumentError("a schedule has one ap.Pipeline", why="an earlier tactic is one")
                raise context.blamed(error, tactic)
            for mesh in meshes:
                mesh.index(tactic.axis)
            stages = math.lcm(*(mesh.shape[tactic.axis] for mesh in meshes))
            passes.append(Pipelining(tactic, context, stages))
    return tuple(passes)
