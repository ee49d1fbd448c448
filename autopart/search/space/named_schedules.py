"""Schedules that people use, found in any program by its structure: what every search costs first.

    DP(batch)         (tile<inputs, 0, batch>,)          on one axis, each by a class in a registry
    Megatron(model)   (tile<qkv, 2, model>, ...)
    ZeRO3(batch)      (zero3<batch>,)                    `stores`: state in parts, beside whatever divides the work

`several_axes.py` puts them together over several axes; the families of our own stand below `named/`. Adding one:

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
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from autopart.base.arguments import maker
from autopart.base.errors import MeshError
from autopart.base.registry import Registry
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision

Decisions = tuple[Decision, ...]


class Named(NamedTuple):
    """A sequence of decisions under a name.

    label        as reports say it, with the axes: "Megatron(model)"
    decisions    none, where the program has nothing of the sort
    axes         the mesh axes that it is over
    stores       it says how state is stored, and comes after what divides the work
    """

    label: str
    decisions: Decisions
    axes: tuple[str, ...]
    stores: bool = False

    @property
    def role(self) -> str:
        """The label without the axes."""
        return self.label.partition("(")[0]


class NamedSchedule(Protocol):
    """A schedule that people use. Subclass it as a frozen dataclass: its text is part of a cached search's key.

    What it finds on one axis is combined with what others find on the other axes; what it finds on several axes at
    once is costed as it is.
    """

    of_state: ClassVar[bool] = False
    """Whether it is about arguments whose next value the program returns, and about no others."""

    @abstractmethod
    def decisions(self, space: DecisionSpace) -> Iterable[Named]:
        """The schedule on each axis, or group of axes, of the space. Leaves the space as it is."""


NAMED_SCHEDULES: Registry[Callable[[], NamedSchedule]] = Registry(
    "named schedule",
    accepts=maker("decisions(space)", "decisions"),
    entry_points="autopart.named_schedules",
    load=lambda: importlib.import_module("autopart.search.space.named"),
)
"""What makes each named schedule, by name; they are asked in this order."""

T = TypeVar("T", bound=Callable[[], Any])


def register_named_schedule(name: str) -> Callable[[T], T]:
    """Class decorator: searches then cost the schedule first. A name can be taken once."""
    return NAMED_SCHEDULES.register(name)


def registered_schedules() -> dict[str, NamedSchedule]:
    """Each registered schedule by name."""
    return {name: make() for name, make in NAMED_SCHEDULES.items()}


def found_schedules(space: DecisionSpace) -> list[Named]:
    """What the registered schedules find, in the order of their registration; empty ones are left out.

    They are shown the program with fewer layers, if there is one: a schedule that names single values there is shown
    the whole program instead. Raises `MeshError` for an axis that is not the space's.
    """
    found: list[Named] = []
    for schedule in registered_schedules().values():
        shown = space.trying(())
        named = list(schedule.decisions(shown))
        alike = space.trying(d for one in named for d in one.decisions) is shown
        found += named if alike else schedule.decisions(space)
    for named in found:
        _check_axes(space, named)
    return [named for named in found if named.decisions]


def _check_axes(space: DecisionSpace, named: Named) -> None:
    for axis in named.axes:
        if axis not in space.axes:
            why = f"the search is over {', '.join(space.axes)}"
            raise MeshError(f'the schedule "{named.label}" is over "{axis}"', why=why, hint="space.axes")
