"""Which value of one lowering of a function is which of another: a schedule's actions are taken on both.

    a name                       an argument, an output, or a tag that as many values carry
    a key, as plans have them    an intermediate value that a search decided about, by what it looks like
    a place                      where a library call stands nearby, which each platform has its own of: the second of
                                 three products of this type in this scope, if the other lowering has three too

An action on a wrong value would lay something out otherwise, and compute the same. So an action on what only one of the
platforms has, such as what a library call leaves, is not taken on the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from autopart.api.plan.value_keys import ValueKeys
from autopart.api.tracing.names import named_values
from autopart.base.errors import PlanError
from autopart.core.program import Program
from autopart.core.table.actions import Action, Atomic, Tile


class SameValues:
    """Values of the program `before` in the program `after`."""

    def __init__(self, before: Program, after: Program):
        self._before, self._after = before, after

    def of(self, value: int) -> int | None:
        """The value of `after`; None where nothing identifies it."""
        for found in (self._by_name(value), self._by_key(value), self._by_place(value)):
            if found is not None and self._before.type_of(value) == self._after.type_of(found):
                return found
        return None

    def taken_again(self, actions: Iterable[Action]) -> Iterator[Action]:
        """The actions on values of `after`, without those on a value that it does not have."""
        for action in actions:
            if not isinstance(action, Tile | Atomic):
                yield action
            elif (value := self.of(action.value)) is not None:
                yield replace(action, value=value)

    def _by_name(self, value: int) -> int | None:
        old, new = self._places
        return next((new[place] for place, other in old.items() if other == value and place in new), None)

    def _by_key(self, value: int) -> int | None:
        old, new = self._keys
        try:
            return new.value_of(old.key_of(value))
        except PlanError:
            return None

    def _by_place(self, value: int) -> int | None:
        old, new = (keys.alike(*self._keys[0].kind_of(value)) for keys in self._keys)
        return new[old.index(value)] if len(old) == len(new) and value in old else None

    @cached_property
    def _places(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        return _places(self._before), _places(self._after)

    @cached_property
    def _keys(self) -> tuple[ValueKeys, ValueKeys]:
        return ValueKeys(self._before), ValueKeys(self._after)


def _places(program: Program) -> dict[tuple[str, int], int]:
    """(name, how many values before it have that name) -> value. Tags that occur at another number of places differ."""
    named = named_values(program)
    total, count = Counter(entry.name for entry in named), Counter[str]()
    places: dict[tuple[str, int], int] = {}
    for entry in named:
        key = f"{entry.name} of {total[entry.name]}"
        places[key, count[key]] = entry.value
        count[key] += 1
    return places
