"""Blocks of AlphaFold's Evoformer in plain jax, trained with Adam: rows with pair bias, outer products, triangles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"blocks": 1, "width": 16, "heads": 2, "sequences": 8, "residues": 8}

INNER = 32
"""Features of each side of an outer product."""

Params = dict[str, jax.Array]


def _norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def _block(params: Params, rows: jax.Array, pairs: jax.Array, heads: int) -> tuple[jax.Array, jax.Array]:
    """`rows`: [sequences, residues, features]; `pairs`: [residues, residues, features]."""
    x, split = _norm(rows), (*rows.shape[:2], heads, -1)
    q, k, v = ((x @ params[name]).reshape(split) for name in ("query", "key", "value"))
    scores = jnp.einsum("srhd,sthd->shrt", q, k) * q.shape[-1] ** -0.5
    scores = scores + jnp.moveaxis(_norm(pairs) @ params["bias"], -1, 0)
    rows = rows + jnp.einsum("shrt,sthd->srhd", jax.nn.softmax(scores), v).reshape(rows.shape) @ params["out"]
    x = _norm(rows)
    outer = jnp.einsum("sic,sjd,cde->ije", x @ params["left"], x @ params["right"], params["outer"])
    pairs = pairs + outer / len(rows)
    x = _norm(pairs)
    edges = jax.nn.sigmoid(x @ params["gate"]) * (x @ params["edge"])
    pairs = pairs + _norm(jnp.einsum("ikc,jkc->ijc", edges, x @ params["other"])) @ params["triangle"]
    return rows, pairs + jax.nn.relu(_norm(pairs) @ params["up"]) @ params["down"]


def training(blocks: int = 2, width: int = 128, heads: int = 4, sequences: int = 64, residues: int = 256) -> Training:
    square = dict.fromkeys(("query", "key", "value", "out", "edge", "other", "gate", "triangle"), (width, width))
    shapes = square | {
        "bias": (width, heads), "left": (width, INNER), "right": (width, INNER), "outer": (INNER, INNER, width),
        "up": (width, 4 * width), "down": (4 * width, width),
    }  # fmt: skip

    def init(key: jax.Array) -> list[Params]:
        keys = jax.random.split(key, (blocks, len(shapes)))
        return [
            {
                name: jax.random.normal(keys[block, i], shape) * shape[0] ** -0.5
                for i, (name, shape) in enumerate(shapes.items())
            }
            for block in range(blocks)
        ]

    def loss(params: list[Params], batch: dict[str, jax.Array]) -> jax.Array:
        rows, pairs = batch["rows"], batch["pairs"]
        for block in params:
            rows, pairs = jax.checkpoint(_block, static_argnums=3)(block, rows, pairs, heads)
        return jnp.mean((pairs - batch["wanted"]) ** 2)

    pairs = f32(residues, residues, width)
    return around(
        loss, optax.adam(1e-3), init, {"rows": f32(sequences, residues, width), "pairs": pairs, "wanted": pairs}
    )
