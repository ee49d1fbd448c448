"""Haiku: an LSTM over time (`hk.dynamic_unroll`, a scan), trained to continue a sequence."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from tests.models.case import ADAM_EPSILON, Case, training_schedules

WIDTH, FEATURES, BATCH, LENGTH = 16, 4, 8, 10


def predict(x: jax.Array) -> jax.Array:
    """`x` [time, b, features] to the features of the next moment."""
    core = hk.LSTM(WIDTH)
    hidden, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
    return hk.Linear(FEATURES)(jax.nn.relu(hk.Linear(2 * WIDTH, name="up")(hidden)))


def case() -> Case:
    params_key, x_key = jax.random.split(jax.random.key(0))
    network = hk.without_apply_rng(hk.transform(predict))
    series = jax.random.normal(x_key, (LENGTH + 1, BATCH, FEATURES))
    params = network.init(params_key, series[:-1])
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2, eps=ADAM_EPSILON))

    def train_step(params, opt_state, series):
        def loss(params):
            return jnp.mean(jnp.square(network.apply(params, series[:-1]) - series[1:]))

        value, gradients = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state, value

    return Case(
        train_step,
        (params, optimizer.init(params), series),
        state=2,
        schedules=training_schedules({"series": 1}, {"params": {"up/w": 1}}),
    )
