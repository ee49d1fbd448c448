"""Flax nnx: an encoder-decoder with cross-attention; the modules are split into a graph and their state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.models.case import ADAM_EPSILON, Case, training_schedules

WIDTH, HEADS, VOCABULARY, BATCH, SOURCE, TARGET = 16, 4, 32, 8, 6, 8


class Layer(nnx.Module):
    """Self-attention, attention to `memory` if there is any, and an MLP."""

    def __init__(self, crosses: bool, rngs: nnx.Rngs):
        self.self_attention = nnx.MultiHeadAttention(HEADS, WIDTH, use_bias=False, decode=False, rngs=rngs)
        self.cross_attention = (
            nnx.MultiHeadAttention(HEADS, WIDTH, use_bias=False, decode=False, rngs=rngs) if crosses else None
        )
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(3 if crosses else 2)])
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: jax.Array, memory: jax.Array | None = None, mask: jax.Array | None = None) -> jax.Array:
        x = x + self.self_attention(self.norms[0](x), mask=mask)
        if self.cross_attention is not None:
            x = x + self.cross_attention(self.norms[1](x), memory)
        return x + self.down(nnx.gelu(self.up(self.norms[-1](x))))


class Translator(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.encoder = nnx.List([Layer(False, rngs) for _ in range(2)])
        self.decoder = nnx.List([Layer(True, rngs) for _ in range(2)])
        self.head = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory)
        x, mask = self.embed(target), nnx.make_causal_mask(target)
        for layer in self.decoder:
            x = layer(x, memory, mask)
        return self.head(x)


def case() -> Case:
    graph, params = nnx.split(Translator(nnx.Rngs(0)), nnx.Param)
    optimizer = optax.adam(1e-3, eps=ADAM_EPSILON)
    source_key, target_key = jax.random.split(jax.random.key(1))
    batch = {
        "source": jax.random.randint(source_key, (BATCH, SOURCE), 0, VOCABULARY),
        "target": jax.random.randint(target_key, (BATCH, TARGET + 1), 0, VOCABULARY),
    }

    def train_step(params, opt_state, batch):
        def loss(params):
            logits = nnx.merge(graph, params)(batch["source"], batch["target"][:, :-1])
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"][:, 1:]))

        value, gradients = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state, value

    model_parallel = {
        "params": {"*attention/query/kernel*": 1, "*attention/key/kernel*": 1, "*/value/kernel*": 1, "*/up/kernel*": 1}
    }
    return Case(
        train_step,
        (params, optimizer.init(params), batch),
        state=2,
        schedules=training_schedules("batch", model_parallel),
    )
