"""The pass `cancelled_views`: an op that takes back what the one before it did is left out.

    reshape (reshape %h to [8, 2, D]) to [16, D]       %h, which has that type
    reshape (broadcast_in_dim %h to [1, 16, D])        %h
    concatenate %a                                     %a
    slice (concatenate %a, %b, %c) of the rows of %b   %b

jax writes these between the turns of a scan that is unrolled, in whole or in part, and the scan of its gradient (XLA's
algebraic simplifier). What one loop leaves is then read by the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


@register_pass("cancelled_views")
@dataclass(frozen=True)
class CancelledViews(PatternPass):
    """Leaves out ops that take back what the one before did. Costs once the reshapes, slices and concatenations."""

    roots = ("reshape", "slice", "concatenate")

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        read, spec = at.operands(op), at.spec(op)
        if spec.kind == "slice":
            return _part(at, op, read[0])
        if spec.kind == "concatenate":
            return read[0] if len(read) == 1 else None
        before = at.made_by(read[0], "reshape", "broadcast_in_dim")
        if before is None or before.operands != spec.results:
            return None
        dims = before.attributes.get("broadcast_dimensions", ())
        return at.operands(at.maker(read[0]))[0] if list(dims) == sorted(dims) else None


def _part(at: PatternRewriter, op: int, joined: int) -> int | None:
    """The part of a concatenation that a slice takes, if it takes one."""
    spec, join = at.spec(op), at.made_by(joined, "concatenate")
    if join is None or any(n != 1 for n in spec.attributes["strides"]):
        return None
    dim, parts = join.attributes["dimension"], at.operands(at.maker(joined))
    start = spec.attributes["start_indices"][dim]
    starts = accumulate((part.shape[dim] for part in join.operands), initial=0)
    found = next((part for part, begin in zip(parts, starts, strict=False) if begin == start), None)
    return found if found is not None and at.type_of(found) == spec.results[0] else None
