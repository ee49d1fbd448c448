"""Names of the values a user can decide about: argument leaves, tags and outputs.

    train_step(params, x) -> (params, loss),  ap.tag("scores", s) inside

    "params/blocks/0/w"   an argument leaf: its pytree path below the argument's name
    "scores"              a tag (every value that carries it)
    "outputs/1"           an output leaf
    "blocks_*/attn/dot_general@lm.py:52"    any other value: scope, op and line (`core/value_places.py`)

A key of a tactic is one of the first parts ("params", "scores", "outputs"), or a pattern over whole names; below it
come patterns over the rest of the path, nested as deep as the user likes. A key is first looked for as it is written,
then read as a pattern (`base/name_patterns.py`): "w[0]" is the argument of that name, where there is one.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autopart.base.errors import UnknownNameError, closest
from autopart.base.name_patterns import compiled, is_pattern
from autopart.core.importer.constraints import is_constraint
from autopart.core.program import Program
from autopart.core.value_places import ValuePlaces, is_place

OUTPUTS = "outputs"


@dataclass(frozen=True)
class Named:
    """A value under its full name; `head` is the part that a tactic's key names, `below` the rest of the path.

    exact   the name is of this very value, and not of a longer twin of it (`core/passes/padding/`) too
    """

    name: str
    head: str
    below: str
    value: int
    exact: bool = False


def named_values(program: Program) -> list[Named]:
    """Every value of the program that has a name, arguments first."""
    found = [_split(name, value) for name, value in zip(program.argument_names, program.arguments, strict=True)]
    for tag, values in program.tags.items():
        found += [Named(tag, tag, "", value) for value in values]
    found += [
        _split(f"{OUTPUTS}/{name}".rstrip("/"), value)
        for name, value in zip(program.output_names, program.outputs, strict=True)
    ]
    return found


class Keys:
    """Value -> the key by which a tactic names it and nothing else.

    An argument's path, a tag of its own, an output's path, and else where its code stands; "%12" where it has none of
    these. "x" is no such key where "x/0" is an argument too, or "x" a tag.
    """

    def __init__(self, program: Program):
        self._places, self._named = program.value_places, dict[int, str]()
        values = named_values(program)
        matched = Counter(leading for n in values for leading in _leading_parts(n.name))
        for named in values:
            is_number = named.name.startswith("%") and named.name[1:].isdigit()
            if named.name and not is_number and not is_constraint(named.name) and matched[named.name] == 1:
                self._named.setdefault(named.value, named.name)

        self.arguments = {value: self._named[value] for value in program.arguments if value in self._named}
        """Of the arguments that have a key of their own."""

    def unnumbered(self, value: int) -> str:
        """The name of the value, or of several that are alike."""
        return self._named.get(value) or self._places.unnumbered(value) or f"%{value}"

    def __call__(self, value: int) -> str:
        """The key."""
        return self._named.get(value) or self._places.name_of(value) or f"%{value}"


def _leading_parts(path: str) -> Iterator[str]:
    """ "a", "a/b" and "a/b/c" of "a/b/c"."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)
    yield path


def _split(name: str, value: int) -> Named:
    head, _, below = name.partition("/")
    return Named(name, head, below, value)


def dead_tags(program: Program) -> tuple[str, ...]:
    """Tags of values that nothing uses: those are no part of the program, so a decision about them does nothing."""
    return tuple(tag for tag, values in program.tags.items() if not values)


@dataclass(frozen=True)
class Paths:
    """Values with their paths, to be looked up by key: `rows` are gone through once, not for every key."""

    rows: list[tuple[Named, str]]

    def below(self, key: str) -> list[tuple[Named, str]]:
        """The values whose paths the key names, as a whole or a leading part, each with the rest: as it is written,
        else as a pattern, for which all paths are compared."""
        found = self._by_leading_part.get(key, [])
        if found or not is_pattern(key):
            return found
        if key not in self._by_pattern:
            self._by_pattern[key] = [(named, rest) for named, path in self.rows for rest in _rest(path, key)]
        return self._by_pattern[key]

    @cached_property
    def _by_pattern(self) -> dict[str, list[tuple[Named, str]]]:
        return {}

    @cached_property
    def _by_leading_part(self) -> dict[str, list[tuple[Named, str]]]:
        found: dict[str, list[tuple[Named, str]]] = {}
        for named, path in self.rows:
            for leading in _leading_parts(path):
                found.setdefault(leading, []).append((named, path[len(leading) + 1 :]))
        return found


@dataclass(frozen=True)
class Names:
    """Named values, to be looked up by the keys of tactics; `places` has those that have no name of their own."""

    values: list[Named]
    places: ValuePlaces | None = None

    @staticmethod
    def of(program: Program) -> Names:
        """Those of a program, which are looked for once."""
        places = program.value_places
        if places not in _KNOWN:
            _KNOWN[places] = Names(named_values(program), weakref.proxy(places))
        return _KNOWN[places]

    @cached_property
    def by_head(self) -> dict[str, list[tuple[Named, str]]]:
        """Head -> its values, each with the path below."""
        found: dict[str, list[tuple[Named, str]]] = {}
        for named in self.values:
            found.setdefault(named.head, []).append((named, named.below))
        return found

    @cached_property
    def whole(self) -> Paths:
        """All values by their full names."""
        return Paths([(named, named.name) for named in self.values])


_KNOWN: weakref.WeakKeyDictionary[ValuePlaces, Names] = weakref.WeakKeyDictionary()
"""By the places of its program, which live as long as the program does."""


def names_of_nothing(program: Program) -> tuple[str, ...]:
    """Names that are there and stand for no value: dead tags, and what has no arrays."""
    return (*dead_tags(program), *program.without_arrays)


def select(names: Names, key: str, nothing: Collection[str] = ()) -> list[tuple[Named, str]]:
    """The values that a top-level key names, each with the path that is left below the key.

    A key that only matches one of the names that stand for `nothing` names no value, and is no error.

    "%12" names value number 12 of the program, for values without a name.

    Raises `UnknownNameError` with the closest names if there are none.
    """
    if key.startswith("%") and key[1:].isascii() and key[1:].isdecimal():
        return [(Named(key, key, "", int(key[1:]), exact=True), "")]
    found = names.by_head.get(key, [])
    if not found and ("/" in key or is_pattern(key)):
        found = names.whole.below(key)
    if not found and names.places is not None and is_place(key):
        return [(Named(name, name, "", value, exact=True), "") for name, value in names.places.values_of(key)]
    if not found and not _stands_for(key, nothing):
        arguments = sorted({*names.by_head} - {OUTPUTS})
        others = {n.head for n in names.values} | {n.name for n in names.values} | set(nothing)
        known = [*arguments, *sorted(others - {*arguments})]
        what = "glob" if is_pattern(key) else "name"
        raise UnknownNameError(
            f'no argument, tag or output matches the {what} "{key}"',
            why=f"the arguments are {', '.join(arguments)}",
            hint=closest(key, known),
        )
    return found


def resolve(
    found: list[tuple[Named, str]], wanted: Any, trail: str, nothing: Collection[str] = ()
) -> Iterator[tuple[Named, Any]]:
    """Follows nested dicts of globs below a key; yields each value with what the user wants for it."""
    if not found or not isinstance(wanted, Mapping):
        yield from ((named, wanted) for named, _ in found)
        return
    paths = Paths(found)
    for pattern, inner in wanted.items():
        pattern = str(pattern)
        hits = paths.below(pattern)
        if not hits and not _stands_for(f"{trail}/{pattern}", nothing):
            what = "glob" if is_pattern(pattern) else "path"
            raise UnknownNameError(
                f'no path below "{trail}" matches the {what} "{pattern}"',
                hint=closest(pattern, [below for _, below in found if below]),
            )
        yield from resolve(hits, inner, f"{trail}/{pattern}", nothing)


def _stands_for(key: str, names: Collection[str]) -> bool:
    """True if the key is one of the names, above it or below it: as it is written, else as a pattern.

    "opt_state/*/mu" is there for Adam; for an optimizer without state it stands for nothing.
    """
    is_glob = is_pattern(key)
    return any(
        f"{name}/".startswith(f"{key}/") or key.startswith(f"{name}/") or (is_glob and bool(_rest(name, key)))
        for name in names
    )


def _rest(path: str, pattern: str) -> list[str]:
    """What is left of `path` below `pattern`: [""] on a full match, the rest below a matching leading part, else []."""
    match, end = compiled(pattern).match, len(path)
    while end > 0:
        if match(path, 0, end):
            return [path[end + 1 :]]
        end = path.rfind("/", 0, end)
    return [""] if not path and match(path) else []
