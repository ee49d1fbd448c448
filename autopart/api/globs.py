"""Names that differ in their numbers alone, as one glob, where it matches nothing else.

layers/0/w: 1, layers/1/w: 1  ->  layers/*/w: 1
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import TypeVar

from autopart.api.names import Named, Names, select
from autopart.core.errors import UnknownNameError
from autopart.core.name_patterns import is_pattern

D = TypeVar("D", bound=Hashable)
_DIGITS = re.compile(r"\d+")


def with_globs(decisions: Sequence[tuple[str, D]], named: list[Named]) -> dict[str, D]:
    """Keys, or globs over them, with their decisions."""
    names = Names(named)
    alike: dict[tuple[str, D], list[str]] = {}
    for key, decision in decisions:
        alike.setdefault((key if is_pattern(key) else _DIGITS.sub("*", key), decision), []).append(key)
    found: dict[str, D] = {}
    for (glob, decision), keys in alike.items():
        if len(keys) > 1 and not keys[0].startswith("%") and _matched(glob, names) == set(keys):
            found[glob] = decision
        else:
            found |= dict.fromkeys(keys, decision)
    return found


def _matched(glob: str, names: Names) -> set[str]:
    try:
        return {n.name for n, _ in select(names, glob)} if is_pattern(glob) else set()
    except UnknownNameError:
        return set()
