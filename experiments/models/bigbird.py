"""BigBird: training step of an encoder with block-sparse attention, unrolled over heads and blocks (arXiv:2007.14062).

A block of 64 queries of one head attends to at most eight blocks of keys:

    block 7 of 64      0, 63    global        6, 7, 8    window        12, 31, 50    random, other ones for each head

and blocks 0 and 63 to all of them. Each head has random blocks of its own, so every pair of head and block is a few ops
of its own, as in the released implementations. The large model (24 layers of 16 heads and 64 blocks) is a program of
about 1.7 million ops; layers and pairs are functions that are traced once and called often.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.models.t32 import rms_norm

Params = dict[str, Any]
Batch = dict[str, jax.Array]


@dataclass(frozen=True)
class Config:
    """Sizes: `batch` sequences of `blocks` blocks of `block` tokens; heads are `head_dim` wide."""

    layers: int = 24
    heads: int = 16
    blocks: int = 64
    block: int = 64
    random_blocks: int = 3
    head_dim: int = 64
    mlp_ratio: int = 4
    vocabulary: int = 50_304
    batch: int = 32
    learning_rate: float = 1e-4

    @property
    def model_dim(self) -> int:
        return self.heads * self.head_dim


SMALL = Config(layers=7, heads=2, blocks=6, block=4, random_blocks=1, head_dim=8, vocabulary=64, batch=8)


def init(config: Config, key: jax.Array) -> Params:
    """Parameters, f32: the embedding [vocabulary, d], and per layer four matrices and two norms."""
    d, hidden = config.model_dim, config.mlp_ratio * config.model_dim
    embedding, *keys = jax.random.split(key, config.layers + 1)

    def layer(key: jax.Array) -> Params:
        qkv, out, up, down = jax.random.split(key, 4)
        return {
            "attention_norm": jnp.ones(d),
            "qkv": jax.random.normal(qkv, (d, 3 * d)) / math.sqrt(d),
            "out": jax.random.normal(out, (d, d)) / math.sqrt(d),
            "mlp_norm": jnp.ones(d),
            "up": jax.random.normal(up, (d, hidden)) / math.sqrt(d),
            "down": jax.random.normal(down, (hidden, d)) / math.sqrt(hidden),
        }

    return {
        "embedding": jax.random.normal(embedding, (config.vocabulary, d)) / math.sqrt(d),
        "layers": [layer(k) for k in keys],
    }


def attended(config: Config) -> list[list[list[int]]]:
    """[head][block] -> the blocks of keys that a block of queries attends to, ascending."""
    random, last = np.random.default_rng(0), config.blocks - 1

    def of(block: int) -> list[int]:
        if block in (0, last):
            return list(range(config.blocks))
        near = {0, last, block - 1, block, block + 1}
        far = [b for b in range(config.blocks) if b not in near]
        return sorted(near | set(random.permutation(far)[: config.random_blocks].tolist()))

    return [[of(block) for block in range(config.blocks)] for _ in range(config.heads)]


@jax.jit
def attend(query: jax.Array, keys: list[jax.Array], values: list[jax.Array]) -> jax.Array:
    """Attention of one block of one head: `query` [b, q, k], keys and values [b, q, k] each."""
    scores = jnp.einsum("bqk,bsk->bqs", query, jnp.concatenate(keys, 1)) / math.sqrt(query.shape[-1])
    return jnp.einsum("bqs,bsk->bqk", jax.nn.softmax(scores), jnp.concatenate(values, 1))


def attention(config: Config, layer: Params, x: jax.Array) -> jax.Array:
    """Block-sparse self-attention of `x` [b, s, d]."""
    qkv = jnp.split(x @ layer["qkv"], 3 * config.heads, axis=-1)
    pieces = [jnp.split(head, config.blocks, axis=1) for head in qkv]
    queries, keys, values = (pieces[i * config.heads : (i + 1) * config.heads] for i in range(3))
    heads = [
        jnp.concatenate(
            [
                attend(queries[head][block], [keys[head][b] for b in seen], [values[head][b] for b in seen])
                for block, seen in enumerate(row)
            ],
            axis=1,
        )
        for head, row in enumerate(attended(config))
    ]
    return jnp.concatenate(heads, axis=-1) @ layer["out"]


@functools.partial(jax.jit, static_argnums=0)
def apply_layer(config: Config, layer: Params, x: jax.Array) -> jax.Array:
    """One layer: `x` [b, s, d] to [b, s, d]."""
    x = x + attention(config, layer, rms_norm(x, layer["attention_norm"]))
    return x + jax.nn.gelu(rms_norm(x, layer["mlp_norm"]) @ layer["up"]) @ layer["down"]


def loss(config: Config, params: Params, batch: Batch) -> jax.Array:
    """Mean cross entropy of `targets` over all tokens, in nats."""
    x = jnp.take(params["embedding"], batch["inputs"], axis=0)
    for layer in params["layers"]:
        x = apply_layer(config, layer, x)
    predicted = jnp.einsum("bsd,vd->bsv", x, params["embedding"])
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(predicted, batch["targets"]))


def step(config: Config) -> Callable[[Params, optax.OptState, Batch], tuple[Params, optax.OptState, jax.Array]]:
    """`train_step(params, opt_state, batch) -> (params, opt_state, loss)`, by Adam."""

    def train_step(params: Params, opt_state: optax.OptState, batch: Batch):
        value, gradients = jax.value_and_grad(loss, argnums=1)(config, params, batch)
        updates, opt_state = optax.adam(config.learning_rate).update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return train_step


def example_args(config: Config, seed: int = 0) -> tuple[Params, optax.OptState, Batch]:
    """Random parameters, fresh Adam state and a random batch."""
    params_key, batch_key = jax.random.split(jax.random.key(seed))
    params = init(config, params_key)
    shape = (2, config.batch, config.blocks * config.block)
    inputs, targets = jax.random.randint(batch_key, shape, 0, config.vocabulary)
    return params, optax.adam(config.learning_rate).init(params), {"inputs": inputs, "targets": targets}


def abstract_args(config: Config) -> tuple[Params, optax.OptState, Batch]:
    """The arguments of the step as shapes and types."""
    return jax.eval_shape(lambda: example_args(config))
