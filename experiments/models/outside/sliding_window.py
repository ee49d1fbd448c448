"""Longformer in flax linen, trained with Adafactor in bf16 to fill in masked tokens: blocks of tokens attend to
themselves and the blocks beside them, and to a few global tokens, which attend to everything; layers are recomputed."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {
    "layers": 2, "width": 32, "heads": 4, "vocabulary": 64, "length": 32, "block": 8, "anchors": 4, "masked": 4,
    "batch": 8,
}  # fmt: skip

BF16 = jnp.bfloat16


def _beside(x: jax.Array) -> jax.Array:
    """[batch, blocks, block, ...] -> [batch, blocks, 3 block, ...]: each with the one before and the one after."""
    edges = [(0, 0)] * x.ndim
    edges[1] = (1, 1)
    padded = jnp.pad(x, edges)
    return jnp.concatenate([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], 2)


class LocalAttention(nn.Module):
    heads: int
    block: int
    anchors: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        batch, length, width = x.shape
        per_head = width // self.heads
        qkv = nn.Dense(3 * width, dtype=BF16, name="qkv")(x).reshape(batch, length, 3, self.heads, per_head)
        q, k, v = qkv[:, :, 0] * per_head**-0.5, qkv[:, :, 1], qkv[:, :, 2]
        blocks = [y.reshape(batch, -1, self.block, self.heads, per_head) for y in (q, k, v)]
        count = length // self.block
        near = jnp.einsum("bnqhd,bnkhd->bnhqk", blocks[0], _beside(blocks[1])).astype(jnp.float32)
        far = jnp.einsum("bnqhd,bghd->bnhqg", blocks[0], k[:, : self.anchors]).astype(jnp.float32)
        apart = jnp.arange(-self.block, 2 * self.block) - jnp.arange(self.block)[:, None]
        place = jnp.arange(count)[:, None] * self.block + jnp.arange(-self.block, 2 * self.block)
        seen = (jnp.abs(apart) <= self.block) & (place >= self.anchors)[:, None] & (place < length)[:, None]
        near = jnp.where(seen[:, None], near, -1e9)
        shares = nn.softmax(jnp.concatenate([far, near], -1)).astype(BF16)
        local = jnp.einsum("bnhqg,bghd->bnqhd", shares[..., : self.anchors], v[:, : self.anchors])
        local = local + jnp.einsum("bnhqk,bnkhd->bnqhd", shares[..., self.anchors :], _beside(blocks[2]))
        # Global tokens have a query of their own.
        of_anchors = nn.DenseGeneral((self.heads, per_head), dtype=BF16, name="anchors")(x[:, : self.anchors])
        whole = jax.nn.dot_product_attention(of_anchors, k, v)
        y = jax.lax.dynamic_update_slice_in_dim(local.reshape(q.shape), whole, 0, axis=1)
        return nn.Dense(width, dtype=BF16, name="out")(y.reshape(x.shape))


class Layer(nn.Module):
    heads: int
    block: int
    anchors: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        x = nn.LayerNorm(dtype=BF16)(x + LocalAttention(self.heads, self.block, self.anchors)(x))
        y = nn.Dense(width, dtype=BF16)(nn.gelu(nn.Dense(4 * width, dtype=BF16)(x)))
        return nn.LayerNorm(dtype=BF16)(x + y)


class Longformer(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int
    block: int
    anchors: int

    @nn.compact
    def __call__(self, tokens: jax.Array, masked: jax.Array) -> jax.Array:
        """Logits of the tokens at the positions `masked`."""
        embed = nn.Embed(self.vocabulary, self.width, dtype=BF16)
        positions = self.param("positions", nn.initializers.normal(0.02), (tokens.shape[1], self.width))
        x = nn.LayerNorm(dtype=BF16)(embed(tokens) + positions.astype(BF16))
        for _ in range(self.layers):
            x = nn.remat(Layer)(self.heads, self.block, self.anchors)(x)
        x = jnp.take_along_axis(x, masked[..., None] % tokens.shape[1], axis=1)
        x = nn.LayerNorm()(nn.gelu(nn.Dense(self.width)(x)))
        return embed.attend(x.astype(BF16)).astype(jnp.float32)


def training(
    layers: int = 2, width: int = 768, heads: int = 12, vocabulary: int = 50_265, length: int = 4096, block: int = 256,
    anchors: int = 16, masked: int = 512, batch: int = 32,
) -> Training:  # fmt: skip
    model = Longformer(layers, width, heads, vocabulary, block, anchors)
    places = i32(batch, masked)
    return training_of(
        model, (i32(batch, length), places), places, lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.adafactor(optax.warmup_exponential_decay_schedule(1e-6, 3e-5, 500, 65_000, 0.5)),
    )  # fmt: skip
