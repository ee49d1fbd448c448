"""`ap.Parallelism`: a tactic by the name of a schedule that people know.

    ap.Parallelism("FSDP(data,fsdp)+Megatron(model)")
      DP over data and fsdp       every input of the program on its batch dim
      Megatron over model         heads and hidden dims
      ZeRO3 over data and fsdp    parameters and optimizer state in parts

What a name means is found in the program by its structure (`autopart/search/space/named/`), so it needs no names of
arguments; `ap.named_schedules` lists what there is, with its costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autopart.api.tactic import TacticContext, TacticResult
from autopart.core.actions import Action
from autopart.core.arguments import STRING, TEXT, check_fields, shown
from autopart.core.errors import ArgumentError, TileError, UnknownNameError, closest
from autopart.core.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.named_schedules import NAMED_SCHEDULES, Named, found_schedules
from autopart.search.space.several_axes import REPLICATED

_PART = re.compile(r"([^()+]+)\(([^()]+)\)")
_HINT = 'such as "DP(data)" or "FSDP(data)+Megatron(model)"'


@dataclass(frozen=True)
class Parallelism:
    """Carries out a named schedule.

    schedule   parts joined by "+", each a name and the mesh axes it is over: "DP(data)+Megatron(model)+ZeRO3(data)".
               The names are those of registered schedules; FSDP is DP and ZeRO3 over the same axes, HSDP is DP over
               its axes and ZeRO3 over the last of them. "replicated" tiles nothing
    name       what the metadata calls the tactic

    Raises, when applied: `UnknownNameError` for a name that no schedule has, `MeshError` for an axis that is not in the
    mesh, `TileError` where a part would do nothing: there is nothing of the sort, or no dim that the axis divides.
    """

    schedule: str
    name: str = ""

    def __post_init__(self) -> None:
        check_fields(self, ArgumentError, schedule=TEXT, name=STRING)
        is_parts = _PART.search(self.schedule) and not _PART.sub("", self.schedule).strip("+")
        if not is_parts and self.schedule != REPLICATED:
            raise ArgumentError(f"Parallelism: {shown(self.schedule)} is no named schedule", hint=_HINT)
        if not self.name:
            object.__setattr__(self, "name", self.schedule)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        wanted = list(self._parts(partitioning))
        space = DecisionSpace.of(partitioning, [a for a, size in partitioning.mesh.shape.items() if size > 1])
        found = {(part.role, part.axes): part for part in found_schedules(space)}
        parts = [(role, axis, found.get((role, (axis,)))) for role, axis in wanted]
        actions: list[Action] = []
        for role, axis, part in sorted(parts, key=lambda row: row[2] is not None and row[2].stores):
            actions += _carried_out(space, partitioning, role, axis, part)
        return TacticResult(actions)

    def _parts(self, partitioning: Partitioning) -> Iterator[tuple[str, str]]:
        """(role, axis) of each part, in the order of the text."""
        for role, over in _PART.findall(self.schedule):
            role, axes = role.strip(), [axis.strip() for axis in over.split(",")]
            for axis in axes:
                partitioning.mesh.index(axis)
            for known, on in _spelled_out(role, axes):
                if known not in NAMED_SCHEDULES:
                    why = f"there are {', '.join(['FSDP', 'HSDP', *NAMED_SCHEDULES])}"
                    raise UnknownNameError(
                        f'no named schedule is called "{known}"', why=why, hint=closest(known, list(NAMED_SCHEDULES))
                    )
                yield from ((known, axis) for axis in on)


def _spelled_out(role: str, axes: list[str]) -> list[tuple[str, list[str]]]:
    match role:
        case "FSDP":
            return [("DP", axes), ("ZeRO3", axes)]
        case "HSDP":
            return [("DP", axes), ("ZeRO3", axes[-1:])]
        case _:
            return [(role, axes)]


def _carried_out(
    space: DecisionSpace, partitioning: Partitioning, role: str, axis: str, part: Named | None
) -> list[Action]:
    decisions = part.decisions if part else ()
    actions = [action for decision in decisions for action in space.apply(partitioning, decision)]
    if not actions:
        raise TileError(
            f'{role} over mesh axis "{axis}" (size {partitioning.mesh.shape[axis]}) does nothing',
            why="nothing it would tile has a dim that the axis divides"
            if part
            else f"the program has nothing for {role} that the axis divides",
            hint="ap.named_schedules(fun, mesh, args) lists what there is",
        )
    return actions
