"""Small training steps that the tests of this folder explain."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
MP = ap.ManualPartition({"params": {"up": 1}}, axis="model", name="MP")
Z3 = ap.ManualPartition({"params": ap.LARGEST_DIVISIBLE_DIM}, axis="batch", name="Z3")


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32")


PARAMS = {"up": array(256, 512), "down": array(512, 256), "odd": array(3)}
ARGS = (PARAMS, array(64, 256))


def step(params, x):
    """A perceptron's step of gradient descent."""

    def loss(p):
        hidden = ap.tag("hidden", jnp.tanh(x @ p["up"]))
        return jnp.mean((hidden @ p["down"]) ** 2) + p["odd"].sum()

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


def stacked_step(params, x):
    """The same with layers stacked on dim 0, which a scan walks along."""

    def loss(p):
        return jnp.mean(jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, p["layers"])[0] ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


SCHEDULES = {"": [], "BP": [BP], "BP+MP": [BP, MP], "BP+MP+Z3": [BP, MP, Z3]}


@functools.cache
def lowered(schedule: str, device: str | None = "tpu_v3") -> ap.Lowered:
    """The perceptron's step, partitioned by one of the schedules above."""
    mesh = ap.Mesh({"batch": 4, "model": 2}, device=device)
    return ap.jit(step, mesh, SCHEDULES[schedule], donate_argnums=0).lower(*ARGS)
