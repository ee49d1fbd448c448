"""GPT-NeoX in flax linen, trained with clipped AdamW in bf16: a scan over microbatches sums gradients for one step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.neox import Neox
from experiments.models.outside.training import Training, cross_entropy, i32, training_by

SMALL = {
    "layers": 1, "width": 32, "heads": 4, "vocabulary": 64, "length": 16, "microbatches": 4, "batch": 8,
}  # fmt: skip


def training(
    layers: int = 3,
    width: int = 512,
    heads: int = 8,
    vocabulary: int = 16_000,
    length: int = 512,
    microbatches: int = 4,
    batch: int = 16,
) -> Training:
    """`batch` is the size of each of the `microbatches`."""
    model = Neox(layers=layers, width=width, heads=heads, vocabulary=vocabulary, dtype=jnp.bfloat16)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def loss(params: Any, tokens: jax.Array, following: jax.Array) -> jax.Array:
        return cross_entropy(model.apply({"params": params}, tokens).astype(jnp.float32), following)

    def step(params: Any, opt_state: Any, batch: tuple[jax.Array, jax.Array]) -> tuple[Any, Any, jax.Array]:
        def summed(sums: tuple[jax.Array, Any], microbatch: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            value, gradients = jax.value_and_grad(loss)(params, *microbatch)
            return (sums[0] + value, jax.tree.map(jnp.add, sums[1], gradients)), None

        (value, gradients), _ = jax.lax.scan(summed, (0.0, jax.tree.map(jnp.zeros_like, params)), batch)
        gradients = jax.tree.map(lambda gradient: gradient / microbatches, gradients)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = model.init(key, jnp.zeros((batch, length), jnp.int32))["params"]
        return params, optimizer.init(params)

    tokens = i32(microbatches, batch, length)
    return training_by(step, initial, (tokens, tokens))
