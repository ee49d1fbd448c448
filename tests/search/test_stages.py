"""Does a search choose stages where they pay, and is it never worse for having been allowed to?"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.gpus import H100_CURVES, nccl_network
from tests.numerics.test_pipelines import assert_same

LAYERS, WORDS = 8, 128
SLOW = dataclasses.replace(device("h100"), name="h100 on a slow network", network=nccl_network(10e9, H100_CURVES))
SEARCH = partial(ap.AutomaticPartition, budget=ap.Budget(20), cache=False)


def step(params, x, y):
    def loss(p):
        h = p["table"][x]
        h = lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), h, p["layers"])[0]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(h @ p["table"].T), y[:, None], -1)
        return -chosen.mean()

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda a, g: a - 0.1 * g, params, gradients), value


def one_by_one(params, x, y):
    def loss(p):
        h = p["table"][x]
        for w in p["layers"]:
            h = h + jnp.tanh(h @ w["up"]) @ w["down"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(h @ p["table"].T), y[:, None], -1)
        return -chosen.mean()

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda a, g: a - 0.1 * g, params, gradients), value


def shapes(width, rows, stacked=True):
    shape = jax.ShapeDtypeStruct
    each = {"up": (width, 4 * width), "down": (4 * width, width)}
    layer = lambda *first: {name: shape((*first, *sizes), jnp.float32) for name, sizes in each.items()}  # noqa: E731
    layers = layer(LAYERS) if stacked else [layer() for _ in range(LAYERS)]
    table, ids = shape((WORDS, width), jnp.float32), shape((rows,), jnp.int32)
    return {"table": table, "layers": layers}, ids, ids


def best(fun, args, mesh, **given):
    return ap.jit(fun, mesh, [SEARCH(**given)], donate_argnums=0).lower(*args)


def programs(low):
    return [row for tactic in low.metadata.tactics for row in tactic.report.get("programs", ())]


@pytest.mark.parametrize("kind", ["h100", SLOW])
@pytest.mark.parametrize("shape", [{"pipe": 4, "data": 2}, {"data": 2, "pipe": 8}])
def test_a_search_with_stages_is_never_worse_than_without(kind, shape):
    mesh, args = ap.Mesh(shape, device=kind), shapes(512, 4096)
    for given in ({}, {"microbatch": (1, 8), "recompute": ["blocks"]}):
        without, with_ = best(step, args, mesh, **given), best(step, args, mesh, stages=True, **given)
        assert with_.estimate.step_s <= without.estimate.step_s
        assert any("ap.Pipeline" in row["program"] for row in programs(with_))


@pytest.mark.parametrize(("fun", "stacked", "gain"), [(step, True, 1.1), (one_by_one, False, 1.0)])
def test_stages_are_chosen_where_links_are_slow_and_weights_are_large(fun, stacked, gain):
    """Parameters one by one are exchanged over the slow links, which takes most of the gain."""
    mesh, args = (
        ap.Mesh({"pipe": 4, "data": 2}, device=SLOW, links={"pipe": "dcn", "data": "dcn"}),
        shapes(8192, 32768, stacked),
    )
    without, with_ = best(fun, args, mesh), best(fun, args, mesh, stages="pipe", microbatch=(1, 16))
    assert with_.estimate.step_s < without.estimate.step_s / gain
    assert "pipeline" in with_.metadata.tactics[0].report
    code: dict = {}
    exec(with_.metadata.as_schedule(), {"ap": ap}, code)
    for again in (with_.plan, code["schedule"]):
        low = ap.jit(fun, mesh, again, donate_argnums=0).lower(*args)
        assert low.estimate.step_s == pytest.approx(with_.estimate.step_s, rel=1e-6)


def test_what_is_found_with_stages_computes_the_same():
    mesh = ap.Mesh({"pipe": 4, "data": 2}, device=SLOW, links={"pipe": "dcn", "data": "dcn"})
    rng = np.random.default_rng(0)

    def drawn(s):
        ids = s.dtype == jnp.int32
        return rng.integers(0, WORDS, s.shape) if ids else 0.1 * rng.normal(size=s.shape).astype("f4")

    args = jax.tree.map(drawn, shapes(16, 64))
    low = ap.jit(step, mesh, [SEARCH(stages="pipe", microbatch=(4,))]).lower(*args)
    assert_same(low.compile()(*args), step(*args))


def test_a_sweep_has_as_many_stages_as_each_mesh_has_devices_on_the_axis():
    swept = ap.sweep(
        step, shapes(512, 4096), devices=8, device="h100", axes=("pipe", "data"),
        schedule=[ap.Pipeline("pipe", 8, {"x": 0, "y": 0}, "1f1b")], budget=ap.Budget(4), cache=False,
    )  # fmt: skip
    assert [row.mesh.shape["pipe"] for row in swept.rows] == [8, 4, 2, 1]
    assert not any(row.error for row in swept.rows)
    by_hand = ap.jit(
        step, ap.Mesh({"pipe": 2, "data": 4}, device="h100"), [ap.Pipeline("pipe", 8, {"x": 0, "y": 0}, "1f1b")]
    )
    assert swept.rows[2].step_s <= by_hand.lower(*shapes(512, 4096)).estimate.step_s


def test_named_schedules_see_parameters_that_are_stacked_for_stages():
    mesh = ap.Mesh({"pipe": 2, "data": 2, "model": 2}, device="h100")
    tactics = [ap.Pipeline("pipe", 4, {"x": 0, "y": 0}), ap.Parallelism("DP(data)+Megatron(model)")]
    specs = ap.jit(one_by_one, mesh, tactics).lower(*shapes(512, 4096, stacked=False)).metadata.in_specs
    assert "model" in specs["params/layers/3/up"][1]
    assert "model" in specs["params/layers/3/down"][0]
