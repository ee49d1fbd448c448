"""T32: training step of a Chinchilla-like decoder of 32 layers, and T48, of 48 (PartIR paper, appendix A.3).

One block, whose nine parameter tensors are four matrices and five vectors:

    x = x + attention(norm(x))      attention_norm, qkv, out
    x = norm(x + mlp(norm(x)))      mlp_norm, up, up_bias, down, down_bias, block_norm (the additional normalization)

    289 tensors = 32 blocks * 9 + the embedding, which also makes the logits (tied).

Where Table 2's collectives come from, on a mesh {batch:16, model:2}:

    BP   290 all_reduce    one per gradient and one for the loss. Nothing else sums over the batch: the loss is a
                           mean over a fixed number of tokens, and the embedding's two gradients are added first.
    MP   128 all_reduce    four a block (Megatron). Forward after `out` and `down`; backward before `qkv` and `up`.
                           q, k, v are one matrix [d, 3, heads, head] so that backward sums once, not three times.
    Z3   259 all_gather    128 matrices twice (forward, backward), the embedding three times (lookup, logits,
                           gradient of the logits); 129 gradients become reduce_scatter.
    EMB  193 AR, 128 RS    after MP: each norm sums squares over the tiled d, forward and backward (6 a block), the
                           logits sum over d (1); Megatron's four become reduce_scatters. The paper has 256 all_gathers,
                           two for each gathered activation, which has two uses; ours are shared, hence 128.

The sequence has 1,024 tokens: then the attention scores that backward keeps (f32, 6.4 GB a layer for the whole batch)
explain the 177 GB that Table 3 gives for MP; with 2,048 they alone would need 412 GB.
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


@dataclass(frozen=True)
class Config:
    """Sizes: `batch` sequences of `sequence` tokens out of `vocabulary`; the MLP widens `model_dim` by `mlp_ratio`."""

    layers: int = 32
    model_dim: int = 4096
    heads: int = 32
    mlp_ratio: int = 4
    vocabulary: int = 32_000
    batch: int = 48
    sequence: int = 1024
    learning_rate: float = 1e-3
    adam_epsilon: float = 1e-8
    checkpoint: bool = False
    """Whether `jax.checkpoint` is written around each block."""

    @property
    def head_dim(self) -> int:
        return self.model_dim // self.heads


T48 = Config(layers=48, model_dim=8192, heads=64, batch=64)
"""The paper's larger variant, which it trains on 128 TPUs."""

SMALL = Config(layers=2, model_dim=32, heads=4, vocabulary=64, batch=8, sequence=16, adam_epsilon=1e-5)


def init(config: Config, key: jax.Array) -> Params:
    """Parameters, f32: the embedding [vocabulary, d] and per block nine tensors."""
    embedding_key, *block_keys = jax.random.split(key, config.layers + 1)
    embedding = jax.random.normal(embedding_key, (config.vocabulary, config.model_dim)) / math.sqrt(config.model_dim)
    return {"embedding": embedding, "blocks": [_init_block(config, k) for k in block_keys]}


def _init_block(config: Config, key: jax.Array) -> Params:
    d, hidden = config.model_dim, config.mlp_ratio * config.model_dim
    qkv, out, up, down = jax.random.split(key, 4)
    return {
        "attention_norm": jnp.ones(d),
        "qkv": _matrix(qkv, (d, 3, config.heads, config.head_dim), d),
        "out": _matrix(out, (config.heads, config.head_dim, d), d),
        "mlp_norm": jnp.ones(d),
        "up": _matrix(up, (d, hidden), d),
        "up_bias": jnp.zeros(hidden),
        "down": _matrix(down, (hidden, d), hidden),
        "down_bias": jnp.zeros(d),
        "block_norm": jnp.ones(d),
    }


def _matrix(key: jax.Array, shape: tuple[int, ...], fan_in: int) -> jax.Array:
    return jax.random.normal(key, shape) / math.sqrt(fan_in)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """`x` [..., d] divided by the root of its mean square over d, times `scale` [d]."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * scale


def rotate(x: jax.Array, position: jax.Array) -> jax.Array:
    """Rotary position embedding of `x` [..., s, h, head] at `position` [s]."""
    half = x.shape[-1] // 2
    frequency = jnp.exp(jnp.arange(half) * (-math.log(10_000.0) / half))
    angle = position[:, None, None] * frequency
    left, right = x[..., :half], x[..., half:]
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def attention(block: Params, x: jax.Array) -> jax.Array:
    """Causal self-attention of `x` [b, s, d] with heads as a dim of their own, so that they can be tiled."""
    position = jnp.arange(x.shape[1])
    qkv = jnp.einsum("bsd,dthk->bsthk", x, block["qkv"])
    query, key, value = rotate(qkv[:, :, 0], position), rotate(qkv[:, :, 1], position), qkv[:, :, 2]
    scores = jnp.einsum("bqhk,bshk->bhqs", query, key) / math.sqrt(query.shape[-1])
    scores = jnp.where(position[:, None] >= position, scores, -1e30)
    mixed = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(scores), value)
    return jnp.einsum("bqhk,hkd->bqd", mixed, block["out"])


def mlp(block: Params, x: jax.Array) -> jax.Array:
    """Two matrices with a gelu between: `x` [b, s, d] to [b, s, d]."""
    hidden = jax.nn.gelu(jnp.einsum("bsd,df->bsf", x, block["up"]) + block["up_bias"])
    return jnp.einsum("bsf,fd->bsd", hidden, block["down"]) + block["down_bias"]


def apply_block(block: Params, x: jax.Array) -> jax.Array:
    """One block: `x` [b, s, d] to [b, s, d]."""
    x = x + attention(block, rms_norm(x, block["attention_norm"]))
    return rms_norm(x + mlp(block, rms_norm(x, block["mlp_norm"])), block["block_norm"])


def logits(params: Params, tokens: jax.Array, checkpoint: bool = False) -> jax.Array:
    """Next-token logits [b, s, vocabulary] of `tokens` [b, s]."""
    apply = jax.checkpoint(apply_block) if checkpoint else apply_block
    x = jnp.take(params["embedding"], tokens, axis=0)
    for block in params["blocks"]:
        x = apply(block, x)
    return jnp.einsum("bsd,vd->bsv", x, params["embedding"])


def loss(params: Params, batch: Batch, checkpoint: bool = False) -> jax.Array:
    """Mean cross entropy over all tokens of the batch, in nats."""
    predicted = logits(params, batch["inputs"], checkpoint)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(predicted, batch["targets"]))


def optimizer(config: Config) -> optax.GradientTransformation:
    """Adam; no global-norm clipping, which would add one sum over every sharded gradient."""
    return optax.adam(config.learning_rate, eps=config.adam_epsilon)


def step(config: Config) -> Callable[[Params, optax.OptState, Batch], tuple[Params, optax.OptState, jax.Array]]:
    """`train_step(params, opt_state, batch) -> (params, opt_state, loss)`."""

    def train_step(params: Params, opt_state: optax.OptState, batch: Batch):
        value, gradients = jax.value_and_grad(loss)(params, batch, config.checkpoint)
        updates, opt_state = optimizer(config).update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return train_step


def example_args(config: Config, seed: int = 0) -> tuple[Params, optax.OptState, Batch]:
    """Random parameters, fresh Adam state and a random batch."""
    params_key, batch_key = jax.random.split(jax.random.key(seed))
    params = init(config, params_key)
    tokens = jax.random.randint(batch_key, (config.batch, config.sequence + 1), 0, config.vocabulary)
    return params, optimizer(config).init(params), {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}


def abstract_args(config: Config) -> tuple[Params, optax.OptState, Batch]:
    """The arguments of the step as shapes and types."""
    return jax.eval_shape(lambda: example_args(config))
