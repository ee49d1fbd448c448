"""Dense retrieval in haiku, trained with Adam: bags of tokens through perceptrons, all other answers as negatives."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "hidden": 32, "vocabulary": 64, "batch": 16, "tokens": 4}


def training(
    width: int = 512, hidden: int = 2048, vocabulary: int = 32_768, batch: int = 8192, tokens: int = 32
) -> Training:
    def encoded(question: jax.Array, answer: jax.Array) -> tuple[jax.Array, jax.Array]:
        embed = hk.Embed(vocabulary, width)

        def tower(name: str, words: jax.Array) -> jax.Array:
            seen = (words > 0)[..., None]
            x = (embed(words) * seen).sum(1) / jnp.maximum(seen.sum(1), 1)
            x = hk.nets.MLP((hidden, hidden, width), activation=jax.nn.gelu, name=name)(x)
            x = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
            return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

        return tower("question", question), tower("answer", answer)

    model = hk.without_apply_rng(hk.transform(encoded))

    def loss(params, batch):
        question, answer = model.apply(params, batch["question"], batch["answer"])
        scores, own = question @ answer.T / 0.05, jnp.arange(len(question))
        return cross_entropy(scores, own) + cross_entropy(scores.T, own)

    words = i32(batch, tokens)
    return around(
        loss,
        optax.adam(1e-4),
        lambda key: model.init(key, jnp.zeros((1, tokens), jnp.int32), jnp.zeros((1, tokens), jnp.int32)),
        {"question": words, "answer": words},
    )
