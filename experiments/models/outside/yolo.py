"""YOLO in flax linen, trained with AdamW: residual convolutions with batch norm, boxes from features of two scales."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"widths": (8, 16, 16, 32), "boxes": 15, "batch": 8, "side": 32}


def _layer(channels: int, window: int, stride: int = 1) -> Callable[[jax.Array], jax.Array]:
    norm = nn.BatchNorm(use_running_average=False)
    conv = nn.Conv(channels, (window, window), strides=stride, use_bias=False)
    return lambda x: nn.leaky_relu(norm(conv(x)))


class Yolo(nn.Module):
    """Numbers of the boxes of each cell: of cells half as large as the last features, and of cells of their size."""

    widths: tuple[int, ...]
    boxes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, features = image, []
        for width in self.widths:
            x = _layer(width, 3, 2)(x)
            x = x + _layer(width, 3)(_layer(width // 2, 1)(x))
            features.append(x)
        neck = self.widths[-1] // 2
        narrow = nn.Conv(neck, (1, 1))(features[-1])
        batch, height, across, _ = narrow.shape
        enlarged = jax.image.resize(narrow, (batch, 2 * height, 2 * across, neck), "nearest")
        y = _layer(neck, 3)(jnp.concatenate([enlarged, features[-2]], -1))
        return nn.Conv(self.boxes, (1, 1))(y), nn.Conv(self.boxes, (1, 1))(features[-1])


def training(
    widths: tuple[int, ...] = (32, 64, 128, 256), boxes: int = 75, batch: int = 64, side: int = 160
) -> Training:
    def loss(outputs, batch):
        (fine, coarse), (fine_label, coarse_label) = outputs, batch[1]
        return ((fine - fine_label) ** 2).mean() + ((jax.nn.sigmoid(coarse) - coarse_label) ** 2).mean()

    cells = side // 2 ** len(widths)
    labels = (f32(batch, 2 * cells, 2 * cells, boxes), f32(batch, cells, cells, boxes))
    return training_of(Yolo(widths, boxes), (f32(batch, side, side, 3),), labels, loss, statistics=("batch_stats",))
