"""UNet: training step of the reverse process of a diffusion model (PartIR paper, appendix A.3).

    16x16   conv   B B B          skip ->           B B B B   norm  conv
     8x8         v  B B B         skip ->         B B B B ^
     4x4            v  B B B      skip ->       B B B B ^
                              B attention B

B is a residual block of two pairs of convolutions, c -> 4c -> c; v and ^ are convolutions that halve and double the
resolution. 9 blocks down, 12 up (one more a level, each takes one kept activation), 2 in the middle.

501 parameter tensors:

    460   23 blocks * 2 pairs * (2 norms, 2 convolutions, 1 dense of the time; a scale or weight and a bias each)
     14   1x1 convolutions around blocks that change the number of channels
     10   attention: norm 2, position 1, query 2, key 1 (softmax undoes a bias on keys), value 2, out 2
      8   convolutions between levels
      9   first convolution 2, last norm 2 and convolution 1, MLP of the time 4

BP gives 503 all_reduces: one a gradient, the loss, and the unweighted error that the step also reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

Params = dict[str, Any]
Batch = dict[str, jax.Array]

CONVOLUTION = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True)
class Config:
    """Sizes: images [batch, resolution, resolution, image_channels]; level l has `channels * 2**l` channels."""

    channels: int = 80
    levels: int = 3
    blocks: int = 3
    widening: int = 4
    heads: int = 16
    groups: int = 16
    resolution: int = 16
    image_channels: int = 3
    batch: int = 128
    learning_rate: float = 1e-4
    adam_epsilon: float = 1e-8
    checkpoint: bool = False
    """Whether `jax.checkpoint` is written around each residual block."""

    @property
    def time_dim(self) -> int:
        return 4 * self.channels

    def level_channels(self, level: int) -> int:
        return self.channels * 2**level


SMALL = Config(channels=8, levels=2, blocks=1, widening=2, heads=2, groups=2, resolution=8, batch=8, adam_epsilon=1e-5)


def init(config: Config, key: jax.Array) -> Params:
    """Parameters, f32. Blocks are listed in the order in which they run."""
    keys = iter(jax.random.split(key, 4 * (config.blocks + 2) * config.levels + 16))
    width, time = config.channels, config.time_dim
    kept, down, shrink = [width], [], []
    for level in range(config.levels):
        for _ in range(config.blocks):
            down.append(_init_block(config, next(keys), width, config.level_channels(level)))
            width = config.level_channels(level)
            kept.append(width)
        if level < config.levels - 1:
            shrink.append(_init_convolution(next(keys), 3, width, width))
            kept.append(width)
    middle = [_init_block(config, next(keys), width, width) for _ in range(2)]
    attention = _init_attention(config, next(keys), width)
    up, grow = [], []
    for level in reversed(range(config.levels)):
        for _ in range(config.blocks + 1):
            up.append(_init_block(config, next(keys), width + kept.pop(), config.level_channels(level)))
            width = config.level_channels(level)
        if level > 0:
            grow.append(_init_convolution(next(keys), 3, width, width))
    return {
        "time": [_init_dense(next(keys), config.channels, time), _init_dense(next(keys), time, time)],
        "first": _init_convolution(next(keys), 3, config.image_channels, config.channels),
        "down": down,
        "shrink": shrink,
        "middle": middle,
        "attention": attention,
        "up": up,
        "grow": grow,
        "last_norm": _init_norm(width),
        "last": {"weight": _init_convolution(next(keys), 3, width, config.image_channels)["weight"]},
    }


def _init_convolution(key: jax.Array, size: int, inputs: int, outputs: int) -> Params:
    weight = jax.random.normal(key, (size, size, inputs, outputs)) / (size * math.sqrt(inputs))
    return {"weight": weight, "bias": jnp.zeros(outputs)}


def _init_dense(key: jax.Array, inputs: int, outputs: int) -> Params:
    return {"weight": jax.random.normal(key, (inputs, outputs)) / math.sqrt(inputs), "bias": jnp.zeros(outputs)}


def _init_norm(channels: int) -> Params:
    return {"scale": jnp.ones(channels), "bias": jnp.zeros(channels)}


def _init_pair(config: Config, key: jax.Array, inputs: int, outputs: int) -> Params:
    first, second, time = jax.random.split(key, 3)
    hidden = config.widening * outputs
    return {
        "norm_in": _init_norm(inputs),
        "widen": _init_convolution(first, 3, inputs, hidden),
        "time": _init_dense(time, config.time_dim, hidden),
        "norm_hidden": _init_norm(hidden),
        "narrow": _init_convolution(second, 3, hidden, outputs),
    }


def _init_block(config: Config, key: jax.Array, inputs: int, outputs: int) -> Params:
    first, second, around = jax.random.split(key, 3)
    pairs = [_init_pair(config, first, inputs, outputs), _init_pair(config, second, outputs, outputs)]
    around_weight = {"around": _init_convolution(around, 1, inputs, outputs)["weight"]}
    return {"pairs": pairs} | (around_weight if inputs != outputs else {})


def _init_attention(config: Config, key: jax.Array, channels: int) -> Params:
    head = channels // config.heads
    shapes = {name: (channels, config.heads, head) for name in ("query", "key", "value")}
    *projection_keys, out_key, position_key = jax.random.split(key, 5)
    params = {
        name: {"weight": jax.random.normal(k, shape) / math.sqrt(channels), "bias": jnp.zeros(shape[1:])}
        for k, (name, shape) in zip(projection_keys, shapes.items(), strict=True)
    }
    del params["key"]["bias"]
    out = jax.random.normal(out_key, (config.heads, head, channels)) / math.sqrt(channels)
    params["out"] = {"weight": out, "bias": jnp.zeros(channels)}
    pixels = (config.resolution >> (config.levels - 1)) ** 2
    return params | {
        "norm": _init_norm(channels),
        "position": jax.random.normal(position_key, (pixels, channels)) / math.sqrt(channels),
    }


def group_norm(params: Params, x: jax.Array, groups: int) -> jax.Array:
    """`x` [b, h, w, c] normalised over space and each of `groups` groups of channels."""
    grouped = x.reshape(*x.shape[:3], groups, -1)
    centred = grouped - jnp.mean(grouped, axis=(1, 2, 4), keepdims=True)
    normal = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=(1, 2, 4), keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * params["scale"] + params["bias"]


def convolve(params: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """`x` [b, h, w, c] convolved; the resolution is divided by `stride`."""
    y = jax.lax.conv_general_dilated(x, params["weight"], (stride, stride), "SAME", dimension_numbers=CONVOLUTION)
    return y + params["bias"] if "bias" in params else y


def dense(params: Params, x: jax.Array) -> jax.Array:
    """`x` [b, i] to [b, o]."""
    return x @ params["weight"] + params["bias"]


def residual_block(config: Config, params: Params, x: jax.Array, time: jax.Array) -> jax.Array:
    """Two pairs of convolutions, each told the `time` [b, t], and a way around them."""
    inside = x
    for pair in params["pairs"]:
        hidden = convolve(pair["widen"], jax.nn.silu(group_norm(pair["norm_in"], inside, config.groups)))
        hidden = hidden + dense(pair["time"], jax.nn.silu(time))[:, None, None]
        inside = convolve(pair["narrow"], jax.nn.silu(group_norm(pair["norm_hidden"], hidden, config.groups)))
    return inside + (convolve({"weight": params["around"]}, x) if "around" in params else x)


def attention(config: Config, params: Params, x: jax.Array) -> jax.Array:
    """Self-attention over the pixels of `x` [b, h, w, c], added to `x`."""
    pixels = group_norm(params["norm"], x, config.groups).reshape(x.shape[0], -1, x.shape[-1]) + params["position"]
    query, key, value = (_project(params[name], pixels) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhk,bphk->bhqp", query, key) / math.sqrt(query.shape[-1])
    mixed = jnp.einsum("bhqp,bphk->bqhk", jax.nn.softmax(scores), value)
    out = jnp.einsum("bqhk,hkc->bqc", mixed, params["out"]["weight"]) + params["out"]["bias"]
    return x + out.reshape(x.shape)


def _project(params: Params, x: jax.Array) -> jax.Array:
    y = jnp.einsum("bpc,chk->bphk", x, params["weight"])
    return y + params["bias"] if "bias" in params else y


def time_embedding(config: Config, params: list[Params], time: jax.Array) -> jax.Array:
    """Sines and cosines of `time` [b] in [0, 1] through an MLP: [b, time_dim]."""
    half = config.channels // 2
    angle = 1000.0 * time[:, None] * jnp.exp(jnp.arange(half) * (-math.log(10_000.0) / half))
    waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
    return dense(params[1], jax.nn.silu(dense(params[0], waves)))


def predict(config: Config, params: Params, image: jax.Array, time: jax.Array) -> jax.Array:
    """The noise in `image` [b, r, r, c] at diffusion time `time` [b]."""
    residual = jax.checkpoint(residual_block, static_argnums=0) if config.checkpoint else residual_block
    told = time_embedding(config, params["time"], time)
    down, up, shrink, grow = map(iter, (params["down"], params["up"], params["shrink"], params["grow"]))
    x = convolve(params["first"], image)
    kept = [x]
    for level in range(config.levels):
        for _ in range(config.blocks):
            x = residual(config, next(down), x, told)
            kept.append(x)
        if level < config.levels - 1:
            x = convolve(next(shrink), x, stride=2)
            kept.append(x)
    x = residual(config, params["middle"][0], x, told)
    x = attention(config, params["attention"], x)
    x = residual(config, params["middle"][1], x, told)
    for level in reversed(range(config.levels)):
        for _ in range(config.blocks + 1):
            x = residual(config, next(up), jnp.concatenate([x, kept.pop()], axis=-1), told)
        if level > 0:
            x = convolve(next(grow), jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2))
    return convolve(params["last"], jax.nn.silu(group_norm(params["last_norm"], x, config.groups)))


def loss(config: Config, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Squared error of the predicted noise, weighted by the signal-to-noise ratio (at most 5), and unweighted."""
    signal = jnp.square(jnp.cos(batch["time"] * (math.pi / 2)))[:, None, None, None]
    noised = jnp.sqrt(signal) * batch["image"] + jnp.sqrt(1.0 - signal) * batch["noise"]
    error = jnp.square(predict(config, params, noised, batch["time"]) - batch["noise"])
    weight = jnp.minimum(signal / (1.0 - signal), 5.0)
    return jnp.mean(weight * error), jnp.mean(error)


def optimizer(config: Config) -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(config.learning_rate, eps=config.adam_epsilon)


def step(config: Config) -> Callable[[Params, optax.OptState, Batch], tuple[Params, optax.OptState, dict[str, Any]]]:
    """`train_step(params, opt_state, batch) -> (params, opt_state, {"loss", "error"})`."""

    def train_step(params: Params, opt_state: optax.OptState, batch: Batch):
        def losses(params: Params) -> tuple[jax.Array, jax.Array]:
            return loss(config, params, batch)

        (value, error), gradients = jax.value_and_grad(losses, has_aux=True)(params)
        updates, opt_state = optimizer(config).update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": value, "error": error}

    return train_step


def example_args(config: Config, seed: int = 0) -> tuple[Params, optax.OptState, Batch]:
    """Random parameters, fresh Adam state, and random images with their noise and diffusion times."""
    params_key, image, noise, time = jax.random.split(jax.random.key(seed), 4)
    params = init(config, params_key)
    shape = (config.batch, config.resolution, config.resolution, config.image_channels)
    batch = {
        "image": jax.random.normal(image, shape),
        "noise": jax.random.normal(noise, shape),
        "time": jax.random.uniform(time, (config.batch,), minval=0.02, maxval=0.98),
    }
    return params, optimizer(config).init(params), batch


def abstract_args(config: Config) -> tuple[Params, optax.OptState, Batch]:
    """The arguments of the step as shapes and types."""
    return jax.eval_shape(lambda: example_args(config))
