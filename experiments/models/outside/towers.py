"""Two towers in flax linen, trained with Lion: image patches against text, a contrastive loss over the whole batch."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around
from experiments.models.outside.vit import MEGATRON, EncoderBlock


class Towers(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int

    @nn.compact
    def __call__(self, patches: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        image = nn.Dense(self.width, name="patch")(patches)
        text = nn.Embed(self.vocabulary, self.width, name="embedding")(tokens)
        for _ in range(self.layers):
            image, text = EncoderBlock(self.heads)(image), EncoderBlock(self.heads)(text)
        pooled = [nn.Dense(self.width // 2, use_bias=False)(nn.LayerNorm()(x).mean(axis=1)) for x in (image, text)]
        image, text = (x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6) for x in pooled)
        return image, text


def training(layers: int = 2, width: int = 768, heads: int = 12, batch: int = 1024) -> Training:
    model = Towers(layers, width, heads, vocabulary=32_768)

    def loss(params, batch):
        image, text = model.apply({"params": params}, batch["patches"], batch["tokens"])
        logits, labels = 20.0 * image @ text.T, jnp.arange(image.shape[0])
        each = optax.softmax_cross_entropy_with_integer_labels
        return (each(logits, labels) + each(logits.T, labels)).mean() / 2

    return around(
        loss,
        optax.lion(1e-4),
        lambda key: model.init(key, jnp.zeros((1, 64, 768)), jnp.zeros((1, 64), jnp.int32))["params"],
        {"patches": f32(batch, 64, 768), "tokens": i32(batch, 64)},
        MEGATRON,
    )
