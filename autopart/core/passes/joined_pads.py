"""The pass `joined_pads`: a sum of many pads of one array's parts becomes the concatenation of the parts.

    for i in range(L): x = tanh(x @ w[i])            the gradient of each w[i], f32[1,d,d], is padded to f32[L,d,d]

    %s = add (pad %g1 by 1 before) (pad %g0 ...)      %y = concatenate %g0, %g1, %g2, ...
    %t = add (pad %g2 by 2 before) %s           ->
    ...

A compiler adds all of it in one kernel, which reads each part once. Written as sums it is an array of the whole stack
for every layer. Parts at one place are added first, places that no pad fills are zeros, and what else is added comes
last. Few pads stay as they are: what reads them is known to take them as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from autopart.core.op import OpSpec
from autopart.core.passes.pads import MOST_PARTS, Pad, summed
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass
from autopart.core.program import Program


@register_pass("joined_pads")
@dataclass(frozen=True)
class JoinedPads(PatternPass):
    """Sums of many pads of one array's parts become concatenations of the parts.

    Each op is looked at once: it is in one sum. `few` pads of one sum stay as they are.
    """

    few: int = MOST_PARTS

    roots = ("add",)

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        pads = sum(program.specs[number].kind == "pad" for number in program.op_spec.tolist())
        return super().apply(program) if pads > self.few else program

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        [value] = at.rewriting.results(op)
        readers = at.only_readers(value, "add", operand=None)
        if len(readers) == 1 and at.rewriting.reader_count(value) == 1:
            return None
        alone = lambda v: v == value or (at.rewriting.reader_count(v) == 1 and not at.rewriting.is_seen(v))  # noqa: E731
        pads, others = summed(at, value, len(at.rewriting.before.op_spec), alone)
        return _joined(at, at.spec(op), pads, others) if len(pads) > self.few else None


def _joined(at: PatternRewriter, spec: OpSpec, pads: list[Pad], others: list[int]) -> int | None:
    """The parts one behind the other, if they are many, and apart or at one place; and then the others."""
    if len({pad.dim for pad in pads}) > 1:
        return None
    dim, result, parts = pads[0].dim, spec.results[0], dict[tuple[int, int], list[int]]()
    for pad in pads:
        parts.setdefault((pad.places.start, pad.places.stop), []).append(pad.value)
    if any(a[1] > b[0] for a, b in pairwise(sorted(parts))):
        return None
    joined, end = list[int](), 0
    for (start, stop), same in [*sorted(parts.items()), ((result.shape[dim],) * 2, [])]:
        if start > end:
            shape = (*result.shape[:dim], start - end, *result.shape[dim + 1 :])
            joined.append(at.broadcast(at.constant(0, result.dtype), shape))
        joined += [at.total(same)] if same else []
        end = stop
    return at.total([at.concatenate(joined, dim), *others])
