"""Small programs for cost tests, lowered without devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import autopart as ap


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def lowered(function, *args, mesh=None, schedule=(), donate=()):
    """The `Lowered` of `function` on `mesh` (default: one TPU v5e)."""
    mesh = mesh or ap.Mesh({"x": 1}, device="tpu_v5e")
    return ap.jit(function, mesh, list(schedule), donate_argnums=donate).lower(*args)


def mlp_step(params, x):
    """SGD on a linear stack: params are square matrices, donated by callers."""

    def loss(params, x):
        for w in params:
            x = x @ w
        return jnp.sum(x)

    return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params, x))
