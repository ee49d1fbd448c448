"""The pass `empty_arrays`: what has no elements is made of nothing, and is joined to nothing.

    %e = slice %x [:, 0:0]          f32[8,0]       ->     %e = broadcast 0        f32[8,0]
    concatenate %e, %y                             ->     %y
    pad %e by 0 and 4, with %z      f32[8,4]       ->     %p = broadcast %z       f32[8,4]

No axis tiles an array without elements, so each reader would gather `%x`. jax's `associative_scan`, which state space
models are written with, ends its recursion on such slices, and their gradients are such pads.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.op import OpSpec
from autopart.core.ops.rule import has_effect, rule_of
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


@register_pass("empty_arrays")
@dataclass(frozen=True)
class EmptyArrays(PatternPass):
    """Arrays without elements read nothing; concatenations and pads leave them out."""

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        rule = rule_of(spec)
        if rule is None or rule.structural or has_effect(spec) or len(spec.results) != 1 or not spec.operands:
            return False
        if 0 in spec.results[0].shape:
            return any(t.shape and 0 not in t.shape for t in spec.operands)
        return spec.kind in ("concatenate", "pad") and any(0 in t.shape for t in spec.operands)

    def rewrite(self, at: PatternRewriter, op: int) -> int:
        """See `PatternPass.rewrite`."""
        spec, operands, result = at.spec(op), at.operands(op), at.spec(op).results[0]
        if 0 in result.shape:
            return at.broadcast(at.constant(0, result.dtype), result.shape)
        if spec.kind == "pad":
            return at.broadcast(operands[1], result.shape)
        kept = [value for value, type_ in zip(operands, spec.operands, strict=True) if 0 not in type_.shape]
        return at.concatenate(kept, spec.attributes["dimension"])
