"""The pass: what is read early and late is computed again for its late uses, unless a policy keeps it.

Recomputation(keep=("blocks",)).apply(program)

Scopes are taken apart: the program's own, and the body of every loop that holds a whole step, such as the one over
microbatches. In each, `lifetimes.py` finds where most is held; what lies before is early, what comes after late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from autopart.base.arguments import TEXT, check_fields, function_of, sequence
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import work
from autopart.core.passes.dead_code import DeadCode
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.recompute.across_scopes import WholeProgram
from autopart.core.passes.recompute.again import Again, repeatable
from autopart.core.passes.recompute.blocks import kept_between_blocks
from autopart.core.passes.recompute.broadcasts import with_broadcasts_in_loops
from autopart.core.passes.recompute.lifetimes import Lifetimes, lifetimes
from autopart.core.passes.recompute.policies import Policy, kept_ops
from autopart.core.passes.recompute.scans import RebuiltStacks
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import ROOT, Program

NOTHING = "nothing is computed twice: what late ops read of early ones is kept, or no op comes late (no backward pass)"
"""What is said of a pass that saves no memory."""

KEEP_ONE = TEXT | function_of(3)
KEEP = sequence(KEEP_ONE, 'names or functions, such as ["blocks", "attention_out"]', least=1)


@register_pass("recompute")
@dataclass(frozen=True)
class Recomputation(Pass):
    """Computes again, before late uses, what no policy in `keep` keeps; see `policies.py` for what they may be."""

    keep: tuple[Policy, ...] = ("blocks",)

    def __post_init__(self) -> None:
        check_fields(self, keep=KEEP)

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        program = with_broadcasts_in_loops(program)
        keeps, again = kept_ops(program, self.keep), repeatable(program)
        rewriting = Rewriting(program)
        halves: set[int] = set()
        whole = WholeProgram(program)
        for number, scope in enumerate(program.scopes):
            if number == ROOT or (scope.kind == "body" and number not in halves):
                halves |= self._scope(rewriting, lifetimes(whole, number), keeps, again)
        return DeadCode().apply(rewriting.program())

    def remarks(self, program: Program, made: Program) -> tuple[str, ...]:
        """That nothing is computed twice; the stacks of loops that are kept although no policy asks for it, and why."""
        program = with_broadcasts_in_loops(program)
        nothing = () if _computing(made) - _computing(program) else (NOTHING,)
        return (*nothing, *self._kept_stacks(program))

    def _kept_stacks(self, program: Program) -> tuple[str, ...]:
        if not program.owners:
            return ()
        keeps, again, found = kept_ops(program, self.keep), repeatable(program), dict[str, None]()
        whole = WholeProgram(program)
        for number, scope in enumerate(program.scopes):
            if number == ROOT or scope.kind == "body":
                life = lifetimes(whole, number)
                for cut in life.cuts():
                    stacks = RebuiltStacks(Rewriting(program), life, cut, keeps, again)
                    stacks.write()
                    found.update(dict.fromkeys(stacks.problems))
        return tuple(found)

    def _scope(self, rewriting: Rewriting, life: Lifetimes, keeps: np.ndarray, again: np.ndarray) -> set[int]:
        """Rewrites one scope; the bodies of loops that are rewritten as halves of a step, and not by themselves."""
        halves: set[int] = set()
        op = life.program.value_op[life.values]
        kept = (keeps | ~again)[op] | (life.last >= life.end) | life.whole.saved_by_user[life.values]
        for cut in life.cuts():
            stacks = RebuiltStacks(rewriting, life, cut, keeps, again)
            stacks.write()
            halves |= stacks.paired
            keep, block = kept, np.full(len(life.values), -1)
            if "blocks" in self.keep:
                between, block = kept_between_blocks(life, cut, kept)
                keep = kept | between
            if (~keep & (life.first <= cut) & (life.last > cut)).any():
                Again(rewriting, life, cut, keep, block).write()
        return halves


def _computing(program: Program) -> Counter[str]:
    """How many ops of each kind there are that compute something; what is moved or sliced is no work."""
    count = np.bincount(program.op_spec, minlength=len(program.specs)).tolist()
    kinds = Counter[str]()
    for spec, times in zip(program.specs, count, strict=True):
        done = work(traits_of(spec), spec)
        if done is None or done.matrix_flop or done.vector_flop:
            kinds[spec.kind] += times
    return kinds
