"""Mixture of experts in haiku, trained with Adafactor: top-1 routing by one-hot dispatch, experts stacked on a dim."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around


class Experts(hk.Module):
    def __init__(self, experts: int, capacity: int, name: str = "experts"):
        super().__init__(name)
        self.experts, self.capacity = experts, capacity

    def __call__(self, x: jax.Array) -> jax.Array:
        """[groups, tokens, width]; each group sends at most `capacity` tokens to each expert."""
        width, initial = x.shape[-1], hk.initializers.VarianceScaling(1.0)
        gates = jax.nn.softmax(hk.Linear(self.experts, with_bias=False, name="router")(x))
        chosen = jax.nn.one_hot(gates.argmax(-1), self.experts)
        place = jnp.cumsum(chosen, axis=1) * chosen - 1.0
        slots = jax.nn.one_hot(place.astype(jnp.int32), self.capacity) * chosen[..., None]
        up = hk.get_parameter("up", (self.experts, width, 4 * width), init=initial)
        down = hk.get_parameter("down", (self.experts, 4 * width, width), init=initial)
        sent = jnp.einsum("gtec,gtd->egcd", slots, x)
        hidden = jax.nn.silu(jnp.einsum("egcd,edh->egch", sent, up))
        made = jnp.einsum("egch,ehd->egcd", hidden, down)
        return jnp.einsum("gtec,egcd->gtd", slots * (gates * chosen).sum(-1)[..., None, None], made)


ADAFACTOR = optax.adafactor(1e-3)


def training(
    layers: int = 1,
    width: int = 768,
    heads: int = 6,
    experts: int = 8,
    vocabulary: int = 8192,
    length: int = 256,
    batch: int = 128,
    optimizer: optax.GradientTransformation = ADAFACTOR,
) -> Training:
    def decode(tokens: jax.Array) -> jax.Array:
        def norm(x: jax.Array) -> jax.Array:
            return hk.RMSNorm(-1)(x)

        x = hk.Embed(vocabulary, width, name="embedding")(tokens)
        causal = jnp.tril(jnp.ones((1, 1, length, length), bool))
        for _ in range(layers):
            initial = hk.initializers.VarianceScaling(1.0)
            attention = hk.MultiHeadAttention(heads, width // heads, w_init=initial, name="attention")
            y = norm(x)
            x = x + attention(y, y, y, causal)
            x = x + Experts(experts, 2 * length // experts)(norm(x))
        return hk.Linear(vocabulary, name="head")(norm(x))

    model = hk.without_apply_rng(hk.transform(decode))
    tokens = i32(batch, length)

    def loss(params, batch):
        return cross_entropy(model.apply(params, batch["tokens"]), batch["next"])

    return around(
        loss,
        optimizer,
        lambda key: model.init(key, jnp.zeros((1, length), jnp.int32)),
        {"tokens": tokens, "next": tokens},
        {"*experts*/up": 0, "*experts*/down": 0},
    )


SMALL = {
    "layers": 1,
    "width": 32,
    "heads": 2,
    "experts": 4,
    "vocabulary": 64,
    "length": 16,
    "batch": 8,
    "optimizer": optax.adam(1e-3, eps=1e-5),
}
"""Sizes that eight host devices run in seconds, and an optimizer that does not turn rounding into steps."""
