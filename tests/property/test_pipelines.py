"""Stacks of layers nobody wrote, in pipelines nobody chose: are the numbers those of the whole step?

A layer is a few random pieces: products, attention, norms, gates, sums along rows, sorts, loops, branches by number,
dropout by its key. Layers are in a scan, which may be unrolled, or one by one. Each may add a loss of
its own. Before and behind them there may be one more product, a norm, weights that both ends share, or what they read
of their microbatch. Stages, microbatches, schedule, and what else is tiled are random too.
"""

from __future__ import annotations

import gc
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autopart as ap

WIDTH, LENGTH = 8, 4
LEAST = 20
"""Stacks by default; with more property cases a twentieth of them."""


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        cases = metafunc.config.getoption("--property-cases") // 20
        metafunc.parametrize("number", range(max(LEAST, cases)))


def product(h, w, given):
    return h + jnp.tanh(h @ w["square"])


def wide(h, w, given):
    return h + jax.nn.gelu(h @ w["up"]) @ w["down"]


def normed(h, w, given):
    return h * lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-2) * (1 + w["scale"])


def attended(h, w, given):
    scores = jnp.einsum("btd,bsd->bts", h @ w["square"], h) / np.sqrt(WIDTH)
    return h + jax.nn.softmax(jnp.where(given["mask"], scores, -1e9), -1) @ h


def summed(h, w, given):
    return h + 0.1 * jnp.cumsum(h, 1)


def ordered(h, w, given):
    return h + 0.1 * jnp.sort(h, -1)


def best(h, w, given):
    values, places = lax.top_k(h, 2)
    return h + 0.1 * values.sum(-1, keepdims=True) * w["square"][places].mean(-2)


def looped(h, w, given):
    def inner(c, row):
        c = jnp.tanh(c + row @ w["square"])
        return c, c

    _, seen = lax.scan(inner, jnp.zeros((h.shape[0], WIDTH)), h.swapaxes(0, 1))
    return h + seen.swapaxes(0, 1)


def numbered(h, w, given):
    return lax.cond(given["number"] % 2 == 0, lambda h: h + 0.1 * jnp.flip(h, 1), lambda h: h * 0.9, h)


def dropped(h, w, given):
    return jnp.where(jax.random.bernoulli(given["key"], 0.8, h.shape), h, 0)


def shifted(h, w, given):
    return h + 0.1 * jnp.roll(h, 1, 1) + 0.1 * given["bias"]


def experts(h, w, given):
    gates = jax.nn.softmax(h @ w["up"][:, :4])
    best, index = lax.top_k(gates, 2)
    each = jnp.einsum("btd,edf->btef", normed(h, w, given), w["down"].reshape(4, 4, WIDTH)[:, :1] * w["square"])
    return h + jnp.einsum("btkf,btk->btf", jnp.take_along_axis(each, index[..., None], 2), best)


PIECES = (product, wide, normed, attended, summed, ordered, best, looped, numbered, dropped, shifted, experts)


def stack_of(rng):
    """(step, parameters, data, layers) of a random stack."""
    layers, batch = int(rng.choice([4, 8])), 8
    pieces = [PIECES[n] for n in rng.integers(0, len(PIECES), rng.integers(1, 4))]
    checkpoint, own_mask, projects, one_by_one, adds_losses, is_tied, ends = rng.integers(0, 2, 7).tolist()
    unroll = [1, 2, layers // 2, True][rng.integers(0, 4)]

    def drawn(*shape):
        return (0.3 * rng.normal(size=shape)).astype("f4")

    params = {
        "first": drawn(WIDTH, WIDTH),
        "last": drawn(WIDTH, WIDTH),
        "layers": {
            "square": drawn(layers, WIDTH, WIDTH),
            "up": drawn(layers, WIDTH, 16),
            "down": drawn(layers, 16, WIDTH),
            "scale": drawn(layers, WIDTH),
        },
    }
    data = {"x": drawn(batch, LENGTH, WIDTH), "y": drawn(batch, LENGTH, WIDTH)}

    def layer(mask, bias, h, each):
        w, number, key = each
        for piece in (product, *pieces):
            h = piece(h, w, {"mask": mask, "bias": bias, "number": number, "key": key})
        return h, jnp.mean(jax.nn.softmax(h @ w["up"][:, :4]) ** 2) if adds_losses else None

    def step(params, data):
        def loss(p):
            h = jnp.tanh(data["x"] @ p["first"]) if projects else data["x"]
            mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
            mask = mask & (data["x"][:, None, :, 0] > -0.2) if own_mask else mask
            body = partial(layer, mask, p["first"][0])
            each = p["layers"], jnp.arange(layers), jax.random.split(jax.random.key(1), layers)
            body = jax.checkpoint(body) if checkpoint else body
            if one_by_one:
                losses = []
                for number in range(layers):
                    h, added = body(h, jax.tree.map(lambda a, number=number: a[number], each))
                    losses.append(added)
            else:
                h, losses = lax.scan(body, h, each, unroll=unroll)
            h = normed(h, {"scale": p["last"][0]}, {}) if ends else h
            own = sum(losses[n] for n in range(layers)) / layers if adds_losses else 0
            return jnp.mean((h @ (p["first"].T if is_tied else p["last"]) - data["y"]) ** 2) + own

        return jax.value_and_grad(loss)(params)

    return step, params, data, layers


def test_a_random_stack_in_a_random_pipeline_keeps_the_numbers(number):
    if number % 25 == 24:  # XLA:CPU crashes in a process that keeps some hundreds of programs
        jax.clear_caches()
        gc.collect()
    rng = np.random.default_rng([number, 11])
    step, params, data, layers = stack_of(rng)
    schedule, stages = str(rng.choice(["gpipe", "1f1b", "circular"])), int(rng.choice([2, 4]))
    repeats = layers // stages if schedule == "circular" else None
    microbatches = stages * int(rng.integers(1, 3)) if schedule == "circular" else int(rng.choice([2, 4, 8]))
    mesh = ap.Mesh({"pipe": stages, "data": 2})
    tactics = [
        ap.Pipeline("pipe", min(microbatches, 8), {"data/*": 0}, schedule, repeats),
        ap.ManualPartition({"data/*": int(rng.integers(0, 2))}, axis="data"),
        ap.ManualPartition({"params": ap.LARGEST_DIVISIBLE_DIM}, axis="data"),
    ][: rng.integers(1, 4)]
    found, expected = ap.jit(step, mesh, tactics)(params, data), jax.jit(step)(params, data)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * float(np.abs(b).max()) + 1e-6)
