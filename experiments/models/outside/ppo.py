"""Proximal policy optimisation in plain jax: advantages by a scan over time, then epochs of minibatches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32, training_by

SMALL = {"seen": 8, "hidden": 16, "actions": 4, "steps": 6, "actors": 16, "epochs": 1, "minibatches": 2}


def training(
    seen: int = 128, hidden: int = 512, actions: int = 16, steps: int = 128, actors: int = 512, epochs: int = 2,
    minibatches: int = 4,
) -> Training:  # fmt: skip
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))

    def perceptron(params: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in params[:-1]:
            x = jnp.tanh(x @ w)
        return x @ params[-1]

    def initial(key: jax.Array) -> tuple[Any, Any]:
        def net(key: jax.Array, out: int) -> list[jax.Array]:
            pairs = list(pairwise((seen, hidden, hidden, out)))
            keys = jax.random.split(key, len(pairs))
            return [jax.random.normal(k, pair) * pair[0] ** -0.5 for k, pair in zip(keys, pairs, strict=True)]

        policy, value = jax.random.split(key)
        params = {"policy": net(policy, actions), "value": net(value, 1)}
        return params, optimizer.init(params)

    def advantages(batch: dict[str, jax.Array], values: jax.Array) -> jax.Array:
        def back(carried, at):
            later, value_after = carried
            reward, alive, value = at
            later = reward + 0.99 * alive * value_after - value + 0.99 * 0.95 * alive * later
            return (later, value), later

        start = (jnp.zeros_like(values[0]), values[-1])
        return jax.lax.scan(back, start, (batch["reward"], batch["alive"], values), reverse=True)[1]

    def loss(params: Any, part: dict[str, jax.Array]) -> jax.Array:
        logits = jax.nn.log_softmax(perceptron(params["policy"], part["seen"]))
        logp = jnp.take_along_axis(logits, part["action"][..., None], -1)[..., 0]
        gain = (part["advantage"] - part["advantage"].mean()) / (part["advantage"].std() + 1e-8)
        ratio = jnp.exp(logp - part["logp"])
        clipped = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
        value = perceptron(params["value"], part["seen"])[..., 0]
        entropy = -(jnp.exp(logits) * logits).sum(-1)
        return (0.5 * (value - part["target"]) ** 2 - clipped - 0.01 * entropy).mean()

    def step(params: Any, opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
        values = perceptron(params["value"], batch["seen"])[..., 0]
        advantage = advantages(batch, values)
        taken = {name: batch[name] for name in ("seen", "action", "logp")}
        parts = jax.tree.map(
            lambda x: x.reshape(minibatches, steps // minibatches, *x.shape[1:]),
            {**taken, "advantage": advantage, "target": advantage + values},
        )

        def update(carried, part):
            params, opt_state = carried
            value, gradients = jax.value_and_grad(loss)(params, part)
            updates, opt_state = optimizer.update(gradients, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), value

        def epoch(carried, _):
            return jax.lax.scan(update, carried, parts)

        (params, opt_state), values = jax.lax.scan(epoch, (params, opt_state), length=epochs)
        return params, opt_state, values.mean()

    whole = f32(steps, actors)
    batch = {
        "seen": f32(steps, actors, seen),
        "action": i32(steps, actors),
        "logp": whole,
        "reward": whole,
        "alive": whole,
    }
    return training_by(step, initial, batch)
