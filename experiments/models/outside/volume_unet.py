"""U-Net over volumes in flax linen, trained with AdamW to segment them: convolutions of three dimensions, and back."""

from __future__ import annotations

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of
from experiments.models.outside.transposed_unet import UNet

SMALL = {"widths": (16, 32), "classes": 64, "batch": 8, "side": 8}


def training(widths: tuple[int, ...] = (32, 64), classes: int = 4, batch: int = 16, side: int = 32) -> Training:
    return training_of(
        UNet(widths, classes),
        (f32(batch, side, side, side, 1),),
        i32(batch, side, side, side),
        lambda logits, batch: cross_entropy(logits, batch[1]),
    )
