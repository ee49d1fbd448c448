"""Names that differ in their numbers alone, as one glob, where it matches nothing else.

layers/0/w: 1, layers/1/w: 1                    ->  layers/*/w: 1
layers_0/dot@lm.py:5, layers_1/dot@lm.py:5      ->  layers_*/dot@lm.py:5      lines stay what they are
params/q/kernel, params/up/kernel               ->  params/*/kernel           a wider one, for whoever checks it
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

from autopart.api.tracing.names import Names, select
from autopart.base.errors import UnknownNameError
from autopart.base.name_patterns import is_pattern
from autopart.core.value_places import is_place

D = TypeVar("D", bound=Hashable)
_DIGITS = re.compile(r"\d+")


def with_globs(decisions: Sequence[tuple[str, D]], names: Names) -> dict[str, D]:
    """Keys, or globs over them, with their decisions."""
    alike: dict[tuple[str, D], list[str]] = {}
    for key, decision in decisions:
        alike.setdefault((key if is_pattern(key) else _starred(key), decision), []).append(key)
    return {key: decision for (_, decision), keys in alike.items() for key in _as_globs(keys, names)}


def wider(one: str, other: str) -> Iterator[str]:
    """Globs that match what both match: below what they begin with, as far as they end alike."""
    if is_place(one) != is_place(other) or one.partition("@")[2] != other.partition("@")[2]:
        return
    (path, at, line), second = one.partition("@"), other.partition("@")[0]
    parts, others = path.split("/"), second.split("/")
    same = next((n for n, (a, b) in enumerate(zip(parts, others, strict=False)) if a != b), 0)
    left, right = parts[same:], others[same:]
    end = next((n for n, (a, b) in enumerate(zip(left[::-1], right[::-1], strict=False)) if a != b), None)
    end = min(len(left), len(right)) if end is None else end
    if not same or (at and not end):
        return
    if not end:
        yield "/".join(parts[:same])
    yield "/".join([*parts[:same], "*", *left[len(left) - end :]]).replace("*/*", "*") + at + line


def _as_globs(keys: Sequence[str], names: Names) -> list[str]:
    """Names that differ in numbers as globs that match them alone: as one, or as one for each value of a number."""
    if len(keys) < 2 or keys[0].startswith("%"):
        return [*keys]
    numbers = [_numbers(key) for key in keys]
    differ = {n: len(values) for n, each in enumerate(zip(*numbers, strict=True)) if len(values := set(each)) > 1}
    glob = _starred(keys[0], [*differ])
    if not differ or _matched(glob, names) == set(keys):
        return [glob] if differ else [*keys]
    place = min(differ, key=lambda n: differ[n])
    apart: dict[str, list[str]] = {}
    for key, number in zip(keys, numbers, strict=True):
        apart.setdefault(number[place], []).append(key)
    return [glob for some in apart.values() for glob in _as_globs(some, names)]


def _numbers(key: str) -> list[str]:
    """The numbers in a key, but for the line that it may name."""
    path, _, line = key.partition("@")
    return [*_DIGITS.findall(path), *([line.partition("#")[2]] if "#" in line else [])]


def _starred(key: str, at: Sequence[int] | None = None) -> str:
    """With `*` for its numbers, or for those at the positions `at`."""
    path, mark, line = key.partition("@")
    place, numbered, number = line.partition("#")
    count = itertools.count()
    star = lambda text: "*" if at is None or next(count) in at else text  # noqa: E731
    path = _DIGITS.sub(lambda found: star(found.group()), path)
    return path + mark + place + numbered + (star(number) if numbered else "")


def _matched(glob: str, names: Names) -> set[str]:
    try:
        return {n.name for n, _ in select(names, glob)} if is_pattern(glob) else set()
    except UnknownNameError:
        return set()
