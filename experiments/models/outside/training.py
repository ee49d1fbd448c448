"""A training step around a loss, as every model of this folder has it: step(params, opt_state, batch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Training:
    """A step, abstract arguments (params, opt_state, batch), and what a Megatron user would tile of the parameters.

    megatron   pattern of parameter paths -> dim; none where nobody would
    initial    (params, opt_state) from a key, as arrays
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    megatron: Mapping[str, int]
    initial: Callable[[jax.Array], tuple[Any, Any]]

    def example_args(self, seed: int = 0, tokens: int = 64) -> tuple[Any, ...]:
        """Arrays for small sizes: real parameters, and a random batch with numbers below `tokens` for what is whole."""
        draw = np.random.default_rng(seed)

        def example(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
            if jnp.issubdtype(leaf.dtype, jnp.integer):
                return draw.integers(0, tokens, leaf.shape).astype(leaf.dtype)
            return draw.normal(size=leaf.shape).astype(leaf.dtype)

        return (*self.initial(jax.random.key(seed)), jax.tree.map(example, self.args[2]))


def training(
    loss: Callable[[Any, Any], jax.Array],
    optimizer: optax.GradientTransformation,
    init: Callable[[jax.Array], Any],
    batch: Any,
    megatron: Mapping[str, int] = MappingProxyType({}),
) -> Training:
    """The step that lowers `loss(params, batch)` with `optimizer`; `init(key)` makes the parameters."""

    def step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = init(key)
        return params, optimizer.init(params)

    return training_by(step, initial, batch, megatron)


def training_by(
    step: Callable[..., Any],
    initial: Callable[[jax.Array], tuple[Any, Any]],
    batch: Any,
    megatron: Mapping[str, int] = MappingProxyType({}),
) -> Training:
    """A step of a model's own: step(params, opt_state, batch), the first two as `initial(key)` makes them."""
    return Training(step, (*jax.eval_shape(initial, jax.random.key(0)), batch), megatron, initial)


def training_of(
    module: nn.Module,
    inputs: tuple[Any, ...],
    labels: Any,
    loss: Callable[[Any, Any], jax.Array],
    optimizer: optax.GradientTransformation | None = None,
    statistics: tuple[str, ...] = (),
) -> Training:
    """The step of a flax module: step((params, variables), opt_state, (inputs, labels)), with AdamW if nothing else.

    loss        loss(module(*inputs), (inputs, labels))
    statistics  collections of variables that a step writes, such as "batch_stats"
    """
    optimizer = optimizer or optax.adamw(1e-3)

    def step(state: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        params, variables = state

        def lost(params: Any) -> tuple[jax.Array, Any]:
            if not statistics:
                return loss(module.apply({"params": params}, *batch[0]), batch), variables
            outputs, written = module.apply({"params": params, **variables}, *batch[0], mutable=list(statistics))
            return loss(outputs, batch), written

        (value, written), gradients = jax.value_and_grad(lost, has_aux=True)(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), written), opt_state, value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        variables = module.init({"params": key}, *(jnp.zeros(x.shape, x.dtype) for x in inputs))
        params = variables.pop("params")
        return (params, variables), optimizer.init(params)

    return training_by(step, initial, (inputs, labels))


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
