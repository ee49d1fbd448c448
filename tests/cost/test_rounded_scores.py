"""Where does a softmax in f32 of scores in bf16 keep what? Microseconds as libtpu 0.0.51 has them on v5e."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import simulated

Scaled = Callable[[jax.Array], jax.Array]


def causal(scores: jax.Array) -> jax.Array:
    return jnp.tril(jnp.ones((scores.shape[-1],) * 2, jnp.bool_))


SCALED: dict[str, Scaled] = {
    "as they are": lambda s: s,
    "scaled": lambda s: s / 8,
    "masked": lambda s: jnp.where(causal(s), s, -1e9),
    "biased": lambda s: s + jnp.where(causal(s), 0, -1e9).astype(s.dtype),
    "scaled in f32": lambda s: s.astype(jnp.float32) / 8,
    "masked in f32": lambda s: jnp.where(causal(s), s.astype(jnp.float32), -1e9),
}

COMPILED = {
    ("as they are", 8, 256, 16): 440.1, ("as they are", 2, 1024, 16): 1395.5, ("as they are", 1, 2048, 16): 3668.8,
    ("as they are", 4, 1024, 12): 2165.9, ("scaled", 4, 1024, 12): 2166.5, ("masked", 8, 512, 16): 1580.4,
    ("masked", 4, 1024, 12): 2174.9, ("biased", 8, 512, 16): 1579.7, ("scaled in f32", 8, 512, 16): 2174.7,
    ("masked in f32", 8, 512, 16): 2177.5,
}  # fmt: skip
"""Of how scores are scaled, sequences, tokens and heads of 64."""


def taken(scaled: Scaled, sequences: int, tokens: int, heads: int):
    def attended(x, *projections):
        q, k, v = ((x @ w).reshape(-1, tokens, heads, 64) for w in projections)
        scores = scaled(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(q.dtype)
        return jnp.square(jnp.einsum("bhqk,bkhd->bqhd", weights, v)).astype(jnp.float32).sum()

    x, w = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((sequences, tokens, 64 * heads), (64 * heads, 64 * heads)))
    return simulated(jax.grad(attended, (1, 2, 3)), x, w, w, w, device="tpu_v5e")


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_attention_takes_what_the_compiler_says(case: tuple[str, int, int, int]):
    scaled, *sizes = case
    assert 0.9 < 1e6 * taken(SCALED[scaled], *sizes).compute_s / COMPILED[case] < 1.1


def test_exponentials_are_kept_where_scores_are_computed_in_f32():
    rounded, whole = (taken(SCALED[scaled], 4, 1024, 12).peak_bytes for scaled in ("masked", "masked in f32"))
    assert whole > 2 * rounded


def test_what_is_made_of_positions_keeps_no_maximum_from_the_scores():
    def biased(scores: jax.Array) -> jax.Array:
        heads, tokens = scores.shape[1], jnp.arange(scores.shape[-1])
        slopes = 2.0 ** -jnp.arange(1, heads + 1)
        return scores.astype(jnp.float32) / 8 - slopes[:, None, None] * jnp.abs(tokens[:, None] - tokens)

    near, plain = (taken(scaled, 8, 512, 16).compute_s for scaled in (biased, SCALED["scaled in f32"]))
    assert near < 1.1 * plain
