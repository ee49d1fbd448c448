"""What the tables of mistakes share: a training step, a mesh, and short ways to lower, search and write files."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap

MESH = ap.Mesh({"data": 4, "model": 2}, device="tpu_v3")
FOLDER = Path(tempfile.mkdtemp())
OPTIMIZER = optax.adam(1e-3)


def shape(*sizes, d="float32"):
    return jax.ShapeDtypeStruct(sizes, d)


def loss(params, x):
    return jnp.tanh(x @ params["up"] @ params["down"]).sum()


def step(params, opt_state, x):
    updates, opt_state = OPTIMIZER.update(jax.grad(loss)(params, x), opt_state)
    return optax.apply_updates(params, updates), opt_state


PARAMS = {"up": shape(64, 128), "down": shape(128, 64)}
OPT = jax.eval_shape(OPTIMIZER.init, PARAMS)
ARGS = (PARAMS, OPT, shape(32, 64))
BP = ap.ManualPartition({"x": 0}, axis="data")


def tile(inputs, axis="data", **more):
    return ap.ManualPartition(inputs, axis=axis, **more)


def normalised(w, x):
    hidden = jnp.tanh(x @ w)
    return ((hidden - hidden.mean(0)) @ w).sum()


def arrays(tree):
    return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), tree)


def lower(*schedule, mesh=MESH, fun=step, args=ARGS, **options):
    return ap.jit(fun, mesh, list(schedule), **options).lower(*args)


def search(axes=None, **fields):
    return ap.AutomaticPartition(axes, **{"budget": ap.Budget(2), "cache": False, "progress": False, **fields})


@functools.cache
def low():
    return lower(BP, donate_argnums=(0, 1))


@functools.cache
def plan():
    return low().plan.save(FOLDER / "plan.json") or FOLDER / "plan.json"


def edited(**fields):
    path = FOLDER / "edited.json"
    path.write_text(json.dumps({**json.loads(plan().read_text()), **fields}))
    return path


def file(name, text):
    path = FOLDER / name
    path.write_text(text)
    return path


def called_twice(fun):
    array = jax.device_put(jnp.ones(8), NamedSharding(jax.make_mesh((4, 2), ("data", "model")), P()))
    return fun(array), fun(array)


def twice(fun):
    array = jnp.ones(8)
    return fun(array, array)
