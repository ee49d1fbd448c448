"""Schedules that people use, found in any program by its structure: where a seeded search starts.

    named_schedules(space)  ->  [("BP(batch)", (tile<inputs, 0>,)), ("BP+Z3(batch)", (tile<inputs, 0>, zero3)), ...]

Each is a value in a registry; `parallelism.py` holds our own. Adding one:

    @register_named_schedule("Keep")
    @dataclass(frozen=True)
    class Keep(NamedSchedule):
        def decisions(self, space):
            return [Named(f"Keep({a})", (Decision("keep", 0, -1, a),), (a,)) for a in space.axes]

Packages can also register one by the entry point group "autopart.named_schedules".
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

from autopart.core.arguments import maker
from autopart.core.errors import MeshError
from autopart.core.registry import Registry
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision

Decisions = tuple[Decision, ...]


class Named(NamedTuple):
    """A sequence of decisions under a name.

    label        as reports say it, with the axes: "BP+Megatron(batch,model)"
    decisions    none, where the program has nothing of the sort
    axes         the mesh axes that it is over: sequences over the first axis are tried before those over the second
    """

    label: str
    decisions: Decisions
    axes: tuple[str, ...]


class NamedSchedule(Protocol):
    """A schedule that people use. Subclass it as a frozen dataclass: its text is part of a cached search's key."""

    @abstractmethod
    def decisions(self, space: DecisionSpace) -> Iterable[Named]:
        """The schedule on each axis, or pair of axes, of the space. Leaves the space as it is."""


NAMED_SCHEDULES: Registry[Callable[[], NamedSchedule]] = Registry(
    "named schedule",
    accepts=maker("decisions(space)", "decisions"),
    entry_points="autopart.named_schedules",
    load=lambda: importlib.import_module("autopart.search.space.parallelism"),
)
"""What makes each named schedule, by name; they are asked in this order."""

T = TypeVar("T", bound=Callable[[], Any])


def register_named_schedule(name: str) -> Callable[[T], T]:
    """Class decorator: seeded searches then start from the schedule too. A name can be taken once."""
    return NAMED_SCHEDULES.register(name)


def registered_schedules() -> dict[str, NamedSchedule]:
    """Each registered schedule by name."""
    return {name: make() for name, make in NAMED_SCHEDULES.items()}


def named_schedules(space: DecisionSpace) -> list[tuple[str, Decisions]]:
    """(label, decisions) of each, by axis; empty ones are left out, equal ones are listed once, under the first label.

    Raises `MeshError` for an axis that is not the space's.
    """
    found = [named for schedule in registered_schedules().values() for named in schedule.decisions(space)]
    found.sort(key=lambda named: _places(space, named))
    unique = {named.decisions: named.label for named in reversed(found) if named.decisions}
    return [(label, decisions) for decisions, label in reversed(list(unique.items()))]


def _places(space: DecisionSpace, named: Named) -> list[int]:
    for axis in named.axes:
        if axis not in space.axes:
            why = f"the search is over {', '.join(space.axes)}"
            raise MeshError(f'the schedule "{named.label}" is over "{axis}"', why=why, hint="space.axes")
    return [space.axes.index(axis) for axis in named.axes]
