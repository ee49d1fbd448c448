"""Speech with the CTC loss in plain jax, trained with AdamW: a convolution over frames, a scan over paths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"features": 4, "width": 8, "labels": 64, "batch": 8, "frames": 12, "letters": 3}


def training(
    features: int = 80, width: int = 256, labels: int = 128, batch: int = 64, frames: int = 400, letters: int = 50
) -> Training:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        window, hidden, head = jax.random.split(key, 3)
        return {
            "window": jax.random.normal(window, (5, features, width)) * 0.05,
            "hidden": jax.random.normal(hidden, (width, width)) * width**-0.5,
            "head": jax.random.normal(head, (width, labels)) * width**-0.5,
        }

    def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        dims = ("NWC", "WIO", "NWC")
        h = jax.lax.conv_general_dilated(batch["frames"], params["window"], (1,), "SAME", dimension_numbers=dims)
        logits = jax.nn.gelu(jax.nn.relu(h) @ params["hidden"]) @ params["head"]
        every = jnp.zeros(logits.shape[:2])
        return optax.ctc_loss(logits, every, batch["text"], batch["padding"]).mean()

    frames_of = f32(batch, frames, features)
    return around(
        loss,
        optax.adamw(1e-3),
        init,
        {"frames": frames_of, "text": i32(batch, letters), "padding": f32(batch, letters)},
    )
