"""Programs as their authors write them, each with a schedule whose tiles meet an op that has no mapping for them.

accumulated gradients   x.reshape(8, -1, ...) and a scan over microbatches, batch parallel
recurrent weights       an LSTM over 64 steps, batch parallel
merged tokens           [B, S, D] -> [B*S, D] before a block of experts, the sequence tiled too
greedy decoding         argmax over a tiled vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 8}, device="tpu_v3")
WIDTH, HIDDEN, VOCABULARY = 2048, 8192, 32000


@dataclass(frozen=True)
class Case:
    """A function, its abstract arguments, and the schedule."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    schedule: tuple[ap.Tactic, ...]


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _block(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def _loss(params: dict[str, Any], x: jax.Array, y: jax.Array) -> jax.Array:
    for layer in params["layers"]:
        x = _block(layer, x)
    return jnp.mean((x - y) ** 2)


def accumulated(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """One step of gradient descent, its gradients added up over eight microbatches."""

    def add(total: Any, rows: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, jax.grad(_loss)(params, *rows)), None

    split = [v.reshape(8, -1, *v.shape[1:]) for v in (x, y)]
    total = lax.scan(add, jax.tree.map(jnp.zeros_like, params), split)[0]
    return jax.tree.map(lambda w, g: w - 1e-3 / 8 * g, params, total)


def recurrent(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    """One step for an LSTM that reads x[batch, time, width]."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        def cell(state: Any, now: jax.Array) -> tuple[Any, None]:
            h, c = state
            i, f, g, o = jnp.split(now @ params["in"] + h @ params["on"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((x.shape[0], params["on"].shape[0]))
        return jnp.sum(lax.scan(cell, (zeros, zeros), x.swapaxes(0, 1))[0][0])

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def merged(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Tokens in one row, through two experts by a gate, and back."""
    rows = x.reshape(-1, x.shape[-1])
    gate = jax.nn.softmax(rows @ params["gate"])
    mixed = jnp.einsum("te,etd->td", gate, jax.nn.gelu(jnp.einsum("td,edf->etf", rows, params["up"])) @ params["down"])
    return x + mixed.reshape(x.shape)


def decoded(params: dict[str, jax.Array], state: jax.Array) -> jax.Array:
    """Sixteen tokens, each the likeliest after the last."""

    def next_token(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        token = jnp.argmax(state @ params["embedding"].T, axis=-1)
        return jnp.tanh(state @ params["mix"] + params["embedding"][token]), token

    return lax.scan(next_token, state, None, length=16)[1]


LAYER = {"up": _f32(WIDTH, HIDDEN), "down": _f32(HIDDEN, WIDTH)}
BP = ap.ManualPartition({"x": 0, "y": 0}, axis="batch", name="BP")
CASES = (
    Case(
        "accumulated gradients",
        accumulated,
        ({"layers": [LAYER] * 4}, _f32(4096, WIDTH), _f32(4096, WIDTH)),
        (BP, ap.ManualPartition({"params": {"*up": 1}}, axis="model", name="MP")),
    ),
    Case(
        "recurrent weights",
        recurrent,
        ({"in": _f32(WIDTH, 4 * WIDTH), "on": _f32(WIDTH, 4 * WIDTH)}, _f32(512, 64, WIDTH)),
        (ap.ManualPartition({"x": 0}, axis="batch", name="BP"),),
    ),
    Case(
        "merged tokens",
        merged,
        ({"gate": _f32(WIDTH, 2), "up": _f32(2, WIDTH, HIDDEN), "down": _f32(2, HIDDEN, WIDTH)}, _f32(32, 1024, WIDTH)),
        (
            ap.ManualPartition({"x": 0}, axis="batch", name="BP"),
            ap.ManualPartition({"x": 1}, axis="model", name="SP"),
        ),
    ),
    Case(
        "greedy decoding",
        decoded,
        ({"embedding": _f32(VOCABULARY, WIDTH), "mix": _f32(WIDTH, WIDTH)}, _f32(64, WIDTH)),
        (
            ap.ManualPartition({"state": 0}, axis="batch", name="BP"),
            ap.ManualPartition({"params": {"embedding": 0}}, axis="model", name="EMB"),
        ),
    ),
)
