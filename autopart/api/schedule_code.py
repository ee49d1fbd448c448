"""Metadata as code: the actions of a schedule, written as the manual tactics that issue them.

    tile<params/0/w, 1, model>, tile<params/1/w, 1, model>, propagate<model>
      ->  ap.ManualPartition({"params/*/w": 1}, axis="model")

    share_gathers<64>
      ->  ap.SharedGathers(within=64)

One manual tactic per propagation. Names that differ in their numbers alone become a glob, if it matches nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from autopart.api.names import Named, is_glob, select
from autopart.core.errors import UnknownNameError

if TYPE_CHECKING:
    from autopart.api.metadata import Metadata

_TILE = re.compile(r"tile<(.+), (\d+), ([^,<>]+)>")
_ATOMIC = re.compile(r"atomic<(.+), ([^,<>]+)>")
_PROPAGATE = re.compile(r"propagate<(.+)>")
_SHARE_GATHERS = re.compile(r"share_gathers<(\d+)>")
_DIGITS = re.compile(r"\d+")
WIDTH = 110


def schedule_code(metadata: Metadata) -> str:
    """Python code of a list `schedule` that takes the same actions; it needs `import autopart as ap`."""
    names = [*metadata.in_specs, *metadata.out_specs]
    named = [Named(n, *_parts(n), value=i) for i, n in enumerate(names)]
    lines = ["schedule = ["]
    for tactic in metadata.tactics:
        lines.append(f"    # {tactic.name}")
        for axis, decisions in _propagations(tactic.actions):
            lines += _tactic_lines(_with_globs(decisions, named), axis)
        shared = [found for action in tactic.actions if (found := _SHARE_GATHERS.fullmatch(action))]
        lines += [f"    ap.SharedGathers(within={found[1]})," for found in shared]
    return "\n".join([*lines, "]"])


def _parts(name: str) -> tuple[str, str]:
    head, _, below = name.partition("/")
    return head, below


def _propagations(actions: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(axis, [(name, decision)]) per propagation; decisions about other axes wait for theirs."""
    waiting: dict[str, list[tuple[str, str]]] = {}
    for action in actions:
        if found := _TILE.fullmatch(action):
            waiting.setdefault(found[3], []).append((found[1], found[2]))
        elif found := _ATOMIC.fullmatch(action):
            waiting.setdefault(found[2], []).append((found[1], "ap.REPLICATED"))
        elif (found := _PROPAGATE.fullmatch(action)) and found[1] in waiting:
            yield found[1], waiting.pop(found[1])
    yield from waiting.items()


def _with_globs(decisions: list[tuple[str, str]], named: list[Named]) -> dict[str, str]:
    """Names, or globs over them, with their decisions."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, decision in decisions:
        alike.setdefault((_DIGITS.sub("*", name), decision), []).append(name)
    found: dict[str, str] = {}
    for (glob, decision), names in alike.items():
        if len(names) > 1 and not names[0].startswith("%") and _matched(glob, named) == set(names):
            found[glob] = decision
        else:
            found |= {re.sub(r"([*?[])", r"[\1]", name): decision for name in names}
    return found


def _matched(glob: str, named: list[Named]) -> set[str]:
    try:
        return {n.name for n, _ in select(named, glob)} if is_glob(glob) else set()
    except UnknownNameError:
        return set()


def _tactic_lines(decisions: dict[str, str], axis: str) -> list[str]:
    parts = [f"{name!r}: {decision}" for name, decision in decisions.items()]
    parts = [p.replace("'", '"') for p in parts]
    one = f'    ap.ManualPartition({{{", ".join(parts)}}}, axis="{axis}"),'
    if len(one) <= WIDTH:
        return [one]
    return ["    ap.ManualPartition(", "        {", *_wrapped(parts), "        },", f'        axis="{axis}",', "    ),"]


def _wrapped(parts: Iterable[str]) -> Iterator[str]:
    line = ""
    for part in parts:
        if line and len(line) + len(part) + 2 > WIDTH - 12:
            yield f"            {line}"
            line = ""
        line = f"{line} {part},".strip()
    yield f"            {line}"
