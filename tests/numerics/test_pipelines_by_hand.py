"""Pipelines that people write by hand, as a shift loop over a stage dim: do they run divided, without a gather?

gpipe        forwards of all microbatches, then what autodiff makes of them
one_f_one_b  a backward as soon as it can be, in three loops: fill, steady, drain
circular     each stage has several runs of layers, whose parameters are stored as [runs, stages, layers, ...]
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from tests.prompt import slow

STAGES, LAYERS, REPEATS, WIDTH, WORDS, MICROBATCHES, BATCH = 4, 8, 2, 32, 64, 8, 16


def layer(w, h):
    return h + jnp.tanh(h @ w["up"]) @ w["down"]


def stage(w, h):
    return lax.scan(lambda h, w: (layer(w, h), None), h, w)[0]


def head_loss(head, h, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(h @ head), y[:, None], -1).sum()


def sequential(params, x, y):
    def loss(p):
        return head_loss(p["head"], stage(p["layers"], p["emb"][x]), y) / x.shape[0]

    return jax.value_and_grad(loss)(params)


def staged(w):
    return jax.tree.map(lambda a: a.reshape(STAGES, LAYERS // STAGES, *a.shape[1:]), w)


def gpipe(params, x, y):
    xs, ys = x.reshape(MICROBATCHES, -1), y.reshape(MICROBATCHES, -1)

    def loss(p):
        w, h0 = staged(p["layers"]), p["emb"][xs]

        def tick(state, t):
            state = jnp.roll(state, 1, 0).at[0].set(h0[jnp.minimum(t, MICROBATCHES - 1)])
            state = jax.vmap(stage)(w, state)
            return state, state[-1]

        ticks = jnp.arange(MICROBATCHES + STAGES - 1)
        _, out = lax.scan(tick, jnp.zeros((STAGES, *h0.shape[1:])), ticks)
        return jax.vmap(partial(head_loss, p["head"]))(out[STAGES - 1 :], ys).sum() / x.shape[0]

    return jax.value_and_grad(loss)(params)


def one_f_one_b(params, x, y):
    xs, ys = x.reshape(MICROBATCHES, -1), y.reshape(MICROBATCHES, -1)
    w, emb, head, slots, n = staged(params["layers"]), params["emb"], params["head"], 2 * STAGES, x.shape[0]
    width, last, s = emb.shape[1], MICROBATCHES - 1, jnp.arange(STAGES)

    def zeros(*lead):
        return jnp.zeros((*lead, xs.shape[1], width))

    def forward(c, t):
        h = jnp.roll(c["out"], 1, 0).at[0].set(emb[xs[jnp.clip(t, 0, last)]])
        kept = jax.vmap(lambda buffer, k, h: buffer.at[k].set(h))(c["kept"], (t - s) % slots, h)
        return {**c, "out": jax.vmap(stage)(w, h), "kept": kept}

    def turn(c, t):
        i = jnp.clip(t - (STAGES - 1), 0, last)
        on = ((t - (STAGES - 1) >= 0) & (t - (STAGES - 1) <= last)).astype(jnp.float32)
        value_and_grad = jax.value_and_grad(lambda head, h: head_loss(head, h, ys[i]) / n, (0, 1))
        value, (dh, dy) = value_and_grad(head, c["out"][-1])
        return {**c, "loss": c["loss"] + on * value, "d_head": c["d_head"] + on * dh, "top": on * dy}

    def backward(c, t):
        i = t - (2 * STAGES - 1 - s)
        on = (i >= 0) & (i <= last)
        d_out = jnp.roll(c["d_in"], -1, 0).at[-1].set(c["below"])
        d_out = jnp.where(on[:, None, None], d_out, 0)
        h = jax.vmap(lambda buffer, k: buffer[k])(c["kept"], i % slots)
        d_w, d_in = jax.vmap(lambda w, h, d: jax.vjp(stage, w, h)[1](d))(w, h, d_out)
        d_emb = c["d_emb"].at[xs[jnp.clip(t - (2 * STAGES - 1), 0, last)]].add(d_in[0])
        return {**c, "d_in": d_in, "d_w": jax.tree.map(jnp.add, c["d_w"], d_w), "d_emb": d_emb}

    def tick(does_forward, does_backward, c, t):
        c = {**c, "below": c["top"]}
        if does_backward:
            c = backward(c, t)
        c = turn(forward(c, t), t) if does_forward else {**c, "top": jnp.zeros_like(c["top"])}
        return c, None

    c = {
        "out": zeros(STAGES), "kept": zeros(STAGES, slots), "d_in": zeros(STAGES), "top": zeros(), "below": zeros(),
        "loss": jnp.zeros(()), "d_head": jnp.zeros_like(head), "d_emb": jnp.zeros_like(emb),
        "d_w": jax.tree.map(jnp.zeros_like, w),
    }  # fmt: skip
    steady = MICROBATCHES + STAGES - 1
    for kinds, start, end in (
        ((True, False), 0, STAGES),
        ((True, True), STAGES, steady),
        ((False, True), steady, None),
    ):
        ticks = jnp.arange(start, steady + STAGES if end is None else end)
        c, _ = lax.scan(partial(tick, *kinds), c, ticks)
    layers = jax.tree.map(lambda a: a.reshape(LAYERS, *a.shape[2:]), c["d_w"])
    return c["loss"], {"emb": c["d_emb"], "head": c["d_head"], "layers": layers}


def circular(params, x, y):
    xs, ys = x.reshape(MICROBATCHES, -1), y.reshape(MICROBATCHES, -1)
    round_ = STAGES * REPEATS

    def loss(p):
        w = jax.tree.map(lambda a: a.swapaxes(0, 1), p["layers"])
        h0, s = p["emb"][xs], jnp.arange(STAGES)

        def tick(state, t):
            group, inner = (t - s) // round_, (t - s) % round_
            r, i = inner // STAGES, group * STAGES + inner % STAGES
            rolled = jnp.roll(state, 1, 0)
            first = jnp.where((r == 0)[0], h0[jnp.clip(i[0], 0, MICROBATCHES - 1)], rolled[0])
            mine = jax.vmap(lambda a, r: jax.tree.map(lambda b: b[jnp.clip(r, 0, REPEATS - 1)], a))(w, r)
            state = jax.vmap(stage)(mine, rolled.at[0].set(first))
            return state, state[-1]

        ticks = jnp.arange(MICROBATCHES * REPEATS + STAGES - 1)
        _, out = lax.scan(tick, jnp.zeros((STAGES, *h0.shape[1:])), ticks)
        k = np.arange(MICROBATCHES)
        leaves = (k // STAGES) * round_ + (REPEATS - 1) * STAGES + k % STAGES + STAGES - 1
        return jax.vmap(partial(head_loss, p["head"]))(out[leaves], ys).sum() / x.shape[0]

    return jax.value_and_grad(loss)(params)


def arguments(width, words, batch, lead=(LAYERS,)):
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return (0.3 * rng.normal(size=shape)).astype("f4")

    layers = {"up": drawn(*lead, width, 4 * width), "down": drawn(*lead, 4 * width, width)}
    ids = [rng.integers(0, words, batch).astype("i4") for _ in range(2)]
    return {"emb": drawn(words, width), "head": drawn(width, words), "layers": layers}, *ids


RUNS = (REPEATS, STAGES, LAYERS // (REPEATS * STAGES))
CASES = [slow(gpipe, (LAYERS,), 0), (one_f_one_b, (LAYERS,), 0), slow(circular, RUNS, 1)]


@pytest.mark.parametrize(("run", "lead", "dim"), CASES)
def test_a_pipeline_by_hand_is_the_sequential_step_and_hands_over_by_permutes(run, lead, dim):
    params, x, y = arguments(WIDTH, WORDS, BATCH, lead)
    in_order = {**params, "layers": jax.tree.map(lambda a: a.reshape(LAYERS, *a.shape[len(lead) :]), params["layers"])}
    tactic = ap.ManualPartition({"params": {"layers/*": dim}}, axis="pipe")
    lowered = ap.jit(run, ap.Mesh({"pipe": STAGES, "data": 2}), [tactic]).lower(params, x, y)
    for found, expected in zip(
        jax.tree.leaves(lowered.compile()(params, x, y)), jax.tree.leaves(sequential(in_order, x, y)), strict=True
    ):
        np.testing.assert_allclose(np.reshape(found, expected.shape), expected, rtol=1e-4, atol=1e-5)
    collectives = lowered.program.collectives()
    assert collectives["all_permute"] > 0
    assert "all_gather" not in collectives


@pytest.mark.parametrize(("run", "lead", "dim"), CASES)
def test_a_device_has_a_stage_of_the_layers_and_the_head(run, lead, dim):
    abstract = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arguments(1024, 4096, 512, lead))
    tactic = ap.ManualPartition({"params": {"layers/*": dim}}, axis="pipe")
    mesh = ap.Mesh({"pipe": STAGES}, device="h100")
    staged, whole = (ap.jit(run, mesh, tactics).lower(*abstract).estimate for tactics in ([tactic], []))
    assert 1 / STAGES <= staged.compute_s / whole.compute_s < 1.5 / STAGES
