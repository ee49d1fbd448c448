"""Errors that teach: what went wrong, where, why with the numbers, what is legal instead.

TileError: cannot tile params/w1: f32[1000,4096] on dim 0 along mesh axis "model" (size 16)
  by   ManualPartition "MP" (tactic 2 of 3)
  why  1000 is not a multiple of 16
  try  dim 1 (4096 = 16 * 256), or axis "batch" (size 8 divides 1000)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from autopart.base.quoting import one_line

CONTINUED = "\n       "
"""Between the lines of one entry."""


class PartitionError(ValueError):
    """Base of every error a user's input can cause; each line after the first is optional."""

    def __init__(self, what: str, *, by: str = "", why: str = "", hint: str = ""):
        self.what, self.by, self.why, self.hint = what, by, why, hint
        lines = [_own_line(what)]
        lines += [
            f"  {label:<4} {_own_line(text)}" for label, text in (("by", by), ("why", why), ("try", hint)) if text
        ]
        super().__init__("\n".join(lines))

    def blamed_on(self, by: str) -> PartitionError:
        """The same error, naming the tactic that caused it."""
        return self if self.by else type(self)(self.what, by=by, why=self.why, hint=self.hint)


def _own_line(text: str) -> str:
    """The text with the newlines that a name in it may hold as escapes; a list's own are followed by its indent."""
    return CONTINUED.join(map(one_line, text.split(CONTINUED)))


class ArgumentError(PartitionError):
    """An argument of another type than it can have, or out of its range."""


class MeshError(PartitionError):
    """The mesh is malformed, or an axis is not in it."""


class UnknownNameError(PartitionError):
    """A path, glob, tag, device or optimizer name that matches nothing."""


class TileError(PartitionError):
    """A tile or atomic action that is not legal on this value."""


class ProgramError(PartitionError):
    """A StableHLO module that cannot be read, or uses what partitioning does not support."""


class CallError(PartitionError):
    """A partitioned function called with arguments or devices it was not lowered for."""


class PlanError(PartitionError):
    """A plan that cannot be read or written, or that is of another program, mesh or host."""


class BlockedError(PartitionError):
    """An op that stops what was asked: a loop over microbatches, or in strict mode propagation."""


class PartitionWarning(UserWarning):
    """Base of what a user is warned of; the lines after the first begin with two spaces."""

    def __init__(self, text: str):
        super().__init__("\n  ".join(map(one_line, str(text).split("\n  "))))


def closest(name: str, known: Iterable[str], count: int = 3) -> str:
    """The known names nearest to `name`, as text for a `try` line."""
    known = list(known)
    near = difflib.get_close_matches(name, known, count, cutoff=0.4) or known[:count]
    return ", ".join(repr(k) for k in near)
