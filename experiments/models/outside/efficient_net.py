"""EfficientNet: inverted bottlenecks with depthwise convolutions that squeeze and excite; SGD with momentum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"stages": ((8, 3, 1, 1), (16, 5, 2, 1)), "stem": 8, "side": 16, "classes": 16, "batch": 8}

Params = dict[str, Any]

STAGES = ((16, 3, 1, 1), (24, 3, 2, 1), (40, 5, 2, 1), (80, 3, 2, 1), (112, 5, 1, 1))
"""Features, window, stride and blocks of each stage."""


def _conv(x: jax.Array, kernel: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _norm(params: Params, x: jax.Array) -> jax.Array:
    """Batch norm in training."""
    mean = x.mean((0, 1, 2))
    var = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(var + 1e-3) * params["scale"] + params["shift"]


def _block(params: Params, x: jax.Array, stride: int) -> jax.Array:
    y = jax.nn.silu(_norm(params["norms"][0], _conv(x, params["widen"])))
    y = jax.nn.silu(_norm(params["norms"][1], _conv(y, params["depth"], stride, y.shape[-1])))
    squeezed = jax.nn.silu(y.mean((1, 2)) @ params["squeeze"])
    y = y * jax.nn.sigmoid(squeezed @ params["excite"])[:, None, None]
    y = _norm(params["norms"][2], _conv(y, params["narrow"]))
    return x + y if x.shape == y.shape else y


def training(
    stages: tuple[tuple[int, int, int, int], ...] = STAGES, stem: int = 32, side: int = 160, classes: int = 1000,
    batch: int = 128,
) -> Training:  # fmt: skip
    strides = [stride if number == 0 else 1 for _, _, stride, blocks in stages for number in range(blocks)]

    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 4 + 5 * len(strides)))

        def kernel(window: int, into: int, out: int) -> jax.Array:
            return jax.random.normal(next(keys), (window, window, into, out)) * (window * window * into) ** -0.5

        def norm(width: int) -> Params:
            return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}

        def block(into: int, out: int, window: int) -> Params:
            wide = 6 * into
            return {
                "widen": kernel(1, into, wide),
                "depth": kernel(window, 1, wide),
                "squeeze": kernel(1, wide, max(into // 4, 4))[0, 0],
                "excite": kernel(1, max(into // 4, 4), wide)[0, 0],
                "narrow": kernel(1, wide, out),
                "norms": [norm(wide), norm(wide), norm(out)],
            }

        inner, into = [], stem
        for out, window, _, blocks in stages:
            for _ in range(blocks):
                inner.append(block(into, out, window))
                into = out
        ends = {"stem": kernel(3, 3, stem), "stem_norm": norm(stem), "last": kernel(1, into, 1280)}
        return {**ends, "last_norm": norm(1280), "blocks": inner, "head": kernel(1, 1280, classes)[0, 0]}

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        x = jax.nn.silu(_norm(params["stem_norm"], _conv(batch["image"], params["stem"], 2)))
        for block, stride in zip(params["blocks"], strides, strict=True):
            x = _block(block, x, stride)
        x = jax.nn.silu(_norm(params["last_norm"], _conv(x, params["last"])))
        return cross_entropy(x.mean((1, 2)) @ params["head"], batch["label"])

    return around(
        loss,
        optax.chain(optax.add_decayed_weights(1e-5), optax.sgd(0.1, momentum=0.9)),
        init,
        {"image": f32(batch, side, side, 3), "label": i32(batch)},
    )
