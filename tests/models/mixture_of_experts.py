"""Plain JAX: a mixture-of-experts layer; each token goes to its two best experts while they have room.

Rows of the batch route on their own, so that the batch can be tiled; expert parallelism tiles the experts.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import optax

from tests.models.case import ADAM_EPSILON, Case, training_schedules

WIDTH, HIDDEN, EXPERTS, CHOICES, BATCH, LENGTH = 8, 16, 4, 2, 8, 16
CAPACITY = CHOICES * LENGTH // EXPERTS


def route(router: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of `x` [b, s, d]: which tokens go where [b, s, expert, slot] (0 or 1), and with which weight."""
    weight, expert = jax.lax.top_k(jax.nn.softmax(x @ router), CHOICES)
    chosen = jax.nn.one_hot(expert, EXPERTS, dtype=jnp.int32)
    in_order = chosen.transpose(0, 2, 1, 3).reshape(x.shape[0], -1, EXPERTS)
    before = (jnp.cumsum(in_order, axis=1) - in_order).reshape(x.shape[0], CHOICES, -1, EXPERTS)
    slot = jax.nn.one_hot(before.transpose(0, 2, 1, 3), CAPACITY) * chosen[..., None]
    return jnp.sum(slot, axis=2), jnp.einsum("bsc,bscek->bsek", weight, slot)


def layer(params: dict[str, jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`x` [b, s, d] through its experts, and how many tokens each expert got (int)."""
    dispatch, combine = route(params["router"], x)
    inside = jnp.einsum("bsek,bsd->ebkd", dispatch, x)
    hidden = jax.nn.relu(jnp.einsum("ebkd,edf->ebkf", inside, params["up"]))
    outside = jnp.einsum("ebkf,efd->ebkd", hidden, params["down"])
    load = jnp.sum(dispatch.astype(jnp.int32), axis=(0, 1, 3))
    return jnp.einsum("bsek,ebkd->bsd", combine, outside), load


def case() -> Case:
    router, up, down, x, y = jax.random.split(jax.random.key(0), 5)
    params = {
        "router": jax.random.normal(router, (WIDTH, EXPERTS)),
        "up": jax.random.normal(up, (EXPERTS, WIDTH, HIDDEN)) / math.sqrt(WIDTH),
        "down": jax.random.normal(down, (EXPERTS, HIDDEN, WIDTH)) / math.sqrt(HIDDEN),
    }
    batch = {"x": jax.random.normal(x, (BATCH, LENGTH, WIDTH)), "y": jax.random.normal(y, (BATCH, LENGTH, WIDTH))}
    optimizer = optax.adam(1e-3, eps=ADAM_EPSILON)

    def train_step(params, opt_state, batch):
        def loss(params):
            predicted, load = layer(params, batch["x"])
            return jnp.mean(jnp.square(predicted - batch["y"])), load

        (value, load), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state, {"loss": value, "load": load}

    return Case(
        train_step,
        (params, optimizer.init(params), batch),
        state=2,
        schedules=training_schedules("batch", {"params": {"up": 0}}),
    )
