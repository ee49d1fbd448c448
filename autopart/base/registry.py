"""Registries: one way in which everything that can be added is added.

    DEVICES: Registry[Device] = Registry("device")

    DEVICES.add("my_chip", my_chip)               a value
    @OPTIMIZERS.register("coin")                  or a decorator on the class or function that is the thing
    DEVICES.named("my_chp")                       UnknownNameError, with the nearest names
    with DEVICES.temporarily("my_chip", chip):    for the length of a block, as tests need it
    with DEVICES.restored():                      what the block adds is gone at its end

Op rules, custom calls, devices, optimizers, executors, cost models, decision kinds, named schedules, passes: each has
one. A name can be taken once; the second taker is told who was first. Installed packages add things through an entry
point group ("autopart.devices"), which is read when somebody first asks.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

from autopart.base.arguments import ANYTHING, TEXT, Kind, check
from autopart.base.errors import PartitionError, UnknownNameError, closest

T = TypeVar("T")
Registered = TypeVar("Registered")


class RegistryError(PartitionError):
    """A name that is taken already, or a registered thing that breaks its interface."""


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name; reads like a dict.

    what          the kind, as errors say it ("optimizer")
    accepts       what a thing must be; the error says it in words
    entry_points  the entry point group by which installed packages add things; none if empty
    load          imports the files that register the package's own things; called when somebody first asks
    error         what a registration raises that is a second one, or of something that is not accepted
    """

    def __init__(
        self,
        what: str,
        *,
        accepts: Kind = ANYTHING,
        entry_points: str = "",
        load: Callable[[], object] | None = None,
        error: type[PartitionError] = RegistryError,
    ):
        self._what, self._accepts, self._group, self._load, self._error = what, accepts, entry_points, load, error
        self._things: dict[str, T] = {}
        self._owner: dict[str, str] = {}
        self._has_own = self._is_full = False

    # ---- adding

    def register(self, name: str) -> Callable[[Registered], Registered]:
        """Decorator: adds the class or function under `name`, and returns it as it is."""
        check(self._registering, self._error, name=(name, TEXT))

        def add(thing: Registered) -> Registered:
            self.add(name, cast(T, thing), _place_of(thing))
            return thing

        return add

    def add(self, name: str, thing: T, owner: str = "") -> T:
        """Adds `thing` and returns it; `owner` is the module or source it comes from. Raises where `name` is taken."""
        check(self._registering, self._error, name=(name, TEXT), it=(thing, self._accepts))
        self._load_own()
        if name in self._things:
            first = self._owner[name] or "somebody who did not say"
            raise self._error(
                f'{self._what} "{name}" is registered already',
                why=f"first by {first}" + (f", now again by {owner}" if owner else ""),
            )
        self._things[name], self._owner[name] = thing, owner
        return thing

    @contextmanager
    def temporarily(self, name: str, thing: T) -> Generator[T]:
        """`thing` under `name` for the length of a block."""
        with self.restored():
            yield self.add(name, thing)

    @contextmanager
    def restored(self) -> Generator[None]:
        """What a block adds, by decorators too, is gone at its end."""
        self._fill()
        things, owner = dict(self._things), dict(self._owner)
        try:
            yield
        finally:
            self._things, self._owner = things, owner

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
        if not self._is_full:
            self._fill()
        return self._things[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The thing called `name`, or the default; rules are asked for millions of times."""
        if not self._is_full:
            self._fill()
        return self._things.get(name, default)

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(tuple(self._things))

    def __len__(self) -> int:
        self._fill()
        return len(self._things)

    def __repr__(self) -> str:
        return f"Registry({self._what}: {', '.join(sorted(self._things))})"

    @property
    def _registering(self) -> str:
        """As errors call the function that adds: `register_decision_kind`."""
        return f"register_{self._what.replace(' ', '_')}"

    def _load_own(self) -> None:
        if not self._has_own:
            self._has_own = True
            if self._load is not None:
                self._load()

    def _fill(self) -> None:
        self._load_own()
        if not self._is_full:
            self._is_full = True
            for entry in importlib.metadata.entry_points(group=self._group) if self._group else ():
                self._add_entry(entry)

    def _add_entry(self, entry: importlib.metadata.EntryPoint) -> None:
        """Adds what an installed package names, unless its module has registered that itself when it was imported."""
        try:
            found: Any = entry.load()
        except (ImportError, AttributeError) as error:
            raise self._error(
                f'{self._what} "{entry.name}" cannot be loaded',
                by=f"the entry point {entry.value} of {self._group}",
                why=repr(error),
            ) from error
        is_itself = entry.name in self._things and (
            self._things[entry.name] is found or f"{self._owner[entry.name]}.".startswith(f"{entry.module}.")
        )
        if not is_itself:
            self.add(entry.name, found, entry.value)


def _place_of(thing: Any) -> str:
    """Where a class or function is defined: `autopart.search.mcts.mcts.MCTS`."""
    return ".".join(filter(None, [getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")]))
