"""A decoder of 7 B parameters: 32 equal layers in one `lax.scan`, gated MLP, untied head; bf16 beside f32 state.

    x = x + attention(norm(x))          4 matrices [d, d]
    x = x + gated_mlp(norm(x))          2 of [d, hidden], 1 of [hidden, d]

Nothing is rematerialised unless `checkpoint=True`, which writes `jax.checkpoint` around the layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

Tree = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """Sizes; `batch` sequences of `sequence` tokens."""

    layers: int = 32
    model_dim: int = 4096
    heads: int = 32
    hidden: int = 11_008
    vocabulary: int = 32_000
    batch: int = 64
    sequence: int = 2048


def params(config: Config) -> Tree:
    """f32 parameters as shapes; those of a layer are stacked over the layers."""
    d, h, heads = config.model_dim, config.hidden, config.heads
    layer = {
        "attention_norm": (d,), "qkv": (d, 3, heads, d // heads), "out": (heads, d // heads, d),
        "mlp_norm": (d,), "gate": (d, h), "up": (d, h), "down": (h, d),
    }  # fmt: skip
    f32 = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    layers = {name: f32((config.layers, *shape)) for name, shape in layer.items()}
    return {"embedding": f32((config.vocabulary, d)), "layers": layers, "head": f32((d, config.vocabulary))}


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + 1e-6)
    return (x32 * scale).astype(x.dtype)


def _layer(layer: Tree, x: jax.Array) -> jax.Array:
    layer = jax.tree.map(lambda w: w.astype(x.dtype), layer)
    position = jnp.arange(x.shape[1])
    q, k, v = jnp.moveaxis(jnp.einsum("bsd,dthk->bsthk", _norm(x, layer["attention_norm"]), layer["qkv"]), 2, 0)
    scores = jnp.einsum("bqhk,bshk->bhqs", q, k).astype(jnp.float32) / math.sqrt(q.shape[-1])
    scores = jnp.where(position[:, None] >= position, scores, -1e30)
    mixed = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(scores).astype(x.dtype), v)
    x = x + jnp.einsum("bqhk,hkd->bqd", mixed, layer["out"])
    y = _norm(x, layer["mlp_norm"])
    return x + (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]


def step(checkpoint: bool = False):
    """`train_step(params, opt_state, tokens [batch, sequence + 1])` with Adam."""
    apply = jax.checkpoint(_layer) if checkpoint else _layer

    def loss(params: Tree, tokens: jax.Array) -> jax.Array:
        x = jnp.take(params["embedding"], tokens[:, :-1], axis=0).astype(jnp.bfloat16)
        x, _ = jax.lax.scan(lambda x, layer: (apply(layer, x), None), x, params["layers"])
        logits = jnp.einsum("bsd,dv->bsv", x, params["head"].astype(x.dtype)).astype(jnp.float32)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]))

    def train_step(params: Tree, opt_state: optax.OptState, tokens: jax.Array):
        value, gradients = jax.value_and_grad(loss)(params, tokens)
        updates, opt_state = optax.adam(1e-4).update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return train_step


def abstract_args(config: Config) -> tuple[Tree, Any, jax.ShapeDtypeStruct]:
    """Arguments of the step as shapes and types."""
    weights = params(config)
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence + 1), jnp.int32)
    return weights, jax.eval_shape(optax.adam(1e-4).init, weights), tokens
