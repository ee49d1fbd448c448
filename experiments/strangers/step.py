"""One step of a released model, and the table in which all stand: name -> what builds the step.

@released("mctx-gumbel-muzero", needs="mctx")
def gumbel_muzero() -> Step: ...          imports its package inside, so that the table needs none of them
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.strangers import models


@dataclass(frozen=True)
class Step:
    """A function and the shapes of its arguments.

    donated  numbers of the arguments that the function updates
    batch    name of an argument -> the dim of all its arrays that data parallelism tiles; empty where none has one
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    batch: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Stranger:
    """A row of the table: what builds the step, and the modules that must be there."""

    name: str
    needs: tuple[str, ...]
    build: Callable[[], Step]

    def missing(self) -> list[str]:
        """The modules that are not installed."""
        return [module for module in self.needs if not _is_here(module)]


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


STRANGERS: dict[str, Stranger] = {}


def released(name: str, needs: str) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Adds a row. `needs` are modules, with spaces between them. Raises `ValueError` for a name that is taken."""

    def added(build: Callable[[], Step]) -> Callable[[], Step]:
        if name in STRANGERS:
            raise ValueError(f"{name!r} is taken by {STRANGERS[name].build}")
        STRANGERS[name] = Stranger(name, tuple(needs.split()), build)
        return build

    return added


def table() -> dict[str, Stranger]:
    """All rows, of all files in `models/`."""
    for module in pkgutil.iter_modules(models.__path__, f"{models.__name__}."):
        importlib.import_module(module.name)
    return STRANGERS


def trained(
    loss: Callable[..., Any],
    params: Any,
    batch: Mapping[str, Any],
    optimizer: optax.GradientTransformation | None = None,
) -> Step:
    """A step of AdamW, if nothing else is given, around `loss(params, batch, key)`."""
    optimizer = optimizer or optax.adamw(1e-4)

    def step(params: Any, opt_state: Any, batch: Any, key: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, batch, key)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return Step(step, (params, jax.eval_shape(optimizer.init, params), dict(batch), KEY), (0, 1), {"batch": 0})


def trained_with_state(
    loss: Callable[..., tuple[Any, Any]],
    params: Any,
    state: Any,
    batch: Mapping[str, Any],
    optimizer: optax.GradientTransformation | None = None,
) -> Step:
    """The same around `loss(params, state, batch, key) -> (value, next state)`: running means beside parameters."""
    optimizer = optimizer or optax.sgd(0.1, momentum=0.9)

    def step(params: Any, state: Any, opt_state: Any, batch: Any, key: jax.Array) -> Any:
        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, batch, key)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), state, opt_state, value

    opt_state = jax.eval_shape(optimizer.init, params)
    return Step(step, (params, state, opt_state, dict(batch), KEY), (0, 1, 2), {"batch": 0})


KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    """An abstract array of numbers."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    """An abstract array of tokens or classes."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
