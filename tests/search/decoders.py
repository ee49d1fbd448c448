"""Decoders whose layers are alike, with what their training steps differ in: types, tied tables, clipping, depth."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

import autopart as ap
from autopart.core.program import Program


@dataclass(frozen=True)
class Decoder:
    """A decoder in arrays of `dtype`, with weights in f32; `tied`: its embedding makes the logits."""

    layers: int
    dtype: str = "float32"
    tied: bool = True
    clip: bool = False
    width: int = 256
    vocabulary: int = 4096
    batch: int = 16
    length: int = 128
    heads: int = 4

    @functools.cached_property
    def optimizer(self) -> Any:
        adam = optax.adamw(1e-3)
        return optax.chain(optax.clip_by_global_norm(1.0), adam) if self.clip else adam

    def weights(self) -> dict[str, Any]:
        d, block = self.width, {"qkv": (3, 1), "out": (1, 1), "up": (4, 1), "down": (1, 4)}
        one = {name: _f32(d * rows, d * columns) for name, (columns, rows) in block.items()}
        one |= {name: _f32(d) for name in ("before", "between")}
        tables = {"embed": _f32(self.vocabulary, d), "norm": _f32(d), "blocks": [one] * self.layers}
        return tables if self.tied else {**tables, "head": _f32(d, self.vocabulary)}

    def loss(self, weights: dict[str, Any], tokens: jax.Array) -> jax.Array:
        x = weights["embed"][tokens].astype(self.dtype)
        for block in weights["blocks"]:
            x = self.block(block, x)
        head = weights["embed"].T if self.tied else weights["head"]
        logits = (self.norm(x, weights["norm"]) @ head.astype(self.dtype)).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()

    def norm(self, x: jax.Array, scale: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        wide = wide - wide.mean(-1, keepdims=True)
        return (wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * scale).astype(self.dtype)

    def block(self, block: dict[str, Any], x: jax.Array) -> jax.Array:
        matrices = {name: array.astype(self.dtype) for name, array in block.items()}
        q, k, v = jnp.split(self.norm(x, block["before"]) @ matrices["qkv"], 3, -1)
        q, k, v = (a.reshape(*x.shape[:2], self.heads, -1) for a in (q, k, v))
        scores = jnp.einsum("bshd,bthd->bhst", q, k).astype(jnp.float32)
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool)), scores, -1e9)
        seen = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores).astype(self.dtype), v)
        x = x + seen.reshape(x.shape) @ matrices["out"]
        return x + jax.nn.gelu(self.norm(x, block["between"]) @ matrices["up"]) @ matrices["down"]

    def step(self, state: tuple[Any, Any], tokens: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        weights, moments = state
        loss, gradients = jax.value_and_grad(self.loss)(weights, tokens)
        updates, moments = self.optimizer.update(gradients, moments, weights)
        return (optax.apply_updates(weights, updates), moments), loss

    def args(self) -> tuple[Any, ...]:
        weights = self.weights()
        state = weights, jax.eval_shape(self.optimizer.init, weights)
        return state, jax.ShapeDtypeStruct((self.batch, self.length), jnp.int32)

    def program(self) -> Program:
        step = ap.jit(self.step, ap.Mesh({"data": 8}, device="tpu_v3"), [], donate_argnums=0)
        return step.lower(*self.args()).traced.program


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
