"""Tagger of words in flax linen, trained with clipped momentum SGD: convolutions over the characters of each word, an
LSTM in both directions with dropout around it, and a chain of tags whose partition function is a scan."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, i32
from experiments.models.outside.training import training as around

SMALL = {
    "vocabulary": 64, "characters": 64, "width": 24, "filters": 8, "hidden": 16, "tags": 16, "words": 8, "letters": 8,
    "batch": 8,
}  # fmt: skip


class Emissions(nn.Module):
    vocabulary: int
    characters: int
    width: int
    filters: int
    hidden: int
    tags: int

    @nn.compact
    def __call__(self, words: jax.Array, letters: jax.Array, lengths: jax.Array) -> jax.Array:
        drop = nn.Dropout(0.5, deterministic=False)
        spelt = drop(nn.Embed(self.characters, 30)(letters))
        spelt = nn.Conv(self.filters, (3,))(spelt)
        spelt = jnp.where(letters[..., None] > 0, spelt, -1e4).max(-2)
        x = drop(jnp.concatenate([nn.Embed(self.vocabulary, self.width)(words), jnp.tanh(spelt)], -1))
        forward, back = (nn.RNN(nn.OptimizedLSTMCell(self.hidden)) for _ in range(2))
        x = drop(nn.Bidirectional(forward, back)(x, seq_lengths=lengths))
        return nn.Dense(self.tags)(x)


def _chain_loss(chain: dict[str, jax.Array], scores: jax.Array, tags: jax.Array, mask: jax.Array) -> jax.Array:
    """Of each sentence of a batch: scores [batch, words, tags]."""
    start, stop, moves = chain["start"], chain["stop"], chain["moves"]

    def forward(alpha: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        score, kept = at
        new = jax.nn.logsumexp(alpha[:, :, None] + moves, axis=1) + score
        return jnp.where(kept[:, None], new, alpha), None

    later = (scores[:, 1:].swapaxes(0, 1), mask[:, 1:].swapaxes(0, 1))
    alpha, _ = jax.lax.scan(forward, start + scores[:, 0], later)
    every = jax.nn.logsumexp(alpha + stop, axis=-1)

    emitted = jnp.take_along_axis(scores, tags[..., None], -1)[..., 0]
    moved = moves[tags[:, :-1], tags[:, 1:]]
    last = jnp.take_along_axis(tags, jnp.maximum(mask.sum(1, keepdims=True) - 1, 0), 1)[:, 0]
    path = start[tags[:, 0]] + emitted[:, 0] + ((emitted[:, 1:] + moved) * mask[:, 1:]).sum(1) + stop[last]
    return every - path


def training(
    vocabulary: int = 100_000, characters: int = 128, width: int = 100, filters: int = 30, hidden: int = 200,
    tags: int = 17, words: int = 48, letters: int = 16, batch: int = 256,
) -> Training:  # fmt: skip
    model = Emissions(vocabulary, characters, width, filters, hidden, tags)

    def init(key: jax.Array) -> Any:
        of_model, of_chain = jax.random.split(key)
        ints = jnp.zeros((1, words), jnp.int32)
        zeros = (ints, jnp.zeros((1, words, letters), jnp.int32), jnp.ones(1, jnp.int32))
        chain = {
            "start": jnp.zeros(tags),
            "stop": jnp.zeros(tags),
            "moves": 0.1 * jax.random.normal(of_chain, (tags, tags)),
        }
        return {"emits": model.init({"params": of_model, "dropout": of_model}, *zeros)["params"], "chain": chain}

    def loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        rngs = {"dropout": jax.random.wrap_key_data(batch["key"])}
        scores = model.apply({"params": params["emits"]}, batch["words"], batch["letters"], batch["lengths"], rngs=rngs)
        mask = jnp.arange(words) < batch["lengths"][:, None]
        return _chain_loss(params["chain"], scores, batch["tags"] % tags, mask).mean()

    schedule = optax.inject_hyperparams(optax.sgd)(learning_rate=0.015, momentum=0.9)
    inputs = {
        "words": i32(batch, words),
        "letters": i32(batch, words, letters),
        "lengths": i32(batch),
        "tags": i32(batch, words),
        "key": jax.ShapeDtypeStruct((2,), jnp.uint32),
    }
    return around(loss, optax.chain(optax.clip(5.0), schedule), init, inputs)
