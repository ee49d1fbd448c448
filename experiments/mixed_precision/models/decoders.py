"""GPT-2, Llama, T5 and a mixture of experts."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.mixed_precision.models.layers import BF16, MEGATRON, Fused, Gated, Mlp, Separate, attend, dense, norm
from experiments.models.outside.llama import rotated
from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around


class Gpt2(nn.Module):
    """Tied embedding, learned positions, one projection to queries, keys and values."""

    layers: int = 2
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_304

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embed = nn.Embed(self.vocabulary, self.width, dtype=BF16, name="wte")
        x = embed(tokens) + nn.Embed(tokens.shape[1], self.width, dtype=BF16, name="wpe")(jnp.arange(tokens.shape[1]))
        for _ in range(self.layers):
            x = x + Fused(self.heads, causal=True)(norm()(x))
            x = x + Mlp(4 * self.width)(norm()(x))
        return embed.attend(norm()(x)).astype(jnp.float32)


class LlamaBlock(nn.Module):
    heads: int
    shared: int
    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        b, s, width = x.shape
        head, y = width // self.heads, nn.RMSNorm(dtype=BF16)(x)
        q = dense(width, "query", False)(y).reshape(b, s, self.heads, head)
        k, v = (dense(self.shared * head, n, False)(y).reshape(b, s, self.shared, head) for n in ("key", "value"))
        q, k = rotated(q).astype(BF16), rotated(k).astype(BF16)
        k, v = (jnp.repeat(a, self.heads // self.shared, axis=2) for a in (k, v))
        x = x + dense(width, "out", False)(attend(q, k, v, causal=True).reshape(b, s, width))
        return x + Gated(self.hidden)(nn.RMSNorm(dtype=BF16)(x))


class Llama(nn.Module):
    """RMSNorm, rotary positions, 16 heads of 128 of which each 4 share keys and values, SwiGLU."""

    layers: int = 1
    width: int = 2048
    heads: int = 16
    shared: int = 4
    hidden: int = 5632
    vocabulary: int = 32_000

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width, dtype=BF16, name="embedding")(tokens)
        for _ in range(self.layers):
            x = LlamaBlock(self.heads, self.shared, self.hidden)(x)
        return dense(self.vocabulary, "head", False)(nn.RMSNorm(dtype=BF16)(x)).astype(jnp.float32)


class RelativeBias(nn.Module):
    """T5's: a table of 32 buckets of distances, a column for each head."""

    heads: int

    @nn.compact
    def __call__(self, queries: int, keys: int) -> jax.Array:
        distance = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None]
        near = jnp.minimum(jnp.abs(distance), 15)
        bucket = near + 16 * (distance > 0)
        table = self.param("table", nn.initializers.normal(0.02), (32, self.heads))
        return table[bucket].transpose(2, 0, 1)[None]


class T5(nn.Module):
    """Encoder and decoder with a bias of distances, cross attention, gated GELU, RMSNorm, heads of 64."""

    layers: int = 1
    width: int = 768
    heads: int = 12
    hidden: int = 2048
    vocabulary: int = 32_128

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        embed, heads = nn.Embed(self.vocabulary, self.width, dtype=BF16, name="shared"), self.heads
        x, y = embed(source), embed(target)
        bias = RelativeBias(heads, name="encoder_bias")(x.shape[1], x.shape[1])
        for _ in range(self.layers):
            x = x + Separate(heads)(nn.RMSNorm(dtype=BF16)(x), None, bias)
            x = x + Gated(self.hidden)(nn.RMSNorm(dtype=BF16)(x))
        x = nn.RMSNorm(dtype=BF16)(x)
        bias = RelativeBias(heads, name="decoder_bias")(y.shape[1], y.shape[1])
        for _ in range(self.layers):
            y = y + Separate(heads, causal=True)(nn.RMSNorm(dtype=BF16)(y), None, bias)
            y = y + Separate(heads)(nn.RMSNorm(dtype=BF16)(y), x)
            y = y + Gated(self.hidden)(nn.RMSNorm(dtype=BF16)(y))
        return dense(self.vocabulary, "head", False)(nn.RMSNorm(dtype=BF16)(y)).astype(jnp.float32)


class Experts(nn.Module):
    """Two of eight experts for each token, by one-hot dispatch with a capacity."""

    experts: int
    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        b, s, width = x.shape
        capacity = 2 * 2 * s // self.experts
        gates = jax.nn.softmax(dense(self.experts, "router", False)(x).astype(jnp.float32))
        weights, chosen = jax.lax.top_k(gates, 2)
        hot = jax.nn.one_hot(chosen, self.experts, dtype=jnp.float32)
        place = jnp.cumsum(hot.reshape(b, 2 * s, -1), axis=1).reshape(hot.shape) * hot - 1
        slots = jax.nn.one_hot(place.astype(jnp.int32), capacity, dtype=BF16)
        dispatch = jnp.einsum("bske,bskec->bsec", hot.astype(BF16), slots)
        combine = jnp.einsum("bsk,bske,bskec->bsec", weights.astype(BF16), hot.astype(BF16), slots)
        up = self.param("up", nn.initializers.normal(0.02), (self.experts, width, self.hidden)).astype(BF16)
        down = self.param("down", nn.initializers.normal(0.02), (self.experts, self.hidden, width)).astype(BF16)
        inside = jax.nn.gelu(jnp.einsum("bsec,bsd,edf->becf", dispatch, x, up))
        return jnp.einsum("becf,efd,bsec->bsd", inside, down, combine)


class Mixture(nn.Module):
    """A decoder with experts in place of the MLP of every layer."""

    layers: int = 1
    width: int = 1024
    heads: int = 16
    vocabulary: int = 32_000

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width, dtype=BF16, name="embedding")(tokens)
        for _ in range(self.layers):
            x = x + Fused(self.heads, causal=True)(norm()(x))
            x = x + Experts(8, 4 * self.width, name="moe")(norm()(x))
        return dense(self.vocabulary, "head", False)(norm()(x)).astype(jnp.float32)


def _of_tokens(model: nn.Module, batch: int, length: int, optimizer: Any, megatron: dict[str, int]) -> Training:
    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(model.apply(params, batch["tokens"]), batch["next"])

    tokens = i32(batch, length)
    return around(
        loss,
        optimizer,
        lambda key: model.init(key, jnp.zeros((1, length), jnp.int32)),
        {"tokens": tokens, "next": tokens},
        megatron,
    )


def gpt2() -> Training:
    return _of_tokens(Gpt2(), 32, 1024, optax.adamw(1e-4), MEGATRON)


def llama() -> Training:
    return _of_tokens(Llama(), 16, 1024, optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4)), MEGATRON)


def mixture() -> Training:
    return _of_tokens(Mixture(), 32, 512, optax.adamw(1e-4), {"*moe/up": 2, "*moe/down": 1, **MEGATRON})


def t5() -> Training:
    model = T5()

    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(model.apply(params, batch["source"], batch["target"]), batch["next"])

    source, target = i32(64, 512), i32(64, 128)
    return around(
        loss,
        optax.adafactor(1e-3),
        lambda key: model.init(key, jnp.zeros((1, 512), jnp.int32), jnp.zeros((1, 128), jnp.int32)),
        {"source": source, "target": target, "next": target},
        MEGATRON,
    )
