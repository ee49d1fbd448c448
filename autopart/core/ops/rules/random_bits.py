"""Random number ops: every element depends on its place in the whole, so slices cannot be drawn apart.

    rng_bit_generator state -> state, bits[i,j]      blocked: a device would have to draw all bits to know its own

jax draws by threefry in elementwise ops over an iota instead, which tile. (`jax_threefry_partitionable`, its default.)
"""

from __future__ import annotations

from autopart.core.op import OpSpec
from autopart.core.ops.rule import blocked
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Opaque, elements

_WORD_OPS = {"THREE_FRY": 50, "PHILOX": 25, "DEFAULT": 25}
"""Vector operations per 32-bit word. Threefry draws two words by 20 rounds of an add, a rotation (3) and a xor; Philox,
which the default is taken for, draws four by 10 rounds of four products, four xors and two adds."""


def _bits_flop(spec: OpSpec) -> float:
    bits = spec.results[1]
    return elements(bits) * max(1.0, bits.element_bytes / 4) * _WORD_OPS[str(spec.attributes["rng_algorithm"])]


blocked(
    "rng_bit_generator",
    traits=Opaque(flop=_bits_flop, flop_reason="the rounds of the generator; XLA counts one transcendental a number"),
    family="random_bits",
    reason="a slice of the bits cannot be drawn without drawing them all; use threefry keys, which tile",
    examples=(
        op("rng_bit_generator", "2xui64 -> 2xui64, 4x6xui32", "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>"),
    ),
)
blocked(
    "rng",
    traits=Opaque(flop=lambda spec: elements(spec.results[0]) * _WORD_OPS["DEFAULT"]),
    family="random_bits",
    reason="it draws from a hidden state, which devices do not share; use threefry keys, which tile",
)
