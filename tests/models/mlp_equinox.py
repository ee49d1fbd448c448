"""Equinox: an MLP classifier with dropout; arrays and static parts kept apart, keys passed in."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tests.models.case import ADAM_EPSILON, Case, training_schedules

FEATURES, CLASSES, BATCH = 16, 4, 32


class Classifier(eqx.Module):
    layers: list[eqx.nn.Linear]
    dropout: eqx.nn.Dropout

    def __init__(self, key: jax.Array):
        first, second, third = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Linear(FEATURES, 64, key=first),
            eqx.nn.Linear(64, 64, key=second),
            eqx.nn.Linear(64, CLASSES, key=third),
        ]
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x: jax.Array, key: jax.Array) -> jax.Array:
        for layer, layer_key in zip(self.layers[:-1], jax.random.split(key, 2), strict=True):
            x = self.dropout(jax.nn.relu(layer(x)), key=layer_key)
        return self.layers[-1](x)


def case() -> Case:
    model_key, x_key, y_key, dropout_key = jax.random.split(jax.random.key(0), 4)
    params, static = eqx.partition(Classifier(model_key), eqx.is_array)
    optimizer = optax.adamw(1e-2, eps=ADAM_EPSILON)

    @eqx.filter_value_and_grad
    def loss(params, batch, key):
        keys = jax.random.split(key, batch["x"].shape[0])
        logits = jax.vmap(eqx.combine(params, static))(batch["x"], keys)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]))

    def train_step(params, opt_state, key, batch):
        key, dropout = jax.random.split(key)
        value, gradients = loss(params, batch, dropout)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return eqx.apply_updates(params, updates), opt_state, key, value

    batch = {
        "x": jax.random.normal(x_key, (BATCH, FEATURES)),
        "y": jax.random.randint(y_key, (BATCH,), 0, CLASSES),
    }
    return Case(
        train_step,
        (params, optimizer.init(params), dropout_key, batch),
        state=3,
        schedules=training_schedules("batch", {"params": {"layers/0/weight": 0, "layers/0/bias": 0}}),
    )
