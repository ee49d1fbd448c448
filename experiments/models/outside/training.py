"""A training step around a loss, as every model of this folder has it: step(params, opt_state, batch)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax


@dataclass(frozen=True)
class Training:
    """A step, abstract arguments (params, opt_state, batch), and what a Megatron user would tile of the parameters.

    megatron   pattern of parameter paths -> dim
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    megatron: dict[str, int]


def training(
    loss: Callable[[Any, Any], jax.Array],
    optimizer: optax.GradientTransformation,
    init: Callable[[jax.Array], Any],
    batch: Any,
    megatron: dict[str, int],
) -> Training:
    """The step that lowers `loss(params, batch)` with `optimizer`; `init(key)` makes the parameters."""

    def step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    params = jax.eval_shape(init, jax.random.key(0))
    return Training(step, (params, jax.eval_shape(optimizer.init, params), batch), megatron)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
