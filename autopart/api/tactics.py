"""Tactics: what a schedule is made of. Each one issues the same few actions.

    ManualPartition({"x": 0}, axis="batch")
      ->  tile<x, 0, "batch">; propagate "batch"

A tactic never undoes an earlier one: what that decided is already propagated when this one acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from autopart.api.names import Named, dead_tags, named_values, resolve, select
from autopart.api.tactic import TacticContext, TacticResult
from autopart.core.actions import Action, Atomic, Propagate, Tile
from autopart.core.arguments import ANYTHING, AXES, STRING, check_fields, mapping, shown, takes
from autopart.core.errors import TileError, UnknownNameError
from autopart.core.partitioning import Partitioning


class Choice(Enum):
    """What a tactic may say about a value besides a dim."""

    REPLICATED = "replicated"
    FIRST_DIVISIBLE_DIM = "first divisible dim"
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return f"ap.{self.name}"


REPLICATED = Choice.REPLICATED
"""Keep the value whole along the axis (an atomic action)."""

FIRST_DIVISIBLE_DIM = Choice.FIRST_DIVISIBLE_DIM
"""The first dim whose size, after what already tiles it, the axis divides; nothing where there is none."""

UNKNOWN = Choice.UNKNOWN
"""No decision: propagation decides."""


_INPUTS = mapping(STRING, ANYTHING, "a dict of names to decisions, such as {'x': 0}")


@dataclass(frozen=True)
class ManualPartition:
    """Tiles named values along one mesh axis, or several, then propagates.

    inputs  maps an argument's name, a tag, "outputs" or a glob over full names to a decision: a dim,
            `REPLICATED`, `FIRST_DIVISIBLE_DIM`, `UNKNOWN`, a callable `(path, shape) -> decision`, or a dict of
            globs over the pytree path below the key. With several axes, a tuple decides for each of them, anything
            else for all. Arrays without elements cannot be tiled; a key that names others too passes over them.
    axis    a mesh axis or a sequence of them, outermost first
    name    what the metadata calls the tactic

    Raises, when applied: `UnknownNameError` for a name, path or glob that matches nothing, `TileError` for a
    decision that is not legal, `MeshError` for an unknown axis.
    """

    inputs: Mapping[str, Any]
    axis: str | Sequence[str]
    name: str = ""

    def __post_init__(self) -> None:
        check_fields(self, inputs=_INPUTS, axis=AXES, name=STRING)
        if not self.name:
            object.__setattr__(self, "name", f"ManualPartition[{','.join(self.axes)}]")

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes it acts on."""
        return (self.axis,) if isinstance(self.axis, str) else tuple(self.axis)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        for axis in self.axes:
            partitioning.mesh.index(axis)
        actions: list[Action] = []
        for value, named, decisions in self._decisions(partitioning):
            for axis, decision in zip(self.axes, decisions, strict=True):
                action = _action(partitioning, named, value, axis, decision)
                if action is not None:
                    partitioning.apply(action)
                    actions.append(action)
        partitioning.propagate(self.axes)
        return TacticResult([*actions, *map(Propagate, self.axes)])

    def _decisions(self, partitioning: Partitioning) -> Iterator[tuple[int, Named, tuple[Any, ...]]]:
        named, dead = named_values(partitioning.program), dead_tags(partitioning.program)
        decided: dict[int, tuple[str, tuple[Any, ...]]] = {}
        for key, wanted in self.inputs.items():
            for target, decision in resolve(_known(select(named, key, dead), partitioning), wanted, key):
                each = self._per_axis(decision, target, partitioning)
                if target.value in decided and decided[target.value][1] != each:
                    raise TileError(
                        f"two decisions for {target.name}: {decided[target.value][1]} and {each}",
                        why="two keys of one tactic name it",
                        hint="narrow one of the globs, or use two tactics",
                    )
                if key != target.name and 0 in partitioning.program.type_of(target.value).shape:
                    continue
                if target.value not in decided:
                    decided[target.value] = (target.name, each)
                    yield target.value, target, each

    def _per_axis(self, decision: Any, target: Named, partitioning: Partitioning) -> tuple[Any, ...]:
        if takes(decision, 2):
            decision = decision(target.below or target.name, partitioning.program.type_of(target.value).shape)
        each = decision if isinstance(decision, tuple) else (decision,) * len(self.axes)
        if len(each) != len(self.axes):
            raise TileError(f"{target.name}: {len(each)} decisions for {len(self.axes)} axes {self.axes}")
        for one in each:
            if one is not None and not isinstance(one, Choice) and (isinstance(one, bool) or not isinstance(one, int)):
                raise TileError(
                    f"{target.name}: {shown(one)} is not a decision",
                    hint="a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, ap.UNKNOWN, or a dict of globs below the key",
                )
        return each


def _known(found: list[tuple[Named, str]], partitioning: Partitioning) -> list[tuple[Named, str]]:
    """What was selected, unless it is a number that no value of the program has."""
    count = partitioning.program.value_count
    for named, _ in found:
        if named.value >= count:
            raise UnknownNameError(f'the program has no value "{named.name}"', hint=f'"%0" to "%{count - 1}"')
    return found


def _action(partitioning: Partitioning, named: Named, value: int, axis: str, decision: Any) -> Action | None:
    match decision:
        case None | Choice.UNKNOWN:
            return None
        case Choice.REPLICATED:
            return Atomic(value, axis)
        case Choice.FIRST_DIVISIBLE_DIM:
            rank = len(partitioning.program.type_of(value).shape)
            legal = (d for d in range(rank) if not partitioning.why_not_tile(value, d, axis))
            dim = next(legal, None)
            return None if dim is None else Tile(value, dim, axis)
        case dim:
            rank = len(partitioning.program.type_of(value).shape)
            return Tile(value, dim + rank if -rank <= dim < 0 else dim, axis)
