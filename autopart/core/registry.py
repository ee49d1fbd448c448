"""Registries: one way in which everything that can be added is added.

    DEVICES: Registry[Device] = Registry("device")

    DEVICES.add("my_chip", my_chip)               a value
    @OPTIMIZERS.register("coin")                  or a decorator on the class or function that is the thing
    DEVICES.named("my_chp")                       UnknownNameError, with the nearest names
    with DEVICES.temporarily("my_chip", chip):    for the length of a block, as tests need it

Rules, devices, optimizers, executors, decision kinds, passes, cost models and named schedules each have one. A name can
be taken once; the second taker is told who was first. Installed packages add things through an entry point group,
which is read when somebody first asks.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from autopart.core.errors import PartitionError, UnknownNameError, closest

T = TypeVar("T")
Registered = TypeVar("Registered")


class RegistryError(PartitionError):
    """A name that is taken already, or a registered thing that breaks its interface."""


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name; reads like a dict.

    what          the kind, as errors say it ("optimizer")
    entry_points  the entry point group by which installed packages add things; none if empty
    load          imports the files that register the package's own things; called when somebody first asks
    error         what a second registration raises
    """

    def __init__(
        self,
        what: str,
        *,
        entry_points: str = "",
        load: Callable[[], object] | None = None,
        error: type[PartitionError] = RegistryError,
    ):
        self._what, self._group, self._load, self._error = what, entry_points, load, error
        self._things: dict[str, T] = {}
        self._owner: dict[str, str] = {}
        self._is_loaded = False

    # ---- adding

    def register(self, name: str) -> Callable[[Registered], Registered]:
        """Decorator: adds the class or function under `name`, and returns it as it is."""

        def add(thing: Registered) -> Registered:
            self.add(name, thing, getattr(thing, "__module__", ""))  # type: ignore[arg-type]
            return thing

        return add

    def add(self, name: str, thing: T, owner: str = "") -> T:
        """Adds `thing` and returns it; `owner` is the module or source it comes from. Raises where `name` is taken."""
        self._fill()
        if name in self._things:
            first = self._owner[name]
            raise self._error(
                f'{self._what} "{name}" is registered already',
                why=f"first by {first}" + (f", now again by {owner}" if owner else "") if first else "",
            )
        self._things[name], self._owner[name] = thing, owner
        return thing

    @contextmanager
    def temporarily(self, name: str, thing: T) -> Iterator[T]:
        """`thing` under `name` for the length of a block."""
        self.add(name, thing)
        try:
            yield thing
        finally:
            del self._things[name], self._owner[name]

    # ---- asking

    def named(self, name: str) -> T:
        """The thing called `name`; raises `UnknownNameError` with the nearest names and all of them."""
        if name not in self:
            raise UnknownNameError(
                f'no {self._what} is called "{name}"',
                why="known: " + ", ".join(sorted(self)),
                hint=closest(name, self),
            )
        return self[name]

    def __getitem__(self, name: str) -> T:
        self._fill()
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(tuple(self._things))

    def __len__(self) -> int:
        self._fill()
        return len(self._things)

    def __repr__(self) -> str:
        return f"Registry({self._what}: {', '.join(sorted(self._things))})"

    def _fill(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        if self._load is not None:
            self._load()
        for entry in importlib.metadata.entry_points(group=self._group) if self._group else ():
            found: Any = entry.load()
            if entry.name not in self._things:
                self.add(entry.name, found, entry.value)
