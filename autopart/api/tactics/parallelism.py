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
from typing import ClassVar

from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.base.arguments import STRING, TEXT, check_fields, check_once, shown
from autopart.base.errors import ArgumentError, TileError, UnknownNameError, closest
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.baselines import SHARDED_LOOPS
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.named_schedules import NAMED_SCHEDULES, Named, found_schedules
from autopart.search.space.several_axes import REPLICATED

_PART = re.compile(r"\s*([^()+]+?)\s*(?:\(([^()]+)\)\s*)?(?:\+(?=.)|$)", re.DOTALL)
Axes = tuple[str, ...]

LOOPS = SHARDED_LOOPS.label
"""The one part that is over no axes."""

_AGAIN = "another part says it already"
_HINT = 'such as "DP(data)" or "FSDP(data)+Megatron(model)"'


@dataclass(frozen=True)
class Parallelism:
    """Carries out a named schedule.

    schedule   parts joined by "+", each a name and the mesh axes it is over: "DP(data)+Megatron(model)+ZeRO3(data)".
               The names are those of registered schedules; FSDP is DP and ZeRO3 over the same axes, HSDP is DP over
               its axes and ZeRO3 over the last of them. "ShardedLoops" is over no axes (`ap.ShardedLoops`).
               "replicated" tiles nothing. Parts are carried out in the order of the mesh's axes, those that store
               state last, whatever the order of the text
    name       what the metadata calls the tactic

    Raises, when applied: `UnknownNameError` for a name that no schedule has, `MeshError` for an axis that is not in the
    mesh, `TileError` where a part would do nothing: there is nothing of the sort, or no dim that the axis divides.
    """

    schedule: str
    name: str = ""
    is_complete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, ArgumentError, schedule=TEXT, name=STRING)
        parts = _PART.findall(self.schedule)
        is_parts = parts and not _PART.sub("", self.schedule).strip("+")
        if self.schedule != REPLICATED and not (is_parts and all(over or role == LOOPS for role, over in parts)):
            raise ArgumentError(f"Parallelism: {shown(self.schedule)} is no named schedule", hint=_HINT)
        if not self.name:
            object.__setattr__(self, "name", self.schedule)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        wanted = list(self._parts(partitioning)) if self.schedule != REPLICATED else []
        space = DecisionSpace.of(partitioning, [a for a, size in partitioning.mesh.shape.items() if size > 1])
        found = {(part.role, part.axes): part for part in (*found_schedules(space), SHARDED_LOOPS)}
        parts: list[tuple[str, Axes, Named | None]] = []
        for role, axes in wanted:
            together = [axes] if (role, axes) in found or not axes else [(axis,) for axis in axes]
            parts += [(role, over, found.get((role, over))) for over in together]

        def place(row: tuple[str, Axes, Named | None]) -> tuple[bool, bool, list[int]]:
            _, over, part = row
            return part is not None and part.stores, not over, [partitioning.mesh.index(axis) for axis in over]

        actions, said = list[Action](), set[tuple[str, str]]()
        for role, over, part in sorted(parts, key=place):
            again = bool(over) and said.issuperset((role, axis) for axis in over)
            actions += _carried_out(space, partitioning, role, over, part, again)
            said.update((role, axis) for axis in over)
        return TacticResult(actions)

    def _parts(self, partitioning: Partitioning) -> Iterator[tuple[str, Axes]]:
        """(role, axes) of each part, in the order of the text."""
        for role, over in _PART.findall(self.schedule):
            role, axes = role.strip(), tuple(axis.strip() for axis in over.split(",") if over)
            check_once(f"Parallelism: {role}", axes)
            for axis in axes:
                partitioning.mesh.index(axis)
            if role == LOOPS and not axes:
                yield role, axes
                continue
            for known, on in _spelled_out(role, axes):
                if known not in NAMED_SCHEDULES:
                    there = ["FSDP", "HSDP", *NAMED_SCHEDULES]
                    raise UnknownNameError(
                        f'no named schedule is called "{known}"',
                        why=f"there are {', '.join(there)}",
                        hint=closest(known, there),
                    )
                yield known, on


def _spelled_out(role: str, axes: Axes) -> list[tuple[str, Axes]]:
    match role:
        case "FSDP":
            return [("DP", axes), ("ZeRO3", axes)]
        case "HSDP":
            return [("DP", axes), ("ZeRO3", axes[-1:])]
        case _:
            return [(role, axes)]


def _carried_out(
    space: DecisionSpace, partitioning: Partitioning, role: str, axes: Axes, part: Named | None, again: bool
) -> list[Action]:
    decisions = part.decisions if part else ()
    actions = [action for decision in decisions for action in space.apply(partitioning, decision)]
    if not actions:
        over = " and ".join(f'"{axis}" (size {partitioning.mesh.shape[axis]})' for axis in axes)
        why, hint = (_AGAIN, "each part once") if again else _why_nothing(space, role, axes, part)
        raise TileError(
            f"{role} over mesh axis {over} does nothing" if axes else f"{role} does nothing", why=why, hint=hint
        )
    return actions


def _why_nothing(space: DecisionSpace, role: str, axes: Axes, part: Named | None) -> tuple[str, str]:
    """Why a part of a schedule has no actions, and what to do instead."""
    program, hint = space.program, "ap.named_schedules(fun, mesh, args) lists what there is"
    if part:
        return "nothing it would tile has a dim that the axis divides" if axes else "loops hold parts already", hint
    if program.arguments and not len(space.facts.updated) and getattr(NAMED_SCHEDULES[role](), "of_state", False):
        largest = max(program.arguments, key=lambda value: space.facts.value_bytes[value])
        name, axis = program.value_name(largest), axes if axes[1:] else axes[0]
        return (
            "no argument is state: none of a size worth dividing is donated, or comes back as an output of its type",
            f"donate_argnums=..., or ap.ManualPartition({{{name!r}: ap.FIRST_DIVISIBLE_DIM}}, axis={axis!r})",
        )
    return f"the program has nothing for {role} that the axis divides", hint
