"""A recommender of what a user did last (a behaviour sequence transformer) in flax linen, trained with Adagrad: wide
tables of embeddings, one block of attention over the sequence, weights of interest, an MLP."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32, training_of

SMALL = {
    "items": 64, "users": 64, "width": 16, "heads": 2, "layers": (32, 16), "length": 6, "numbers": 4, "batch": 16,
}  # fmt: skip


class BehaviourSequences(nn.Module):
    items: int
    users: int
    width: int
    heads: int
    layers: tuple[int, ...]

    def _block(self, sequence: jax.Array) -> jax.Array:
        positions = self.param("positions", nn.initializers.normal(0.02), (1, *sequence.shape[1:]))
        x = sequence + positions
        x = nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(self.heads)(x, x))
        return nn.LayerNorm()(x + nn.Dense(self.width)(nn.leaky_relu(nn.Dense(4 * self.width)(x))))

    def _interest(self, history: jax.Array, candidate: jax.Array) -> jax.Array:
        """[batch, length]: how much each item of the history matters for the candidate [batch, width]."""
        candidates = jnp.broadcast_to(candidate[:, None], history.shape)
        pairs = jnp.concatenate([history, candidates, history * candidate[:, None]], -1)
        return nn.softmax(nn.Dense(1)(nn.relu(nn.Dense(36)(pairs)))[..., 0])

    @nn.compact
    def __call__(self, history: jax.Array, item: jax.Array, user: jax.Array, numbers: jax.Array) -> jax.Array:
        embedding = nn.Embed(self.items, self.width)
        seen, candidate = embedding(history), embedding(item)
        who = nn.Embed(self.users, self.width)(user)
        x = self._block(jnp.concatenate([seen, candidate[:, None]], 1))
        interest = self._interest(seen, candidate)
        flat = x.reshape(x.shape[0], -1)
        of_history = jnp.einsum("bn,bnd->bd", interest, seen)
        y = jnp.concatenate([flat, of_history, who, numbers], -1)
        for size in self.layers:
            y = nn.leaky_relu(nn.LayerNorm()(nn.Dense(size)(y)))
        return nn.Dense(1)(y)[:, 0]


def training(
    items: int = 200_000,
    users: int = 100_000,
    width: int = 64,
    heads: int = 8,
    layers: tuple[int, ...] = (1024, 512, 256),
    length: int = 20,
    numbers: int = 13,
    batch: int = 8192,
) -> Training:
    def loss(logits, batch):
        return optax.sigmoid_binary_cross_entropy(logits, batch[1]).mean()

    model = BehaviourSequences(items, users, width, heads, layers)
    inputs = (i32(batch, length), i32(batch), i32(batch), f32(batch, numbers))
    return training_of(model, inputs, f32(batch), loss, optax.adagrad(1e-2))
