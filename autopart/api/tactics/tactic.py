"""What a tactic is, and the one way to run a list of them.

    run_tactics(partitioning, [BP, auto], TacticContext(options, cost_model))
      BP.act(partitioning, context: tactic 1 of 2)      ->  TacticResult([tile<x, 0, batch>, propagate<batch>])
      auto.act(partitioning, context: tactic 2 of 2)    ->  TacticResult([...], {"evaluations": 1000, ...})

`ap.jit`, `ap.sweep` and the seeds of a search all run their tactics here. So in each of them a tactic is told the same
things, and an error names the tactic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from autopart.api.tactics.followed_look_ups import follow_look_ups
from autopart.base.arguments import (
    ANYTHING,
    NONE,
    STRING,
    Kind,
    check_fields,
    function_of,
    instance,
    mapping,
    sequence,
    shown,
    takes,
    whole,
)
from autopart.base.errors import ArgumentError, PartitionError
from autopart.core.passes import Pass
from autopart.core.table.actions import ACTIONS, Action
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.estimate import CostModel
from autopart.spmd.device_local import LoweringOptions

_REPORT = mapping(STRING, ANYTHING, "a dict of names to plain values")
ACTION = instance("actions, such as a sweep or the metadata hold", *ACTIONS.values())
"""What an action may be."""


@dataclass(frozen=True)
class TacticContext:
    """What a tactic is told about the schedule it is in.

    options      how the schedule is lowered
    cost_model   what prices it; None: the simulator
    position     the tactic's place in the schedule, from 1
    count        how many tactics the schedule has
    schedule     which schedule that is, where it is not the one that `ap.jit` was given: 'seed 1 of "auto"'
    notes        the reports of the tactics before this one, in order
    """

    options: LoweringOptions = LoweringOptions()
    cost_model: CostModel | None = None
    position: int = 1
    count: int = 1
    schedule: str = ""
    notes: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check_fields(
            self,
            options=instance("an ap.LoweringOptions(...)", LoweringOptions),
            cost_model=function_of(2) | NONE,
            position=whole(1),
            count=whole(1),
            schedule=STRING,
            notes=sequence(_REPORT, "reports of tactics"),
        )

    def blamed(self, error: PartitionError, tactic: Tactic) -> PartitionError:
        """The error, naming the tactic that raised it and its place in the schedule."""
        where = f"tactic {self.position} of {self.count}" + (f" in {self.schedule}" if self.schedule else "")
        return error.blamed_on(f'{type(tactic).__name__} "{tactic.name}" ({where})')


@dataclass(frozen=True)
class TacticResult:
    """What a tactic did.

    actions   the actions that it took, in order
    report    plain values about how it decided; they end up in the metadata
    """

    actions: Sequence[Action]
    report: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        check_fields(self, actions=sequence(ACTION, ACTION.says), report=_REPORT)
        object.__setattr__(self, "actions", tuple(self.actions))


@runtime_checkable
class Tactic(Protocol):
    """Anything a schedule may hold: it acts on a partitioning and says which actions it took.

    @dataclass(frozen=True)
    class TileFirstArgument:
        axis: str
        name: str = "first argument"

        def act(self, partitioning, context):
            actions = [Tile(partitioning.program.arguments[0], 0, self.axis), Propagate(self.axis)]
            partitioning.apply_all(actions)
            return ap.TacticResult(actions)
    """

    @property
    def name(self) -> str:
        """What the metadata calls it. One that has `is_complete`, as a search or a plan, is followed by nothing of
        ours."""
        ...

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """Applies its actions to `partitioning`, ending with a propagation, and says which they were."""
        ...


@runtime_checkable
class RewritesProgram(Protocol):
    """A tactic that wants another program: its pass runs before the first tactic of the schedule that it stands in."""

    def program_pass(self, context: TacticContext) -> Pass:
        """The pass, told where in the schedule its tactic stands; a `PartitionError` of its names the tactic."""
        ...


def _is_tactic(value: object) -> bool:
    return isinstance(value, Tactic) and not isinstance(value, type) and takes(value.act, 2)


_TACTIC = Kind("tactics, with act(partitioning, context), such as ap.ManualPartition(...)", _is_tactic)
SCHEDULE = sequence(
    _TACTIC,
    "a list of tactics, such as [ap.ManualPartition({'x': 0}, axis='batch')]; a plan among them is ap.Replay(plan)",
)
"""What `ap.jit` and `ap.sweep` take; a tactic is an instance, and a single one stands in a list too."""


@dataclass(frozen=True)
class _LookedUpRows:
    """See `follow_look_ups`."""

    name: str = "rows that are looked up"

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        return TacticResult(follow_look_ups(partitioning, context.options))


def _with_look_ups(schedule: Sequence[Tactic]) -> Iterator[tuple[int, Tactic]]:
    """The tactics with their places, and `_LookedUpRows` behind those that are written by hand."""
    complete = [getattr(tactic, "is_complete", False) for tactic in schedule]
    for place, tactic in enumerate(schedule, 1):
        yield place, tactic
        if not complete[place - 1] and all(complete[place : place + 1]):
            yield place, _LookedUpRows()


def run_tactics(
    partitioning: Partitioning, schedule: Sequence[Tactic], context: TacticContext
) -> Iterator[tuple[Tactic, TacticContext, TacticResult]]:
    """Each tactic in turn acts on `partitioning`; yields (tactic, its context, what it did) after each, and what
    `follow_look_ups` did, if that is anything.

    `context` says what is the same for all of them. Raises a tactic's `PartitionError` with its name and place.
    """
    for position, tactic in _with_look_ups(schedule):
        context = dataclasses.replace(context, position=position, count=len(schedule))
        try:
            result = _result(tactic.act(partitioning, context))
        except PartitionError as error:
            raise context.blamed(error, tactic) from None
        if result.actions or not isinstance(tactic, _LookedUpRows):
            yield tactic, context, result
            context = dataclasses.replace(context, notes=(*context.notes, result.report))


def _result(returned: Any) -> TacticResult:
    """What a tactic returned, which others write."""
    if isinstance(returned, TacticResult):
        return returned
    raise ArgumentError(
        f"it returned {shown(returned)}", hint="ap.TacticResult(actions), with the actions that it took"
    )


def actions_of(partitioning: Partitioning, schedule: Sequence[Tactic], context: TacticContext) -> tuple[Action, ...]:
    """The actions of a whole schedule, which are applied to `partitioning`."""
    return tuple(action for _, _, result in run_tactics(partitioning, schedule, context) for action in result.actions)
