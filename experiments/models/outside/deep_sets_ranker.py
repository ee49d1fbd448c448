"""Ranks the documents of a query in flax linen, with Adagrad for its tables and Adam for the rest: bags of features
summed under a mask, a cross network of low rank (DCN-v2), a mean over the list, and a softmax over each list."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32, training_of

SMALL = {
    "tables": (128, 64), "embedding": 8, "dense": 16, "bag": 4, "documents": 8, "rank": 8, "crosses": 2,
    "hidden": (32, 16), "batch": 8,
}  # fmt: skip


def _bags(table: nn.Embed, ids: jax.Array) -> jax.Array:
    """Means of [..., bag] without what is padded with zeros."""
    kept = (ids > 0).astype(jnp.float32)
    return jnp.einsum("...be,...b->...e", table(ids), kept) / jnp.maximum(kept.sum(-1, keepdims=True), 1.0)


class Cross(nn.Module):
    rank: int

    @nn.compact
    def __call__(self, x: jax.Array, first: jax.Array) -> jax.Array:
        return first * nn.Dense(x.shape[-1])(nn.Dense(self.rank, use_bias=False)(x)) + x


class Ranker(nn.Module):
    tables: tuple[int, ...]
    embedding: int
    rank: int
    crosses: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, query: jax.Array, ids: jax.Array, numbers: jax.Array, present: jax.Array) -> jax.Array:
        """Scores of documents from a query [batch, bag], ids [batch, documents, fields, bag] and their numbers."""
        fields = [nn.Embed(rows, self.embedding, name=f"table_{i}") for i, rows in enumerate(self.tables)]
        asked = jnp.broadcast_to(_bags(fields[0], query)[:, None], (*numbers.shape[:2], self.embedding))
        found = [_bags(field, ids[:, :, i]) for i, field in enumerate(fields)]
        numbers = jnp.sign(numbers) * jnp.log1p(jnp.abs(numbers))
        x = first = nn.LayerNorm()(jnp.concatenate([asked, *found, numbers], -1))
        for _ in range(self.crosses):
            x = Cross(self.rank)(x, first)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        listed = jnp.sum(x * present[..., None], 1, keepdims=True) / (present.sum(1)[:, None, None] + 1e-3)
        x = nn.relu(nn.Dense(self.hidden[-1])(x) + nn.Dense(self.hidden[-1], use_bias=False)(listed))
        return nn.Dense(1)(x)[..., 0]


def _listwise(scores: jax.Array, batch: tuple[Any, jax.Array]) -> jax.Array:
    (*_, present), grades = batch
    scores = jnp.where(present, scores, -1e9)
    gains = jnp.where(present, 2.0 ** (grades % 5) - 1.0, 0.0)
    wanted = gains / jnp.maximum(gains.sum(1, keepdims=True), 1.0)
    return -jnp.sum(wanted * nn.log_softmax(scores, axis=1) * present, 1).mean()


def training(
    tables: tuple[int, ...] = (500_000, 100_000, 20_000), embedding: int = 48, dense: int = 136, bag: int = 12,
    documents: int = 64, rank: int = 64, crosses: int = 3, hidden: tuple[int, ...] = (512, 256), batch: int = 512,
) -> Training:  # fmt: skip
    optimizer = optax.partition(
        {"tables": optax.adagrad(0.05), "rest": optax.adam(1e-3)},
        lambda params: {name: "tables" if name.startswith("table") else "rest" for name in params},
    )
    inputs = (
        i32(batch, bag),
        i32(batch, documents, len(tables), bag),
        f32(batch, documents, dense),
        jax.ShapeDtypeStruct((batch, documents), jnp.bool_),
    )
    return training_of(
        Ranker(tables, embedding, rank, crosses, hidden), inputs, i32(batch, documents), _listwise, optimizer
    )
