"""Random number ops: every element depends on its place in the whole, so slices cannot be drawn apart.

    rng_bit_generator state -> state, bits[i,j]      blocked: a device would have to draw all bits to know its own

jax draws by threefry in elementwise ops over an iota instead, which tile. (`jax_threefry_partitionable`, its default.)
"""

from __future__ import annotations

from autopart.core.ops.rule import blocked
from autopart.core.ops.rules.example_text import op

blocked(
    "rng_bit_generator",
    family="random_bits",
    reason="a slice of the bits cannot be drawn without drawing them all; use threefry keys, which tile",
    examples=(
        op("rng_bit_generator", "2xui64 -> 2xui64, 4x6xui32", "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>"),
    ),
)
blocked(
    "rng",
    family="random_bits",
    reason="it draws from a hidden state, which devices do not share; use threefry keys, which tile",
)
