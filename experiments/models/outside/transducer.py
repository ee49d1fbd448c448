"""A speech transducer: an LSTM hears, a GRU spells, a joint network and a lattice of all alignments; Adafactor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "symbols": 16, "frames": 8, "length": 4, "heard": 8, "batch": 8}

Params = dict[str, Any]


def _dense(key: jax.Array, rows: int, columns: int) -> Params:
    return {"w": jax.random.normal(key, (rows, columns)) * rows**-0.5, "b": jnp.zeros(columns)}


def _apply(params: Params, x: jax.Array) -> jax.Array:
    return x @ params["w"] + params["b"]


def _lstm(params: Params, frames: jax.Array) -> jax.Array:
    """States after each frame, of frames with time first; what does not depend on the state is one product before."""

    def cell(carried, x):
        h, c = carried
        into, forget, new, out = jnp.split(x + h @ params["state"], 4, -1)
        c = jax.nn.sigmoid(forget + 1) * c + jax.nn.sigmoid(into) * jnp.tanh(new)
        h = jax.nn.sigmoid(out) * jnp.tanh(c)
        return (h, c), h

    nothing = jnp.zeros((frames.shape[1], params["state"].shape[0]))
    return jax.lax.scan(cell, (nothing, nothing), _apply(params["frame"], frames))[1]


def _gru(params: Params, x: jax.Array) -> jax.Array:
    def cell(h, x):
        reset, update, new = jnp.split(x, 3, -1)
        reset_h, update_h, new_h = jnp.split(h @ params["state"], 3, -1)
        update = jax.nn.sigmoid(update + update_h)
        h = update * h + (1 - update) * jnp.tanh(new + jax.nn.sigmoid(reset + reset_h) * new_h)
        return h, h

    nothing = jnp.zeros((x.shape[1], params["state"].shape[0]))
    return jax.lax.scan(cell, nothing, _apply(params["input"], x))[1]


def _alignments(stay: jax.Array, emit: jax.Array) -> jax.Array:
    """Log likelihood of all ways: `stay` [batch, frames, places], `emit` [batch, frames, places - 1]."""

    def place(left, at):
        from_below, emitted = at
        here = jnp.logaddexp(from_below, left + emitted)
        return here, here

    def along(first, below, emitted):
        rest = jax.lax.scan(place, first, (below.T, emitted.T))[1]
        return jnp.concatenate([first[:, None], rest.T], 1)

    def frame(alpha, at):
        stay, emitted = at
        below = alpha + stay
        return along(below[:, 0], below[:, 1:], emitted), None

    examples, _, places = stay.shape
    start = along(jnp.zeros(examples), jnp.full((examples, places - 1), -1e9), emit[:, 0])
    alpha, _ = jax.lax.scan(frame, start, (stay[:, :-1].swapaxes(0, 1), emit[:, 1:].swapaxes(0, 1)))
    return alpha[:, -1] + stay[:, -1, -1]


def training(
    width: int = 640, symbols: int = 512, frames: int = 96, length: int = 24, heard: int = 240, batch: int = 64
) -> Training:
    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 12))
        hears = [
            {"frame": _dense(next(keys), rows, 4 * width), "state": _dense(next(keys), width, 4 * width)["w"]}
            for rows in (heard, width)
        ]
        spells = {"input": _dense(next(keys), width, 3 * width), "state": _dense(next(keys), width, 3 * width)["w"]}
        return {
            "hears": hears,
            "symbols": jax.random.normal(next(keys), (symbols, width)),
            "spells": spells,
            "frame": _dense(next(keys), width, width),
            "symbol": _dense(next(keys), width, width),
            "joint": _dense(next(keys), width, symbols),
        }

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        x = batch["heard"].swapaxes(0, 1)
        for layer in params["hears"]:
            x = _lstm(layer, x)
        spelt = jnp.pad(params["symbols"][batch["symbols"]], ((0, 0), (1, 0), (0, 0)))
        y = _gru(params["spells"], spelt.swapaxes(0, 1))
        x, y = _apply(params["frame"], x).swapaxes(0, 1), _apply(params["symbol"], y).swapaxes(0, 1)
        logits = _apply(params["joint"], jnp.tanh(x[:, :, None] + y[:, None]))
        logp = jax.nn.log_softmax(logits)
        spoken = batch["symbols"][:, None, :, None]
        emit = jnp.take_along_axis(logp[:, :, :-1], spoken, -1)[..., 0]
        return -_alignments(logp[..., 0], emit).mean() / length

    return around(
        loss, optax.adafactor(1e-3), init, {"heard": f32(batch, frames, heard), "symbols": i32(batch, length)}
    )
