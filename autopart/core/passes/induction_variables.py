"""The pass `induction_variables`: what a loop counts beside its turns is computed from these.

    carry i: 0, 1, 2, ...           the turns
    carry j: 3, 5, 7, ...           read as 3 + 2 * i; then nobody needs it

jax counts the turns of a scan, and `fori_loop` has a number of its own. What is known of rows that a turn reads or
writes is known of the first counter (Allen and Kennedy, section 4.5: induction variable substitution).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter, Place
from autopart.core.passes.program_pass import register_pass


@register_pass("induction_variables")
@dataclass(frozen=True)
class InductionVariables(PatternPass):
    """Computes what a loop counts beside its turns from these. Costs once the carries of each loop."""

    roots = ("carry",)
    again = False

    def rewrite(self, at: PatternRewriter, op: int) -> None:
        """See `PatternPass.rewrite`."""
        program, form = at.rewriting.before, _counted(at, op)
        loop = program.owners[op]
        counter = loop + 1
        while form is not None and counter < op and _counted(at, counter) != (0, 1):
            counter += 1
        condition, body = (program.scopes[n] for n in program.inner_scopes[loop])
        turns, number = at.rewriting.results(counter)[0], at.rewriting.results(op)[0]
        if form is None or counter == op or at.type_of(turns) != at.type_of(number):
            return
        uses, following = at.rewriting.uses(number), at.maker(at.operands(op)[1])
        read = [use for use in uses if at.rewriting.user(use) != following]
        if not read or any(condition.start <= at.rewriting.user(use) < condition.end for use in read):
            return
        with at.at(Place(program.inner_scopes[loop][1], body.start, following)):
            first, step = (at.constant(n, at.type_of(number).dtype) for n in form)
            made = turns if form[1] == 1 else at.binary("multiply", turns, step)
            made = made if form[0] == 0 else at.binary("add", made, first)
        for use in read:
            at.rewriting.read(use, made)


def _counted(at: PatternRewriter, op: int) -> tuple[int, int] | None:
    """(first, step) of a carry that is a whole number to which each turn adds another; None of others."""
    initial, following = at.operands(op)
    inside, added = at.rewriting.results(op)[0], at.maker(following)
    if at.type_of(inside).shape or at.spec(added).kind != "add" or at.operands(added)[0] != inside:
        return None
    first, step = at.splat(initial), at.splat(at.operands(added)[1])
    if first is None or step is None or not np.issubdtype(step.dtype, np.integer):
        return None
    return first.astype(int).item(), step.astype(int).item()
