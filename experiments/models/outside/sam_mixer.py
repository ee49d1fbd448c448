"""PoolFormer in flax linen, trained with sharpness-aware minimisation: gradients at the worst point nearby, a second
pass, are what momentum SGD follows; means of neighbours mix tokens, and residuals are scaled."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32, training_by

SMALL = {"widths": (16, 32), "depths": (1, 1), "classes": 64, "batch": 8, "side": 32}


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]

        def scaled(y: jax.Array, name: str) -> jax.Array:
            return y * self.param(name, nn.initializers.constant(1e-2), (width,))

        y = nn.GroupNorm(1)(x)
        pooled = nn.avg_pool(y, (3, 3), (1, 1), "SAME", count_include_pad=False)
        x = x + scaled(pooled - y, "mix_scale")
        y = nn.Conv(4 * width, (1, 1))(nn.GroupNorm(1)(x))
        return x + scaled(nn.Conv(width, (1, 1))(nn.gelu(y)), "mlp_scale")


class PoolFormer(nn.Module):
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(self.widths[0], (7, 7), strides=4, padding=2)(image)
        for stage, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            if stage:
                x = nn.Conv(width, (3, 3), strides=2, padding=1)(x)
            for _ in range(depth):
                x = Block()(x)
        return nn.Dense(self.classes)(nn.LayerNorm()(x.mean((1, 2))))


def training(
    widths: tuple[int, ...] = (64, 128, 320, 512), depths: tuple[int, ...] = (1, 1, 1, 1), classes: int = 1000,
    batch: int = 128, side: int = 224, radius: float = 0.05,
) -> Training:  # fmt: skip
    model = PoolFormer(widths, depths, classes)
    optimizer = optax.chain(
        optax.add_decayed_weights(5e-5), optax.sgd(optax.cosine_decay_schedule(0.1, 100_000), 0.9, nesterov=True)
    )

    def loss(params: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, image)
        smooth = optax.smooth_labels(jax.nn.one_hot(label, classes), 0.1)
        return optax.softmax_cross_entropy(logits, smooth).mean()

    def step(params: Any, opt_state: Any, batch: tuple[jax.Array, jax.Array]) -> tuple[Any, Any, jax.Array]:
        value, ascent = jax.value_and_grad(loss)(params, *batch)
        scale = radius / (optax.tree.norm(ascent) + 1e-12)
        worst = jax.tree.map(lambda p, g: p + scale * g, params, ascent)
        gradients = jax.grad(loss)(worst, *batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = model.init(key, jnp.zeros((1, side, side, 3)))["params"]
        return params, optimizer.init(params)

    return training_by(step, initial, (f32(batch, side, side, 3), i32(batch)))
