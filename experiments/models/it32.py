"""IT32: greedy decoding of 1,536 tokens by a 32-layer multi-query transformer with a KV cache (PartIR paper, A.3).

    generate(params, cache, token)            one `lax.scan` of 1,536 steps; every step runs 32 blocks on one token
      x + attention(norm(x), cache)           all query heads share one key and one value head, so that the cache is
      x + mlp(norm(x))                        [b, steps, head] and its batch dim is what there is to tile (MQ)

Where Table 2's collectives come from, on a mesh {batch:16, model:2}:

    BP            none            decoding never sums over the batch
    BP+MP         98,304 AR       two a block (after `out` and after `down`): 2 * 32 * 1,536
    BP+MP+MQ      98,240 A2A, 64 AG on top, in the paper: query heads are exchanged for batch rows and back,
                  two a block and step. The values to keep in one layout are tagged `query`, `key_value`, `mixed`.

Weights are bf16: 5.5 B parameters are 11 GB, and half of that is close to the 5,151 MB that Table 3 gives for MP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from experiments.models.t32 import rms_norm, rotate

Params = dict[str, Any]
Cache = list[dict[str, jax.Array]]
Tag = Callable[[str, jax.Array], jax.Array]


@dataclass(frozen=True)
class Config:
    """Sizes: `batch` rows decode `steps` tokens each; every block has `heads` query heads and one key/value head."""

    layers: int = 32
    model_dim: int = 4096
    heads: int = 32
    mlp_ratio: int = 4
    vocabulary: int = 32_000
    batch: int = 96
    steps: int = 1536
    dtype: str = "bfloat16"

    @property
    def head_dim(self) -> int:
        return self.model_dim // self.heads


SMALL = Config(layers=2, model_dim=32, heads=4, vocabulary=64, batch=8, steps=12, dtype="float32")


def init(config: Config, key: jax.Array) -> Params:
    """Parameters in `config.dtype`: the embedding and per block five matrices and two norm scales."""
    embedding_key, *block_keys = jax.random.split(key, config.layers + 1)
    embedding = jax.random.normal(embedding_key, (config.vocabulary, config.model_dim)) / math.sqrt(config.model_dim)
    params = {"embedding": embedding, "blocks": [_init_block(config, k) for k in block_keys]}
    return jax.tree.map(lambda x: x.astype(config.dtype), params)


def _init_block(config: Config, key: jax.Array) -> Params:
    d, hidden, head = config.model_dim, config.mlp_ratio * config.model_dim, config.head_dim
    shapes = {
        "query": (d, config.heads, head),
        "key_value": (d, 2, head),
        "out": (config.heads, head, d),
        "up": (d, hidden),
        "down": (hidden, d),
    }
    fan_in = {"query": d, "key_value": d, "out": d, "up": d, "down": hidden}
    keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
    matrices = {name: jax.random.normal(keys[name], shapes[name]) / math.sqrt(fan_in[name]) for name in shapes}
    return matrices | {"attention_norm": jnp.ones(d), "mlp_norm": jnp.ones(d)}


def empty_cache(config: Config) -> Cache:
    """Zeroed keys and values [batch, steps, head] of every block."""
    zeros = jnp.zeros((config.batch, config.steps, config.head_dim), config.dtype)
    return [{"key": zeros, "value": zeros} for _ in range(config.layers)]


def attention(block: Params, cache: dict[str, jax.Array], x: jax.Array, position: jax.Array, tag: Tag):
    """Attends one token `x` [b, 1, d] to the cache up to `position`; returns [b, 1, d] and the cache with the token."""
    query = tag("query", rotate(jnp.einsum("bsd,dhk->bshk", x, block["query"]), position[None]).astype(x.dtype))
    key_value = tag("key_value", jnp.einsum("bsd,dtk->bstk", x, block["key_value"]))
    key = rotate(key_value[:, :, :1], position[None])[:, :, 0].astype(x.dtype)
    keys = jax.lax.dynamic_update_slice_in_dim(cache["key"], key, position, axis=1)
    values = jax.lax.dynamic_update_slice_in_dim(cache["value"], key_value[:, :, 1], position, axis=1)
    scores = jnp.einsum("bqhk,bsk->bhqs", query, keys).astype(jnp.float32) / math.sqrt(query.shape[-1])
    scores = jnp.where(jnp.arange(keys.shape[1]) <= position, scores, -1e30)
    mixed = tag("mixed", jnp.einsum("bhqs,bsk->bqhk", jax.nn.softmax(scores).astype(x.dtype), values))
    return jnp.einsum("bqhk,hkd->bqd", mixed, block["out"]), {"key": keys, "value": values}


def mlp(block: Params, x: jax.Array) -> jax.Array:
    """Two matrices with a gelu between: `x` [b, s, d] to [b, s, d]."""
    return jnp.einsum("bsf,fd->bsd", jax.nn.gelu(jnp.einsum("bsd,df->bsf", x, block["up"])), block["down"])


def _untagged(name: str, x: jax.Array) -> jax.Array:
    return x


def step(config: Config, tag: Tag = _untagged) -> Callable[[Params, Cache, jax.Array], tuple[jax.Array, Cache]]:
    """`generate(params, cache, token [b]) -> (tokens [steps, b], cache)`; `tag` names intermediates (`ap.tag`)."""

    def decode(params: Params, cache: Cache, token: jax.Array, position: jax.Array) -> tuple[Cache, jax.Array]:
        x = jnp.take(params["embedding"], token, axis=0)[:, None]
        grown = []
        for block, kept in zip(params["blocks"], cache, strict=True):
            attended, kept = attention(block, kept, rms_norm(x, block["attention_norm"]), position, tag)
            x = x + attended
            x = x + mlp(block, rms_norm(x, block["mlp_norm"]))
            grown.append(kept)
        scores = jnp.einsum("bsd,vd->bsv", x, params["embedding"])[:, 0]
        return grown, jnp.argmax(scores, axis=-1).astype(token.dtype)

    def generate(params: Params, cache: Cache, token: jax.Array) -> tuple[jax.Array, Cache]:
        def body(carry: tuple[Cache, jax.Array], position: jax.Array):
            cache, token = decode(params, *carry, position)
            return (cache, token), token

        (cache, _), tokens = jax.lax.scan(body, (cache, token), jnp.arange(config.steps))
        return tokens, cache

    return generate


def example_args(config: Config, seed: int = 0) -> tuple[Params, Cache, jax.Array]:
    """Random parameters, an empty cache and a first token per row."""
    params_key, token_key = jax.random.split(jax.random.key(seed))
    tokens = jax.random.randint(token_key, (config.batch,), 0, config.vocabulary)
    return init(config, params_key), empty_cache(config), tokens


def abstract_args(config: Config) -> tuple[Params, Cache, jax.Array]:
    """The arguments of `generate` as shapes and types."""
    return jax.eval_shape(lambda: example_args(config))
