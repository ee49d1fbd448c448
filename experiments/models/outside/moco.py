"""Momentum contrast (MoCo) in flax linen, trained with momentum SGD: a ResNet tells which of two views belong together
from a queue of what its moving average made of images before; the queue is written in turn."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, training_by

SMALL = {"widths": (8, 16), "features": 16, "queue": 64, "batch": 8, "side": 16}


class Residual(nn.Module):
    width: int
    strides: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def norm() -> nn.BatchNorm:
            return nn.BatchNorm(use_running_average=False, momentum=0.9)

        y = nn.relu(norm()(nn.Conv(self.width, (3, 3), strides=self.strides, use_bias=False)(x)))
        y = norm()(nn.Conv(self.width, (3, 3), use_bias=False)(y))
        if self.strides > 1:
            x = norm()(nn.Conv(self.width, (1, 1), strides=self.strides, use_bias=False)(x))
        return nn.relu(x + y)


class Encoder(nn.Module):
    widths: tuple[int, ...]
    features: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(self.widths[0], (7, 7), strides=2, use_bias=False)(image)
        x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, width in enumerate(self.widths):
            x = Residual(width, 1 if stage == 0 else 2)(x)
        x = nn.relu(nn.Dense(x.shape[-1])(x.mean((1, 2))))
        x = nn.Dense(self.features)(x)
        return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


def training(
    widths: tuple[int, ...] = (64, 128, 256, 512),
    features: int = 128,
    queue: int = 16_384,
    batch: int = 256,
    side: int = 160,
) -> Training:
    encoder = Encoder(widths, features)
    optimizer = optax.chain(
        optax.add_decayed_weights(1e-4), optax.sgd(optax.cosine_decay_schedule(0.03, 200_000), momentum=0.9)
    )

    def encoded(params: Any, stats: Any, image: jax.Array) -> tuple[jax.Array, Any]:
        made, written = encoder.apply({"params": params, "batch_stats": stats}, image, mutable=["batch_stats"])
        return made, written["batch_stats"]

    def loss(params: Any, stats: Any, image: jax.Array, keys: jax.Array, queue: jax.Array) -> tuple[jax.Array, Any]:
        made, stats = encoded(params, stats, image)
        alike = jnp.einsum("bf,bf->b", made, keys)[:, None]
        logits = jnp.concatenate([alike, made @ queue], 1) / 0.07
        return cross_entropy(logits, jnp.zeros(len(image), jnp.int32)), stats

    def step(state: dict[str, Any], opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
        follows = jax.tree.map(lambda slow, fast: 0.999 * slow + 0.001 * fast, state["follows"], state["params"])
        keys, follows_stats = encoded(follows, state["follows_stats"], batch["other"])
        keys = jax.lax.stop_gradient(keys)
        (value, stats), gradients = jax.value_and_grad(loss, has_aux=True)(
            state["params"], state["stats"], batch["one"], keys, state["queue"]
        )
        updates, opt_state = optimizer.update(gradients, opt_state, state["params"])
        new = {
            "params": optax.apply_updates(state["params"], updates),
            "stats": stats,
            "follows": follows,
            "follows_stats": follows_stats,
            "queue": jax.lax.dynamic_update_slice(state["queue"], keys.T, (0, state["at"])),
            "at": (state["at"] + len(keys)) % queue,
        }
        return new, opt_state, value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        of_queue, of_params = jax.random.split(key)
        variables = encoder.init(of_params, jnp.zeros((1, side, side, 3)))
        params, stats = variables["params"], variables["batch_stats"]
        drawn = jax.random.normal(of_queue, (features, queue))
        state = {
            "params": params,
            "stats": stats,
            "follows": jax.tree.map(jnp.copy, params),
            "follows_stats": jax.tree.map(jnp.copy, stats),
            "queue": drawn / jnp.linalg.norm(drawn, axis=0),
            "at": jnp.zeros((), jnp.int32),
        }
        return state, optimizer.init(params)

    images = f32(batch, side, side, 3)
    return training_by(step, initial, {"one": images, "other": images})
