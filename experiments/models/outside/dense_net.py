"""DenseNet in flax linen, trained with SGD and Nesterov's momentum: each layer reads all before it, concatenated."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"blocks": 3, "layers": 2, "growth": 4, "stem": 8, "classes": 16, "side": 16, "batch": 8}


class DenseNet(nn.Module):
    blocks: int
    layers: int
    growth: int
    stem: int
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=False)
        x = conv(self.stem, (3, 3))(image)
        for block in range(self.blocks):
            if block:
                x = nn.avg_pool(conv(x.shape[-1] // 2, (1, 1))(nn.relu(norm()(x))), (2, 2), (2, 2))
            for _ in range(self.layers):
                y = conv(self.growth, (3, 3))(nn.relu(norm()(conv(4 * self.growth, (1, 1))(nn.relu(norm()(x))))))
                x = jnp.concatenate([x, y], -1)
        return nn.Dense(self.classes)(nn.relu(norm()(x)).mean((1, 2)))


def training(
    blocks: int = 3, layers: int = 4, growth: int = 24, stem: int = 48, classes: int = 100, side: int = 32,
    batch: int = 512,
) -> Training:  # fmt: skip
    return training_of(
        DenseNet(blocks=blocks, layers=layers, growth=growth, stem=stem, classes=classes),
        (f32(batch, side, side, 3),),
        i32(batch),
        lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.sgd(0.1, momentum=0.9, nesterov=True),
        statistics=("batch_stats",),
    )
