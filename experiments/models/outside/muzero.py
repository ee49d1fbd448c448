"""MuZero's step: a board is seen once, then its learned dynamics are unrolled by a scan; AdamW."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "blocks": 1, "side": 4, "planes": 4, "actions": 8, "bins": 8, "unroll": 2, "batch": 8}

Params = dict[str, Any]


def _conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _norm(params: Params, x: jax.Array) -> jax.Array:
    mean, var = x.mean((1, 2, 3), keepdims=True), x.var((1, 2, 3), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * params["scale"] + params["shift"]


def _tower(params: Params, x: jax.Array) -> jax.Array:
    x = _conv(x, params["begin"])
    for block in params["blocks"]:
        y = _conv(jax.nn.relu(_norm(block["norms"][0], x)), block["kernels"][0])
        x = x + _conv(jax.nn.relu(_norm(block["norms"][1], y)), block["kernels"][1])
    least, most = x.min((1, 2, 3), keepdims=True), x.max((1, 2, 3), keepdims=True)
    return (x - least) / (most - least + 1e-5)


def _head(params: Params, x: jax.Array) -> jax.Array:
    x = jax.nn.relu(_conv(x, params["narrow"])).reshape(len(x), -1)
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


def training(
    width: int = 256, blocks: int = 2, side: int = 8, planes: int = 32, actions: int = 1024, bins: int = 256,
    unroll: int = 5, batch: int = 512,
) -> Training:  # fmt: skip
    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 64))

        def kernel(window: int, into: int, out: int) -> jax.Array:
            return jax.random.normal(next(keys), (window, window, into, out)) * (window * window * into) ** -0.5

        def norm() -> Params:
            return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}

        def tower(into: int) -> Params:
            inner = [
                {"kernels": [kernel(3, width, width) for _ in range(2)], "norms": [norm(), norm()]}
                for _ in range(blocks)
            ]
            return {"begin": kernel(3, into, width), "blocks": inner}

        def head(out: int) -> Params:
            flat = 8 * side * side
            hidden = jax.random.normal(next(keys), (flat, width)) * flat**-0.5
            last = jax.random.normal(next(keys), (width, out)) * width**-0.5
            return {"narrow": kernel(1, width, 8), "hidden": hidden, "out": last}

        heads = {"policy": head(actions), "value": head(bins), "reward": head(bins)}
        return {"sees": tower(planes), "moves": tower(width + 1), **heads}

    def off(params: Params, state: jax.Array, wanted: dict[str, jax.Array]) -> jax.Array:
        """Cross entropies of what is read from a state."""
        return sum(
            optax.softmax_cross_entropy(_head(params[name], state), jax.nn.softmax(wanted[name])).mean()
            for name in ("policy", "value", "reward")
        )

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        def move(state, at):
            action, wanted = at
            plane = jnp.broadcast_to(action[:, None, None, None] / actions, (*state.shape[:-1], 1))
            state = _tower(params["moves"], jnp.concatenate([state, plane], -1))
            state = 0.5 * state + 0.5 * jax.lax.stop_gradient(state)
            return state, off(params, state, wanted)

        state = _tower(params["sees"], batch["board"])
        targets = {name: batch[name] for name in ("policy", "value", "reward")}
        first = off(params, state, {name: of[0] for name, of in targets.items()})
        later = {name: of[1:] for name, of in targets.items()}
        _, unrolled = jax.lax.scan(move, state, (batch["action"], later))
        return first + unrolled.mean()

    return around(
        loss,
        optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(1e-3, weight_decay=1e-4)),
        init,
        {
            "board": f32(batch, side, side, planes),
            "action": i32(unroll, batch),
            "policy": f32(unroll + 1, batch, actions),
            "value": f32(unroll + 1, batch, bins),
            "reward": f32(unroll + 1, batch, bins),
        },
    )
