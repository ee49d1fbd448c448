"""The pass `default_generators`: random bits by DEFAULT are drawn by the algorithm that the platform means by it.

    rng_bit_generator %state, DEFAULT      ->      rng_bit_generator %state, PHILOX          on CPU and GPU

XLA draws them by Philox there, so the bits are the same, and now a slice of them can be drawn
(`core/ops/rules/random_bits.py`). A TPU has a generator of its own, whose slices are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.doors.jax_internals import ir
from autopart.core.op import OpSpec
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

_BY_PHILOX = ("cpu", "cuda", "rocm")


@register_pass("default_generators")
@dataclass(frozen=True)
class DefaultGenerators(PatternPass):
    """Names the generator of random bits on `platform`, the one that the program was lowered for."""

    roots = ("rng_bit_generator",)
    platform: str = "cpu"

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return self.platform in _BY_PHILOX and spec.attributes["rng_algorithm"] == "DEFAULT"

    def rewrite(self, at: PatternRewriter, op: int) -> list[int]:
        """See `PatternPass.rewrite`."""
        philox = ir.Attribute.parse("#stablehlo<rng_algorithm PHILOX>")
        return at.again(op, at.operands(op), rng_algorithm=philox)
