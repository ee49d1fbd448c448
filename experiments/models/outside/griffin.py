"""Griffin in flax linen, trained with clipped AdamW: two gated linear recurrences (an associative scan after a short
convolution) for each local attention with one key head, and gated perceptrons between."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {
    "layers": 3, "width": 32, "inner": 48, "heads": 4, "window": 8, "vocabulary": 64, "length": 16, "batch": 8,
}  # fmt: skip


def _rotated(x: jax.Array) -> jax.Array:
    """[batch, length, heads, d]: the first half of d turned by the position, the second kept."""
    turned, kept = jnp.split(x, 2, -1)
    one, other = jnp.split(turned, 2, -1)
    angles = jnp.arange(x.shape[1])[:, None, None] * 10_000.0 ** (-jnp.arange(one.shape[-1]) / one.shape[-1])
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin, kept], -1)


class RgLru(nn.Module):
    """Of which each head has gates of its own."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        batch, length, width = x.shape
        per_head = width // self.heads
        split = x.reshape(batch, length, self.heads, per_head)

        def gate(name: str) -> jax.Array:
            weights = self.param(name, nn.initializers.lecun_normal(batch_axis=0), (self.heads, per_head, per_head))
            bias = self.param(f"{name}_bias", nn.initializers.zeros, (self.heads, per_head))
            return nn.sigmoid(jnp.einsum("blhi,hij->blhj", split, weights) + bias).reshape(x.shape)

        decay = self.param("decay", nn.initializers.uniform(1.0), (width,))
        log_a = -8.0 * gate("recurrence") * nn.softplus(decay)
        fed = x * gate("input") * jnp.sqrt(-jnp.expm1(2 * log_a) + 1e-6)

        def after(first: Any, then: Any) -> Any:
            return first[0] * then[0], then[0] * first[1] + then[1]

        return jax.lax.associative_scan(after, (jnp.exp(log_a), fed), axis=1)[1]


class Recurrent(nn.Module):
    inner: int
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        gate = nn.gelu(nn.Dense(self.inner, use_bias=False)(x))
        y = nn.Dense(self.inner, use_bias=False)(x)
        taps = self.param("taps", nn.initializers.normal(0.5), (4, self.inner))
        padded = jnp.pad(y, ((0, 0), (3, 0), (0, 0)))
        y = sum(taps[i] * padded[:, i : i + y.shape[1]] for i in range(4))
        return nn.Dense(x.shape[-1])(gate * RgLru(self.heads)(y))


class LocalAttention(nn.Module):
    heads: int
    window: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        per_head = x.shape[-1] // self.heads
        q = _rotated(nn.DenseGeneral((self.heads, per_head), use_bias=False)(x))
        k = _rotated(nn.DenseGeneral((1, per_head), use_bias=False)(x))[:, :, 0]
        v = nn.Dense(per_head, use_bias=False)(x)
        places = jnp.arange(x.shape[1])
        apart = places[:, None] - places
        scores = jnp.einsum("bqhd,bkd->bhqk", q, k) * per_head**-0.5
        shares = nn.softmax(jnp.where((apart >= 0) & (apart < self.window), scores, -1e30))
        y = jnp.einsum("bhqk,bkd->bqhd", shares, v)
        return nn.DenseGeneral(x.shape[-1], axis=(-2, -1))(y)


class Griffin(nn.Module):
    layers: int
    width: int
    inner: int
    heads: int
    window: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embed = nn.Embed(self.vocabulary, self.width, embedding_init=nn.initializers.normal(self.width**-0.5))
        x = embed(tokens) * self.width**0.5
        for layer in range(self.layers):
            mixes = LocalAttention(self.heads, self.window) if layer % 3 == 2 else Recurrent(self.inner, self.heads)
            x = x + mixes(nn.RMSNorm()(x))
            y = nn.RMSNorm()(x)
            gate, y = nn.Dense(3 * self.width, use_bias=False)(y), nn.Dense(3 * self.width, use_bias=False)(y)
            x = x + nn.Dense(self.width, use_bias=False)(nn.gelu(gate) * y)
        return 30.0 * jnp.tanh(embed.attend(nn.RMSNorm()(x)) / 30.0)


def training(
    layers: int = 3, width: int = 1024, inner: int = 1536, heads: int = 8, window: int = 256, vocabulary: int = 32_000,
    length: int = 512, batch: int = 64,
) -> Training:  # fmt: skip
    tokens = i32(batch, length)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(1e-3, b2=0.95, weight_decay=0.1, mask=lambda params: jax.tree.map(lambda p: p.ndim > 1, params)),
    )
    model = Griffin(layers, width, inner, heads, window, vocabulary)
    return training_of(model, (tokens,), tokens, lambda logits, batch: cross_entropy(logits, batch[1]), optimizer)
