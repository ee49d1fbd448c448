"""Does a step that its author split into microbatches divide its work, and reduce each gradient once?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.spmd.verify_local import verify

MESH = ap.Mesh({"batch": 4, "model": 2})
BATCH, WIDTH = 32, 16
BP = ap.ManualPartition({"x": 0, "y": 0}, axis="batch", name="BP")
MP = ap.ManualPartition({"params": {"up": 1}}, axis="model", name="MP")
RNG = np.random.default_rng(0)


def array(*shape):
    return jnp.asarray(RNG.normal(size=shape) / np.sqrt(shape[-1]), jnp.float32)


PARAMS = {"up": array(WIDTH, 2 * WIDTH), "down": array(2 * WIDTH, WIDTH)}
X, Y = array(BATCH, WIDTH), array(BATCH, WIDTH)


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"] - y) ** 2)


def split(value, steps):
    return value.reshape(steps, -1, WIDTH)


def scanned(steps):
    def step(params, x, y):
        def body(total, rows):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, *rows)), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        return lax.scan(body, zeros, (split(x, steps), split(y, steps)))[0]

    return step


def counted(steps):
    """The same with a `fori_loop` that takes its rows itself."""

    def step(params, x, y):
        xs, ys = split(x, steps), split(y, steps)

        def body(i, total):
            rows = [lax.dynamic_index_in_dim(v, i, keepdims=False) for v in (xs, ys)]
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, *rows))

        return lax.fori_loop(0, steps, body, jax.tree.map(jnp.zeros_like, params))

    return step


def unrolled(steps):
    def step(params, x, y):
        xs, ys = split(x, steps), split(y, steps)
        return sum_of([jax.grad(loss)(params, xs[i], ys[i]) for i in range(steps)])

    return step


def sum_of(trees):
    return jax.tree.map(lambda *leaves: sum(leaves), *trees)


def turned(steps):
    """Rows of a microbatch lie side by side only after a transpose and a conversion."""

    def step(params, x, y):
        def body(total, rows):
            rows = [r.astype(jnp.float32).T for r in rows]
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, *rows)), None

        xs, ys = (split(v, steps).transpose(0, 2, 1).astype(jnp.bfloat16) for v in (x, y))
        return lax.scan(body, jax.tree.map(jnp.zeros_like, params), (xs, ys))[0]

    return step


def lowered(step, schedule):
    low = ap.jit(step, MESH, schedule).lower(PARAMS, X, Y)
    verify(low.program)
    return low


def assert_equal(step, low):
    whole, parts = jax.jit(step)(PARAMS, X, Y), low.compile()(PARAMS, X, Y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), whole, parts)


@pytest.mark.parametrize("form", [scanned, counted, unrolled, turned])
@pytest.mark.parametrize("steps", [8, 2])
def test_work_is_divided_and_each_gradient_reduced_once(form, steps):
    step = form(steps)
    low = lowered(step, [BP])
    counts = low.program.collectives_by_axis()["batch"]
    assert counts["all_reduce"] == len(PARAMS)
    assert low.metadata.flop_divided["batch"] > 0.9
    moved, each = ("all_to_all", 1) if steps % MESH.shape["batch"] == 0 else ("all_permute", steps)
    assert set(counts) == {"all_reduce", moved}
    assert counts[moved] == 2 * each
    assert_equal(step, low)


def test_the_exchange_comes_before_the_loop():
    text = lowered(scanned(8), [BP]).as_text("hlo")
    assert text.index("all_to_all") < text.index("while") < text.index("all_reduce")


def test_model_parallelism_inside_the_microbatches_stays_as_it_is():
    step = scanned(4)
    low = lowered(step, [BP, MP])
    assert low.program.collectives_by_axis()["model"] == {"all_reduce": 4}
    assert_equal(step, low)


def test_layers_that_a_loop_reads_stay_tiled_on_their_stack():
    """No batch was split here: the slices still read the device that holds the layer."""

    def step(layers, x):
        return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, layers)[0]

    tiles = ap.ManualPartition({"layers": 0}, axis="batch")
    low = ap.jit(step, MESH, [tiles]).lower(array(8, WIDTH, WIDTH), X)
    assert low.program.collectives()["all_reduce"] == 8


def test_rows_that_something_else_reads_too_are_left_alone():
    def step(params, x, y):
        xs = split(x, 8)
        total = lax.scan(lambda h, row: (h + row, None), jnp.zeros((4, WIDTH)), xs)[0]
        return total.sum() + jnp.sort(xs, axis=0).sum()

    low = lowered(step, [ap.ManualPartition({"x": 0}, axis="batch")])
    assert not any("steps" in spec.attributes for spec in low.program.program.specs)


def test_a_recurrence_reduces_each_weight_once_after_all_of_time():
    """An LSTM over 16 steps, batch parallel: its weights' gradients are sums over time too."""
    time, rows, width = 16, 8, 4

    def total(params, x):
        def cell(state, now):
            h, c = state
            i, f, g, o = jnp.split(now @ params["in"] + h @ params["on"] + params["bias"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None

        start = jnp.zeros((rows, width)), jnp.zeros((rows, width))
        return jnp.sum(lax.scan(cell, start, x.swapaxes(0, 1))[0][0])

    params = {"in": array(width, 4 * width), "on": array(width, 4 * width), "bias": array(4 * width)}
    x, step = array(rows, time, width), jax.grad(total)
    low = ap.jit(step, MESH, [ap.ManualPartition({"x": 0}, axis="batch")]).lower(params, x)
    assert low.program.collectives() == {"all_reduce": len(params)}
    whole, parts = jax.jit(step)(params, x), low.compile()(params, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), whole, parts)
