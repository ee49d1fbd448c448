"""Compiles the kernels ahead of time, for an image or for workers that share a disk.

RUN python -m autopart warmup        what each container of the image would otherwise compile for itself
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

from autopart.api.jitted.jit import jit
from autopart.api.tactics.automatic import AutomaticPartition
from autopart.core.mesh import Mesh
from autopart.search.budget import Budget

DEVICES = ("tpu_v3", "h100")
"""One of each kind: the kernels that price a torus, and those that price a switch."""


def warmup() -> float:
    """Compiles all kernels that estimates and searches run, and keeps them on disk; returns the seconds that it took.

    What is compiled already is loaded: then it takes about a second. Kernels are kept beside the installed package, or
    in $NUMBA_CACHE_DIR. `ap.ILP` compiles its solver's kernels when it is first used.
    """
    start = time.perf_counter()
    weights = {"up": jax.ShapeDtypeStruct((4, 256, 512), jnp.float32)}
    rows = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    for device in DEVICES:
        auto = AutomaticPartition(["data", "model"], budget=Budget(20), cache=False, progress=False)
        step = jit(_step, Mesh({"data": 2, "model": 2}, device=device), [auto], donate_argnums=(0,))
        _ = step.lower(weights, rows).estimate
    return time.perf_counter() - start


def _step(weights: dict[str, jax.Array], rows: jax.Array) -> dict[str, jax.Array]:
    """A step of training through a loop over layers; a product of rows with rows is in conflict once they are tiled."""

    def loss(weights: dict[str, jax.Array]) -> jax.Array:
        def layer(x: jax.Array, up: jax.Array) -> tuple[jax.Array, None]:
            return x + jax.nn.relu(x @ up) @ up.T, None

        last = jax.lax.scan(layer, rows, weights["up"])[0]
        hidden = rows @ weights["up"][0]
        return jnp.mean(last**2) + jnp.mean(jnp.tanh(hidden @ hidden.T))

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))
