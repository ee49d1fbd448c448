"""Flax linen: a convolutional classifier with batch norm, whose running statistics are mutable state."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

from tests.models.case import Case, training_schedules

CLASSES, BATCH, RESOLUTION = 8, 16, 8


class TrainState(train_state.TrainState):
    batch_stats: Any


class Network(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        for channels in (8, 16):
            x = nn.Conv(channels, (3, 3), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Dense(32)(x.reshape(x.shape[0], -1)))
        return nn.Dense(CLASSES)(x)


def case() -> Case:
    model = Network()
    params_key, image_key, label_key = jax.random.split(jax.random.key(0), 3)
    batch = {
        "image": jax.random.normal(image_key, (BATCH, RESOLUTION, RESOLUTION, 3)),
        "label": jax.random.randint(label_key, (BATCH,), 0, CLASSES),
    }
    variables = model.init(params_key, batch["image"], train=False)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.sgd(0.05, momentum=0.9),
        batch_stats=variables["batch_stats"],
    )

    def train_step(state, batch):
        def loss(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, updated = state.apply_fn(variables, batch["image"], train=True, mutable=["batch_stats"])
            value = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]))
            return value, (logits, updated["batch_stats"])

        (value, (logits, batch_stats)), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
        state = state.apply_gradients(grads=gradients, batch_stats=batch_stats)
        correct = jnp.sum(jnp.argmax(logits, axis=-1) == batch["label"])
        return state, {"loss": value, "correct": correct}

    model_parallel = {"state": {"params/Conv_0/kernel": 3, "params/Dense_0/kernel": 1}}
    return Case(
        train_step,
        (state, batch),
        state=1,
        schedules=training_schedules("batch", model_parallel, state=("state",)),
    )
