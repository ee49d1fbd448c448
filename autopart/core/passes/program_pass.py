"""A pass: a program in, a program out that computes the same, before anything is partitioned.

    @register_pass("without_tags")
    @dataclass(frozen=True)
    class WithoutTags(Pass):
        def apply(self, program):
            return ...

    ap.jit(train_step, mesh, schedule, passes=["without_tags"])

A pass is a value: its fields are its settings, and its `repr` is its name in reports. It leaves the program that it is
given as it is. The arguments and outputs are what a caller sees, so they stay, with their order, names, types and ties;
so do the names of tags. `run_passes` verifies all of this.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

from autopart.base.arguments import Kind, having, sequence, shown
from autopart.base.errors import ArgumentError
from autopart.base.registry import Registry
from autopart.core.program import Program

APART = "taken_apart"
"""Marks parts of an op that divide where it does not, and take longer than it where nothing is divided."""


class Pass(ABC):
    """Rewrites programs; subclass it as a frozen dataclass."""

    before_import: ClassVar[bool] = False
    """True for a pass that sees the program before the import's own passes, and its scans as loops, not unrolled."""

    @abstractmethod
    def apply(self, program: Program) -> Program:
        """The rewritten program; `program` itself where there is nothing to do. Valid in, valid out."""

    def remarks(self, program: Program, made: Program) -> tuple[str, ...]:
        """What the pass, which made `made` of `program`, leaves undone, with source lines; for its report."""
        return ()

    def whole(self) -> Pass | None:
        """The pass for a program none of whose tiles asks for the ops that this one marks `APART`; None for no pass."""
        return self

    @classmethod
    def instances(cls, program: Program) -> Iterable[Pass]:
        """The passes of this kind that a search may try on `program`, such as one for each number of microbatches."""
        return ()


PASSES: Registry[Callable[[], Pass]] = Registry(
    "pass", entry_points="autopart.passes", load=lambda: importlib.import_module("autopart.core.passes")
)
"""What makes each pass with default settings, by name."""

T = TypeVar("T", bound=type[Pass])


def register_pass(name: str) -> Callable[[T], T]:
    """Class decorator: `passes=["name"]` then means an instance with default fields. A name can be taken once."""
    return PASSES.register(name)


PASSES_KIND = sequence(
    Kind("a pass", lambda v: isinstance(v, (Pass, str))), "a list of passes, or of their names, such as ['dead_code']"
)
"""What a list of passes may be given as."""

_PASS = having("an instance of a subclass of autopart.core.passes.Pass, or the name of one", "apply")


def pass_of(given: str | Pass) -> Pass:
    """The pass a user means; raises `UnknownNameError` for an unknown name, `ArgumentError` for what is none."""
    found = PASSES.named(given)() if isinstance(given, str) else given
    if not _PASS.legal(found):
        raise ArgumentError(f"{shown(found)} is no pass", hint=_PASS.says)
    return found
