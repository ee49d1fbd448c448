"""`ap.Recompute`: a tactic that computes intermediate results again instead of keeping them.

[ap.Recompute("blocks"), BP, Z3]        what `jax.checkpoint` around each block does, without a change of the model

It changes the program before any tactic decides about it: what is read by early ops and again by late ones, as a
forward pass's results are by the backward pass, is computed again for the late ones, unless the policy keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.base.arguments import STRING, check_fields
from autopart.base.errors import ArgumentError, PartitionError
from autopart.core.passes import Pass, Policy, Recomputation
from autopart.core.passes.recompute import KEEP, KEEP_ONE
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning


@dataclass(frozen=True)
class Recompute:
    """Keeps some intermediate results between their early and late uses, and computes the others again.

    keep   what is kept: "blocks" (what enters each block of the program, found by structure, and its last block),
           "matmuls" (results of matmuls and convolutions), "nothing"; a tag; a pattern of scopes such as
           "*/attention/*"; a function `(op, bytes, flop) -> bool` of an `ap.OpSpec` and of its unpartitioned bytes and
           flop; or a list of these: what any of them keeps is kept
    name   what the metadata calls the tactic

    Early is what comes before the point of the program where most intermediate results are there at once. Arguments and
    outputs are kept in any case, and so is what stands behind a `jax.checkpoint` of the model. Numbers stay the same.
    Raises, when applied: `UnknownNameError` for a policy, tag or scope that is not there, `ArgumentError` for an
    argument of the function.
    """

    keep: Policy | Sequence[Policy] = "blocks"
    name: str = "Recompute"

    def __post_init__(self) -> None:
        check_fields(self, keep=KEEP_ONE | KEEP, name=STRING)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """What is kept, as a tuple."""
        return (self.keep,) if isinstance(self.keep, str) or callable(self.keep) else tuple(self.keep)

    def program_pass(self, context: TacticContext) -> Pass:
        """The pass that computes again; see `RewritesProgram`."""
        return RecomputationOf(self, context)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`: the program is another already. Raises `ArgumentError` where none can be rewritten."""
        if context.schedule:
            raise ArgumentError(
                f"ap.Recompute cannot stand in {context.schedule}",
                why="a search decides about one program, and this tactic makes another of it",
                hint="put it into the schedule that ap.jit is given, beside the search",
            )
        return TacticResult([], self.report)

    @property
    def report(self) -> dict[str, Any]:
        """What it says of itself in a report, as plain values; of a function, {"function": its name}."""
        keep = [p if isinstance(p, str) else {"function": getattr(p, "__name__", "")} for p in self.policies]
        return {"recompute": {"keep": keep}}


@dataclass(frozen=True)
class RecomputationOf(Pass):
    """The pass of a `Recompute` at its place in a schedule."""

    tactic: Recompute
    context: TacticContext

    def __repr__(self) -> str:
        return repr(self.tactic)

    def apply(self, program: Program) -> Program:
        """The program that computes again."""
        try:
            return Recomputation(self.tactic.policies).apply(program)
        except PartitionError as error:
            raise self.context.blamed(error, self.tactic) from None

    def remarks(self, program: Program, made: Program) -> tuple[str, ...]:
        """See `Pass.remarks`."""
        return Recomputation(self.tactic.policies).remarks(program, made)
