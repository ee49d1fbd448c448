"""A multilayer perceptron in plain jax, for packages that bring losses, solvers and optimizers, and no networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax

from experiments.strangers.step import f32


def layers(*widths: int) -> list[dict[str, Any]]:
    """Shapes of the parameters."""
    return [{"w": f32(a, b), "b": f32(b)} for a, b in itertools.pairwise(widths)]


def mlp(params: Any, x: jax.Array, activation: Callable[[jax.Array], jax.Array] = jax.nn.relu) -> jax.Array:
    """Its outputs; all layers but the last are activated."""
    for layer in params[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]
