"""What do loops carry in which layout, what is copied where they begin and end, and what begins as it is allocated?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.cost.programs import copies_s, f32, nodes_of, simulated
from tests.cost.test_operand_copies import assigned

LAYERS, BATCH, TIME, HEAD = 4, 64, 1024, 128


def decoded(attend):
    """A step that writes one row to each layer's cache, then reads the layer with `attend`."""

    def step(w, cache, x, at):
        def body(carry, wi):
            (x, cache), (w, i) = carry, wi
            cache = lax.dynamic_update_slice(cache, (x @ w)[None, :, None], (i, 0, at, 0))
            return (attend(x, lax.dynamic_index_in_dim(cache, i, 0, False)), cache), None

        (x, cache), _ = lax.scan(body, (x, cache), (w, jnp.arange(LAYERS)))
        return x, cache

    args = f32(LAYERS, HEAD, HEAD), f32(LAYERS, BATCH, TIME, HEAD), f32(BATCH, HEAD), jax.ShapeDtypeStruct((), "i4")
    return simulated(step, *args, device="tpu_v5e", donate=(1,))


def attended(x, layer):
    weights = jnp.tanh(jnp.einsum("bgh,bth->bgt", jnp.stack([x, 2 * x], 1), layer))
    return jnp.einsum("bgt,bth->bgh", weights, layer).sum(1)


def carried(run):
    """Of the cache: layouts inside tiles as the loop carries it."""
    program = run.local.program
    (inside,) = [
        value
        for op in range(program.op_count)
        if program.spec(op).kind == "carry" and program.value_rank[value := program.results_of(op)[0]] == 4
    ]
    layout = int(assigned(run).layout[inside])
    return layout & 15, layout >> 4 & 15


def test_a_cache_lies_in_its_loop_as_the_row_that_is_written_and_is_copied_before_and_after():
    run = decoded(attended)
    assert carried(run) == (3, 1), "rows of the batch inside tiles, as the product leaves them"
    cache_bytes, rate = 4.0 * LAYERS * BATCH * TIME * HEAD, run.links.device.hbm_bytes_per_s
    copies = [run.node_s[k] for k in nodes_of(run, "carry")]
    assert sum(copies) == pytest.approx(2 * 2 * cache_bytes / (rate * run.links.device.hbm_efficiency), rel=0.01)
    assert run.peak_bytes > 2 * cache_bytes


def test_what_a_product_reads_of_the_carry_itself_decides():
    def step(w, cache, x):
        def body(carry, at):
            x, cache = carry
            cache = lax.dynamic_update_slice_in_dim(cache, (x @ w)[:, None], at, 1)
            return (attended(x, cache), cache), None

        return lax.scan(body, (x, cache), jnp.arange(8))[0]

    args = f32(HEAD, HEAD), f32(BATCH, TIME, HEAD), f32(BATCH, HEAD)
    run = simulated(step, *args, device="tpu_v5e", donate=(1,))
    assert not nodes_of(run, "carry")
    assert run.peak_bytes < 1.5 * 4.0 * BATCH * TIME * HEAD


def test_a_product_of_one_row_each_is_a_sum_and_asks_for_nothing():
    keys = f32(16, 512, 4, 128)
    one = simulated(lambda x, k: jnp.einsum("bhd,bthd->bht", x, k), f32(16, 4, 128), keys, device="tpu_v5e")
    two = simulated(lambda x, k: jnp.einsum("bqhd,bthd->bhqt", x, k), f32(16, 8, 4, 128), keys, device="tpu_v5e")
    assert copies_s(one) == 0 < copies_s(two)


def filled(body, *, reverse=False, also=False):
    def step(x, w):
        left, ys = lax.scan(lambda x, _: (jnp.tanh(x @ w), body(x)), x, None, LAYERS, reverse=reverse)
        return (left, ys, jnp.zeros(ys.shape) + left) if also else (left, ys)

    return simulated(step, f32(TIME, HEAD), f32(HEAD, HEAD), device="tpu_v5e")


@pytest.mark.parametrize(
    ("kept", "is_written"),
    [({}, False), ({"reverse": True}, True), ({"also": True}, True)],
    ids=["from the first on", "from the last on", "zeros that others read"],
)
def test_a_stack_that_a_loop_fills_begins_as_it_is_allocated(kept, is_written):
    stack_bytes = 4.0 * LAYERS * TIME * HEAD
    run = filled(lambda x: x * 2, **kept)
    zeros = [k for k in nodes_of(run, "broadcast_in_dim") if run.graph.nodes["written"][k] == stack_bytes]
    assert bool(zeros) == is_written
    assert np.isfinite(run.step_s)


def test_parameters_that_loops_learn_stay_as_they_are_given():
    """Products write gradients in the order of what they update, in a loop within a loop too."""

    def learned(w, x):
        g = jax.grad(lambda w: (jnp.tanh(x @ w[0]) @ w[1]).sum())(w)
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

    def step(w, xs):
        def epoch(w, _):
            return lax.scan(lambda w, x: (learned(w, x), None), w, xs)[0], None

        return lax.scan(epoch, w, None, 2)[0]

    args = (f32(TIME, 4 * TIME), f32(4 * TIME, TIME)), f32(LAYERS, 8 * TIME, TIME)
    assert not nodes_of(simulated(step, *args, device="tpu_v3", donate=(0,)), "carry")
