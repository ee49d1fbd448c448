"""Does a program that cannot be staged say what stands in the way, and where?"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from tests.numerics.test_pipelines import DATA, KEY, LAYERS, PARAMS, loss, plain, sgd

MESH = ap.Mesh({"pipe": 4})


def mlp(h, w):
    return h + jnp.tanh(h @ w["up"]) @ w["down"]


def unlike(p, data, key):
    """No two layers are of one width."""
    h = p["table"][data["x"]]
    for n in range(LAYERS):
        h = mlp(h, {"up": p["layers"]["up"][n, :, : n + 1], "down": p["layers"]["down"][n, : n + 1]})
    return h


def handed_on(p, data, key):
    """A running mean of gradients, from microbatch to microbatch."""
    parts = jax.tree.map(lambda a: a.reshape(8, 2, -1), data)

    def one(mean, part):
        gradients = jax.grad(partial(loss, plain))(p, part, None)
        return jax.tree.map(lambda m, g: 0.9 * m + g, mean, gradients), None

    return lax.scan(one, jax.tree.map(jnp.zeros_like, p), parts)[0]


def clipped(p, data, key):
    """Each microbatch's gradients are as long as its own norm allows."""
    parts = jax.tree.map(lambda a: a.reshape(8, 2, -1), data)

    def one(total, part):
        gradients = jax.grad(partial(loss, plain))(p, part, None)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        return jax.tree.map(lambda t, g: t + g / jnp.maximum(norm, 1), total, gradients), None

    return lax.scan(one, jax.tree.map(jnp.zeros_like, p), parts)[0]


def accumulated(p, data, key):
    """A loop over microbatches of its own."""
    parts = jax.tree.map(lambda a: a.reshape(-1, 4, *a.shape[1:]).swapaxes(0, 1), data)

    def one(total, part):
        return jax.tree.map(jnp.add, total, jax.grad(partial(loss, plain))(p, part, None)), None

    return lax.scan(one, jax.tree.map(jnp.zeros_like, p), parts)[0]


def differentiated(p, data, key):
    """The gradient of a loop over microbatches."""
    parts = jax.tree.map(lambda a: a.reshape(8, 2, -1), data)
    return jax.grad(lambda p: lax.scan(lambda t, part: (t + loss(plain, p, part, key), None), 0.0, parts)[0])(p)


def fed_back(p, data, key):
    """Layers read the loss of the microbatch before."""
    parts = jax.tree.map(lambda a: a.reshape(8, 2, -1), data)

    def one(carry, part):
        before, total = carry
        scaled = p | {"table": p["table"] * (1 + before)}
        value, gradients = jax.value_and_grad(partial(loss, plain))(scaled, part, None)
        return (value, jax.tree.map(jnp.add, total, gradients)), None

    return lax.scan(one, (0.0, jax.tree.map(jnp.zeros_like, p)), parts)[0]


def equal(p, data, key):
    """All layers are one."""
    w = {"up": p["layers"]["up"][0], "down": p["layers"]["down"][0]}
    return lax.scan(lambda h, _: (mlp(h, w), None), p["table"][data["x"]], None, length=LAYERS)[0]


def whole_batch(p, data, key):
    """The mean over the batch in the middle of a layer."""
    h, _ = lax.scan(lambda h, w: (mlp(h - h.mean(0), w), None), p["table"][data["x"]], p["layers"])
    return h


STEP = partial(sgd, plain)
WRONG = {
    "no equal layers": (partial(sgd, unlike), {}, "has no equal layers"),
    "no gradient": (plain, {}, "no loop over the same layers, from the last to the first"),
    "no microbatches": (STEP, {"microbatches": None}, "is in no loop over microbatches"),
    "more than a sum": (handed_on, {"microbatches": None}, "is handed from microbatch to microbatch, and is no sum"),
    "a norm": (clipped, {"microbatches": None}, "reads one microbatch's gradients of all layers"),
    "gradient outside": (differentiated, {"microbatches": None}, "loop over microbatches is differentiated as a whole"),
    "fed back": (fed_back, {"microbatches": None}, "layers read what the layers leave of the microbatch before"),
    "shared": (partial(sgd, equal), {}, "no layer has parameters of its own"),
    "runs": (STEP, {"schedule": "circular", "repeats": 4}, "8 layers are fewer than 16 runs"),
    "groups": (STEP, {"schedule": "circular", "microbatches": 2}, "2 microbatches are no groups of 4"),
    "two loops": (accumulated, {}, "the step has a loop over 4 microbatches already"),
    "rows": (STEP, {"microbatches": 3}, "into 3 microbatches"),
    "whole batch": (partial(sgd, whole_batch), {}, r'Pipeline "Pipeline" \([\s\S]*try  compute it for each microbatch'),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_staged_is_said(name):
    step, given, says = WRONG[name]
    pipeline = ap.Pipeline("pipe", **({"microbatches": 8, "inputs": {"data/*": 0}} | given))
    with pytest.raises(ap.PartitionError, match=says) as error:
        ap.jit(step, MESH, [pipeline]).lower(PARAMS, DATA, KEY)
    assert "tactic 1 of 1" in str(error.value)


def test_repeats_go_with_the_circular_schedule():
    with pytest.raises(ap.ArgumentError, match="in which each device has several runs"):
        ap.Pipeline("pipe", 4, repeats=2)


def test_a_search_cannot_have_a_pipeline_as_its_seed():
    program = ap.jit(STEP, MESH).lower(PARAMS, DATA, KEY).traced.program
    with pytest.raises(ap.ArgumentError, match=r"ap\.Pipeline cannot stand in seed 1"):
        ap.Pipeline("pipe", 4).act(Partitioning(program, MESH), ap.TacticContext(schedule="seed 1"))
