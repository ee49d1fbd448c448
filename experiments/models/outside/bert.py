"""BERT in haiku, trained with AdamW behind gradient clipping: post-norm encoder, padding mask, masked tokens."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, i32
from experiments.models.outside.training import training as around


def training(
    layers: int = 2, width: int = 768, heads: int = 12, vocabulary: int = 30_720, length: int = 256, batch: int = 128
) -> Training:
    def encode(tokens: jax.Array, mask: jax.Array) -> jax.Array:
        def norm(x: jax.Array) -> jax.Array:
            return hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)

        positions = hk.get_parameter("positions", (length, width), init=hk.initializers.RandomNormal(0.02))
        embed = hk.Embed(vocabulary, width, name="embedding")
        x = norm(embed(tokens) + positions)
        for _ in range(layers):
            initial = hk.initializers.VarianceScaling(1.0)
            attention = hk.MultiHeadAttention(heads, width // heads, w_init=initial, name="attention")
            x = norm(x + attention(x, x, x, mask[:, None, None, :]))
            hidden = jax.nn.gelu(hk.Linear(4 * width, name="up")(x), approximate=False)
            x = norm(x + hk.Linear(width, name="down")(hidden))
        x = norm(jax.nn.gelu(hk.Linear(width, name="transform")(x), approximate=False))
        return x @ embed.embeddings.T + hk.get_parameter("logits_bias", (vocabulary,), init=jnp.zeros)

    model = hk.without_apply_rng(hk.transform(encode))
    tokens = i32(batch, length)

    def loss(params, batch):
        logits = model.apply(params, batch["tokens"], batch["mask"] > 0)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
        return jnp.sum(each * batch["chosen"]) / jnp.sum(batch["chosen"])

    return around(
        loss,
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4)),
        lambda key: model.init(key, jnp.zeros((1, length), jnp.int32), jnp.ones((1, length), bool)),
        {"tokens": tokens, "mask": tokens, "labels": tokens, "chosen": tokens},
        {"*query/w": 1, "*key/w": 1, "*value/w": 1, "*attention*/linear/w": 0, "*up*/w": 1, "*down*/w": 0},
    )
