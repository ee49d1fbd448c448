"""ResNeXt in flax linen, trained with SGD and momentum: bottlenecks of grouped convolutions, running batch norms."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"stages": (8, 16), "blocks": 2, "groups": 4, "stem": 8, "classes": 16, "side": 16, "batch": 8}


class ResNeXt(nn.Module):
    stages: tuple[int, ...]
    """Inner features of the blocks of each stage; a block writes twice as many."""
    blocks: int
    groups: int
    stem: int
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=False)
        x = nn.relu(norm()(conv(self.stem, (7, 7), strides=2)(image)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, inner in enumerate(self.stages):
            for block in range(self.blocks):
                stride = 2 if stage and not block else 1
                y = nn.relu(norm()(conv(inner, (1, 1))(x)))
                y = nn.relu(norm()(conv(inner, (3, 3), strides=stride, feature_group_count=self.groups)(y)))
                y = norm()(conv(2 * inner, (1, 1))(y))
                if x.shape != y.shape:
                    x = norm()(conv(2 * inner, (1, 1), strides=stride)(x))
                x = nn.relu(x + y)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def training(
    stages: tuple[int, ...] = (128, 256), blocks: int = 2, groups: int = 32, stem: int = 64, classes: int = 1000,
    side: int = 112, batch: int = 128,
) -> Training:  # fmt: skip
    return training_of(
        ResNeXt(stages=stages, blocks=blocks, groups=groups, stem=stem, classes=classes),
        (f32(batch, side, side, 3),),
        i32(batch),
        lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.sgd(0.1, momentum=0.9),
        statistics=("batch_stats",),
    )
