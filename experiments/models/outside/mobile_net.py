"""MobileNetV3 in flax linen, trained with RMSProp: inverted bottlenecks, depthwise windows, running batch norms."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

Blocks = tuple[tuple[int, int, int, int, bool], ...]

BLOCKS: Blocks = (
    (64, 24, 3, 2, False),
    (72, 24, 3, 1, False),
    (120, 40, 5, 2, True),
    (120, 40, 5, 1, True),
    (240, 80, 3, 2, False),
    (480, 112, 3, 1, True),
    (672, 160, 5, 2, True),
)
"""Inner features, features, window and stride of each block, and whether it squeezes and excites."""

SMALL = {
    "blocks": ((16, 8, 3, 2, False), (16, 8, 3, 1, False), (24, 16, 5, 2, True)),
    "stem": 8, "last": 32, "hidden": 32, "classes": 16, "side": 16, "batch": 8,
}  # fmt: skip


class SqueezeExcite(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        channels = x.shape[-1]
        y = nn.relu(nn.Dense(channels // 4)(x.mean((1, 2))))
        return x * nn.hard_sigmoid(nn.Dense(channels)(y))[:, None, None]


class MobileNet(nn.Module):
    blocks: Blocks
    stem: int
    last: int
    hidden: int
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=False)
        x = nn.hard_swish(norm()(conv(self.stem, (3, 3), strides=2)(image)))
        for inner, features, window, stride, squeezes in self.blocks:
            y = nn.hard_swish(norm()(conv(inner, (1, 1))(x)))
            y = conv(inner, (window, window), strides=stride, feature_group_count=inner)(y)
            y = nn.hard_swish(norm()(y))
            if squeezes:
                y = SqueezeExcite()(y)
            y = norm()(conv(features, (1, 1))(y))
            x = x + y if x.shape == y.shape else y
        x = nn.hard_swish(nn.Dense(self.last)(x)).mean((1, 2))
        head = nn.Dense(self.classes)
        return head(nn.hard_swish(nn.Dense(self.hidden)(x)))


def training(
    blocks: Blocks = BLOCKS, stem: int = 16, last: int = 960, hidden: int = 1280, classes: int = 1000, side: int = 96,
    batch: int = 256,
) -> Training:  # fmt: skip
    return training_of(
        MobileNet(blocks=blocks, stem=stem, last=last, hidden=hidden, classes=classes),
        (f32(batch, side, side, 3),),
        i32(batch),
        lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.rmsprop(1e-3, momentum=0.9),
        statistics=("batch_stats",),
    )
