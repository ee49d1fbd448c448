"""The pass `default_generators`: random bits by DEFAULT are drawn by the algorithm that the platform means by it.

    rng_bit_generator %state, DEFAULT      ->      rng_bit_generator %state, PHILOX          on CPU and GPU

XLA draws them by Philox there, so the bits are the same, and now a slice of them can be drawn
(`core/ops/rules/random_bits.py`). A TPU has a generator of its own, whose slices are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.op import OpSpec
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewritten_as import mlir_type, rewritten
from autopart.core.program import Program

_BY_PHILOX = ("cpu", "cuda", "rocm")


@register_pass("default_generators")
@dataclass(frozen=True)
class DefaultGenerators(Pass):
    """Names the generator of random bits on `platform`, the one that the program was lowered for."""

    platform: str = "cpu"

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        return rewritten(program, _is_default, _by_philox) if self.platform in _BY_PHILOX else program


def _is_default(spec: OpSpec) -> bool:
    return spec.kind == "rng_bit_generator" and spec.attributes["rng_algorithm"] == "DEFAULT"


def _by_philox(spec: OpSpec, location: str) -> str:
    state, bits = map(mlir_type, spec.results)
    algorithm = "rng_algorithm = #stablehlo<rng_algorithm PHILOX>"
    return (
        f"func.func @main(%s: {state}) -> ({state}, {bits}) {{\n"
        f'%a, %b = "stablehlo.rng_bit_generator"(%s) {{{algorithm}}} : ({state}) -> ({state}, {bits}) {location}\n'
        f"return %a, %b : {state}, {bits}\n}}"
    )
