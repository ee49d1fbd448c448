"""Edges as gathers and scatters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.whole_models.blocks.registered import Get, More, block


@block
def message_passing(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Messages along edges, added up at their ends by `segment_sum`."""
    d = x.shape[-1]
    nodes = x.reshape(-1, d)
    source, target = more.edges[:, 0], more.edges[:, 1]
    messages = jnp.tanh(jnp.concatenate([nodes[source], nodes[target]], -1) @ get("w", (2 * d, d)))
    return jnp.tanh(jax.ops.segment_sum(messages, target, len(nodes))).reshape(x.shape) + x


@block
def graph_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A softmax over the edges that end at a node: `segment_max`, `segment_sum`, and a scatter-add."""
    d = x.shape[-1]
    nodes = x.reshape(-1, d) @ get("w", (d, d))
    source, target = more.edges[:, 0], more.edges[:, 1]
    score = jax.nn.leaky_relu(nodes[source] @ get("a", (d,)) + nodes[target] @ get("b", (d,)))
    score = jnp.exp(score - lax.stop_gradient(jax.ops.segment_max(score, target, len(nodes)))[target])
    share = score / (jax.ops.segment_sum(score, target, len(nodes))[target] + 1e-6)
    return x + jnp.zeros_like(nodes).at[target].add(share[:, None] * nodes[source]).reshape(x.shape)


@block
def scattered(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Sums at the ends of edges, and nothing beside them."""
    source, target, length = more.edges[:, 0], more.edges[:, 1], max(x.shape[1], 1)
    return jnp.zeros_like(x).at[target // length, target % length].add(x[source // length, source % length])


@block
def degree_norm(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Counts edges at each node; the count alone is what is read, at the end of the block."""
    nodes = x.reshape(-1, x.shape[-1])
    degree = jnp.zeros((len(nodes),), x.dtype).at[more.edges[:, 1]].add(1.0)
    return x * lax.rsqrt(1 + degree).reshape(*x.shape[:2], 1)
