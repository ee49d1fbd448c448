"""PixelCNN++ in flax linen, trained with Adam and a moving average of the parameters: convolutions whose kernels are
masked, gates, and mixtures of discretised logistics over the three colours of a pixel."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.models.outside.training import Training, i32, training_by

SMALL = {"width": 16, "blocks": 2, "mixtures": 4, "batch": 8, "side": 8}


def _mask(window: int, into: int, out: int, centre: bool) -> np.ndarray:
    """Of a kernel [window, window, into, out]: what lies before the centre in reading order, and perhaps the centre."""
    mask = np.zeros((window, window, into, out), np.float32)
    mask[: window // 2] = 1
    mask[window // 2, : window // 2 + centre] = 1
    return mask


class PixelCnn(nn.Module):
    width: int
    blocks: int
    mixtures: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        width = self.width
        x = nn.Conv(width, (7, 7), mask=_mask(7, 3, width, False))(image)
        skips = jnp.zeros((*x.shape[:-1], 2 * width))
        for _ in range(self.blocks):
            y = nn.Conv(2 * width, (3, 3), mask=_mask(3, 2 * width, 2 * width, True))(
                nn.elu(jnp.concatenate([x, -x], -1))
            )
            level, gate = jnp.split(y, 2, axis=-1)
            y = jnp.tanh(level) * nn.sigmoid(gate)
            x = x + nn.Conv(width, (1, 1))(y)
            skips = skips + nn.Conv(2 * width, (1, 1))(y)
        x = nn.relu(nn.Conv(2 * width, (1, 1))(nn.relu(skips)))
        return nn.Conv(10 * self.mixtures, (1, 1), kernel_init=nn.initializers.normal(0.01))(x)


def _log_likelihood(outputs: jax.Array, image: jax.Array, mixtures: int) -> jax.Array:
    """Of each pixel; `image` lies within -1 and 1."""
    weights, rest = outputs[..., :mixtures], outputs[..., mixtures:].reshape(*outputs.shape[:-1], 3, 3 * mixtures)
    means, log_scales, mixed = jnp.split(rest, 3, -1)
    log_scales, mixed = jnp.maximum(log_scales, -7.0), jnp.tanh(mixed)
    red, green, x = image[..., 0, None], image[..., 1, None], image[..., None]
    means = jnp.stack(
        [
            means[..., 0, :],
            means[..., 1, :] + mixed[..., 0, :] * red,
            means[..., 2, :] + mixed[..., 1, :] * red + mixed[..., 2, :] * green,
        ],
        axis=-2,
    )
    inverse = jnp.exp(-log_scales)
    above, below, middle = (inverse * (x - means + step) for step in (1 / 255, -1 / 255, 0.0))
    inner = jnp.log(jnp.maximum(nn.sigmoid(above) - nn.sigmoid(below), 1e-12))
    narrow = middle - log_scales - 2 * nn.softplus(middle) - np.log(127.5)
    inner = jnp.where(nn.sigmoid(above) - nn.sigmoid(below) > 1e-5, inner, narrow)
    of_colour = jnp.where(x < -0.999, above - nn.softplus(above), jnp.where(x > 0.999, -nn.softplus(below), inner))
    return jax.nn.logsumexp(of_colour.sum(-2) + nn.log_softmax(weights), -1)


def training(width: int = 160, blocks: int = 5, mixtures: int = 10, batch: int = 192, side: int = 32) -> Training:
    model = PixelCnn(width, blocks, mixtures)
    optimizer = optax.adam(optax.exponential_decay(1e-3, 1, 0.999995), b1=0.95, b2=0.9995)

    def bits(params: Any, pixels: jax.Array) -> jax.Array:
        image = pixels / 127.5 - 1
        seen = model.apply({"params": params}, image)
        return -_log_likelihood(seen, image, mixtures).mean() / (3 * np.log(2))

    def step(params: Any, opt_state: Any, batch: jax.Array) -> tuple[Any, Any, jax.Array]:
        state, mean = opt_state
        value, gradients = jax.value_and_grad(bits)(params, batch)
        updates, state = optimizer.update(gradients, state)
        params = optax.apply_updates(params, updates)
        return params, (state, optax.incremental_update(params, mean, 5e-4)), value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = model.init(key, jnp.zeros((1, side, side, 3)))["params"]
        return params, (optimizer.init(params), jax.tree.map(jnp.copy, params))

    return training_by(step, initial, i32(batch, side, side, 3))
