"""The actions that tactics issue, and the one way to write them down.

    Tile(3, 0, "batch")     row  ["tile", 3, 0, "batch"]         text  tile<%3, 0, batch>
    Atomic(5, "batch")      row  ["atomic", 5, "batch"]          text  atomic<%5, batch>
    Propagate("batch")      row  ["propagate", "batch"]          text  propagate<batch>
    ShareGathers(64)        row  ["share_gathers", 64]           text  share_gathers<64>
    ShardLoops()            row  ["shard_loops"]                 text  shard_loops

A row is plain data: caches, metadata and generated code hold rows. Numbers of values hold for one program alone; a row
that is to outlive it holds keys in their place (`key_of`), and who reads it says which value each key is (`value_of`).
Text is for readers; a name in it may hold anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.base.errors import PartitionError
from autopart.base.quoting import one_line


class ActionError(PartitionError):
    """A row that is no action."""


@dataclass(frozen=True)
class Tile:
    """tile<value, dim, axis>: slice `value` on `dim` over mesh axis `axis`."""

    value: int
    dim: int
    axis: str


@dataclass(frozen=True)
class Atomic:
    """atomic<value, axis>: keep `value` whole over mesh axis `axis`."""

    value: int
    axis: str


@dataclass(frozen=True)
class Propagate:
    """propagate: spread what is known about `axis` through the program."""

    axis: str


@dataclass(frozen=True)
class ShareGathers:
    """share_gathers<within>: a value that is stored in parts is gathered once for uses at most `within` ops apart."""

    within: int


@dataclass(frozen=True)
class ShardLoops:
    """shard_loops: loops hold parts of what is stored in parts; they gather, and reduce their sums, in every turn."""


Action = Tile | Atomic | Propagate | ShareGathers | ShardLoops

ACTIONS: dict[str, type[Action]] = {
    "tile": Tile,
    "atomic": Atomic,
    "propagate": Propagate,
    "share_gathers": ShareGathers,
    "shard_loops": ShardLoops,
}
"""Every action by the word that rows and text begin with."""

_WORDS = {action: word for word, action in ACTIONS.items()}
_FIELDS = {word: tuple(field.name for field in dataclasses.fields(action)) for word, action in ACTIONS.items()}


def _number(value: int) -> Any:
    return int(value)


def _same_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ActionError(f"{value!r:.80} is no number")
    return value


def row_of(action: Action, key_of: Callable[[int], Any] = _number) -> list[Any]:
    """The action as plain data; `key_of` says what stands for a value, its number by default."""
    return [_WORDS[type(action)], *(_entry(name, part, key_of) for name, part in vars(action).items())]


def _entry(name: str, part: Any, key_of: Callable[[int], Any]) -> Any:
    if name == "value":
        return key_of(part)
    return part if name == "axis" else int(part)


def action_of(row: Any, value_of: Callable[[Any], int] = _same_number) -> Action:
    """The action that `row_of` wrote; `value_of` says which value a key is.

    Whether the action is legal is the partitioning's to say. Raises `ActionError` for what is no row.
    """
    if isinstance(row, (str, bytes)) or not isinstance(row, Sequence) or not row:
        raise ActionError(f"{row!r:.80} is no action", hint=f"a list that begins with {', '.join(ACTIONS)}")
    word, *parts = row
    names = _FIELDS.get(word) if isinstance(word, str) else None
    if names is None or len(parts) != len(names):
        raise ActionError(f"{row!r:.80} is no action", hint=_legal(word))
    return ACTIONS[str(word)](*(_read(name, part, value_of) for name, part in zip(names, parts, strict=True)))


def _legal(word: object) -> str:
    known = [word] if isinstance(word, str) and word in _FIELDS else list(_FIELDS)
    return " or ".join(f"[{', '.join((name, *_FIELDS[name]))}]" for name in known)


def _read(name: str, part: Any, value_of: Callable[[Any], int]) -> Any:
    if name == "value":
        return value_of(part)
    if name != "axis":
        return _same_number(part)
    if not isinstance(part, str):
        raise ActionError(f"{part!r:.80} is no mesh axis")
    return part


def text_of(action: Action, name_of: Callable[[int], str] = "%{}".format) -> str:
    """The action as the paper writes it, on one line; `name_of` says what a reader calls a value."""
    word, *parts = row_of(action, name_of)
    return one_line(f"{word}<{', '.join(map(str, parts))}>" if parts else word)
