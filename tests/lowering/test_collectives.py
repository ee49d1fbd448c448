"""Does each situation give the collectives it should, where it should, and no more?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify

MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
RNG = np.random.default_rng(0)


def array(*shape):
    return (RNG.normal(size=shape) / np.sqrt(shape[-1])).astype("f4")


X, W1, W2 = array(8, 16), array(16, 32), array(32, 16)


def run(fun, schedule, *args, mesh=MESH, **jit_options):
    """Counts of collectives after the schedule; the numbers are checked on the way."""
    step = ap.jit(fun, mesh, schedule, **jit_options)
    low = step.lower(*args)
    verify(low.program)
    low.exported.operation.verify()
    whole = jax.jit(fun)(*args)
    parts = step(*jax.tree.map(jnp.array, args))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return dict(+low.program.collectives()), low


def test_contracting_dim_tiled_on_both_sides_gives_one_all_reduce():
    count, _ = run(lambda x, w1, w2: x @ w1 @ w2, [BP, ap.ManualPartition({"w1": 1}, axis="model")], X, W1, W2)
    assert count == {"all_reduce": 1}


def test_sum_that_is_sliced_gives_a_reduce_scatter():
    out = ap.ManualPartition({"outputs": 1}, axis="model")
    count, _ = run(lambda x, w1, w2: x @ w1 @ w2, [BP, ap.ManualPartition({"w1": 1}, axis="model"), out], X, W1, W2)
    assert count == {"reduce_scatter": 1}


def test_sum_that_is_sliced_on_two_dims_is_scattered_once_and_exchanged():
    def fun(x, w):
        product = x @ w
        return jnp.tanh(product), jnp.exp(product), jnp.sin(product)

    tiles = [{"x": 1}, {"outputs/0": 1, "outputs/1": 0, "outputs/2": 0}]
    count, low = run(fun, [ap.ManualPartition(own, axis="model") for own in tiles], X, W1)
    assert count == {"reduce_scatter": 1, "all_to_all": 1}
    assert 'reduce_scatter [{"model"}, {}]' in low.as_text("hlo")


def test_sum_that_is_read_whole_and_sliced_is_reduced_whole():
    def fun(x, w):
        product = x @ w
        return jnp.tanh(product), jnp.exp(product)

    tiles = [{"x": 1}, {"outputs/0": 1, "outputs/1": ap.REPLICATED}]
    assert run(fun, [ap.ManualPartition(own, axis="model") for own in tiles], X, W1)[0] == {"all_reduce": 1}


def test_tiling_that_moves_to_another_dim_gives_an_all_to_all():
    tiles = [ap.ManualPartition({"x": 0, "outputs": 1}, axis="batch")]
    count, _ = run(lambda x: jnp.sort(jnp.sort(x, axis=1), axis=0), tiles, X)
    assert count == {"all_to_all": 1}


def test_two_pending_sums_are_added_first_and_reduced_once():
    def fun(x, y, w, v):
        return x @ w + y @ v

    tiles = ap.ManualPartition({"w": 0, "v": 0}, axis="model")
    assert run(fun, [tiles], X, X, W1, W1)[0] == {"all_reduce": 1}


def test_pending_sum_with_another_use_is_reduced_by_itself():
    def fun(x, w):
        s = x @ w
        return s + x @ w[::-1], jnp.tanh(s)

    assert run(fun, [ap.ManualPartition({"x": 1}, axis="model")], X, W1)[0]["all_reduce"] == 2


def test_max_over_a_tiled_dim_is_one_all_reduce():
    count, low = run(lambda x: jnp.max(x, axis=0), [BP], X)
    assert count == {"all_reduce": 1}
    assert "max" in low.as_text("hlo")


def test_both_axes_of_one_sum_are_reduced_together():
    both = ap.ManualPartition({"x": 0}, axis=("batch", "model"))
    count, low = run(lambda x: jnp.sum(x, axis=0), [both], X)
    assert count == {"all_reduce": 1}
    assert low.program.collectives_by_axis() == {"batch,model": {"all_reduce": 1}}


def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def sgd(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


PARAMS = [array(16, 16) for _ in range(3)]
Z3 = ap.ManualPartition({"params": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="Z3")


def test_batch_parallelism_reduces_each_gradient_and_the_loss():
    assert run(sgd, [BP], PARAMS, X, donate_argnums=0)[0] == {"all_reduce": 4}


def test_fsdp_gathers_for_forward_and_backward_and_scatters_gradients():
    count, low = run(sgd, [BP, Z3], PARAMS, X, donate_argnums=0)
    assert count == {"all_gather": 5, "reduce_scatter": 3, "all_reduce": 1}  # the first matrix needs no backward gather
    text = low.as_text("stablehlo")
    assert "optimization_barrier" not in text
    gathers = [line for line in text.splitlines() if "stablehlo.all_gather" in line]
    assert len({line.split("replica_groups = ")[1].split(">")[0] for line in gathers}) == 2


def test_a_second_gather_over_all_devices_stands_behind_a_barrier():
    mesh = ap.Mesh({"batch": 8})
    count, low = run(sgd, [BP, Z3], PARAMS, X, donate_argnums=0, mesh=mesh)
    assert count["all_gather"] == 5
    assert low.as_text("stablehlo").count("optimization_barrier") == 2


def test_equal_gathers_with_groups_in_two_orders_both_run():
    _, low = run(sgd, [BP, Z3], PARAMS, X, donate_argnums=0)
    assert low.compile().as_text().count(" all-gather(") == 5


def test_gathers_of_near_uses_are_shared_when_asked():
    sharing = ap.LoweringOptions(share_within=10_000)
    count, _ = run(sgd, [BP, Z3], PARAMS, X, donate_argnums=0, options=sharing)
    assert count["all_gather"] == 3
    count, _ = run(sgd, [BP, Z3, ap.SharedGathers(10_000)], PARAMS, X, donate_argnums=0)
    assert count["all_gather"] == 3


def test_two_uses_in_one_op_share_a_gather():
    count, _ = run(
        lambda w: jnp.sort(w, axis=0) @ jnp.sort(w, axis=0), [ap.ManualPartition({"w": 0}, axis="batch")], W1[:, :16]
    )
    assert count["all_gather"] <= 2


def scanned(params, x):
    def layer(x, w):
        return jnp.tanh(x @ w), None

    return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)


def scanned_sgd(params, x):
    value, grads = jax.value_and_grad(scanned)(params, x)
    return params - 0.1 * grads, value


STACKED = array(6, 16, 16)


def test_scanned_weights_are_gathered_layer_by_layer_inside_the_loop():
    z3 = ap.ManualPartition({"params": 1}, axis="batch", name="Z3")
    count, low = run(scanned_sgd, [BP, z3], STACKED, X, donate_argnums=0)
    assert count["all_gather"] == 12
    body = low.as_text("hlo").split("body {")[1]
    assert "all_gather" in body.split("yield")[0]


def test_loop_invariant_weight_is_gathered_before_the_loop():
    def fun(w, x):
        return jax.lax.fori_loop(0, 5, lambda _, x: jnp.tanh(x @ w), x)

    count, low = run(fun, [BP, ap.ManualPartition({"w": 0}, axis="batch")], array(16, 16), X)
    assert count == {"all_gather": 1}
    text = low.as_text("hlo")
    assert text.index("all_gather") < text.index("while")


def test_collective_in_a_loop_counts_as_often_as_it_runs():
    def fun(w1, w2, x):
        return jax.lax.fori_loop(0, 5, lambda _, x: x @ w1 @ w2, x)

    assert run(fun, [ap.ManualPartition({"w1": 1}, axis="model")], W1, W2, X)[0] == {"all_reduce": 5}


def test_nested_loops_multiply():
    def fun(w1, w2, x):
        def inner(_, x):
            return x @ w1 @ w2

        return jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.fori_loop(0, 4, inner, x), x)

    assert run(fun, [ap.ManualPartition({"w1": 1}, axis="model")], W1, W2 * 0.1, X)[0] == {"all_reduce": 12}


def test_branches_agree_on_the_layout_of_their_result():
    def fun(x, w):
        return jax.lax.cond(jnp.sum(x) > 0, lambda: jnp.tanh(x), lambda: jnp.sort(x, axis=0)) @ w

    count, low = run(fun, [BP], X, W1)
    assert low.metadata.out_specs["outputs"] == (("batch",),)
    assert count["all_reduce"] == 1


def test_vocabulary_sharded_embedding_is_a_sum():
    def fun(table, tokens):
        return jnp.tanh(table[tokens])

    table, tokens = array(64, 16), RNG.integers(0, 64, (8, 5))
    count, _ = run(fun, [ap.ManualPartition({"table": 0}, axis="model")], table, tokens)
    assert count == {"all_reduce": 1}


def test_segment_sum_over_tiled_edges_is_one_all_reduce():
    def fun(edges, receivers):
        return jnp.tanh(jax.ops.segment_sum(edges, receivers, num_segments=6))

    tiles = ap.ManualPartition({"edges": 0}, axis="batch")
    assert run(fun, [tiles], array(16, 8), RNG.integers(0, 6, 16))[0] == {"all_reduce": 1}


def test_kv_cache_tiled_by_heads_needs_no_collective_to_update():
    def fun(cache, new, index):
        return jax.lax.dynamic_update_slice(cache, new, (0, index, 0, 0))

    tiles = ap.ManualPartition({"cache": 2}, axis="model")
    count, low = run(fun, [tiles], array(2, 8, 4, 3), array(2, 1, 4, 3), 3, donate_argnums=0)
    assert count == {}
    assert low.metadata.in_specs["new"] == ((), (), ("model",))


def test_random_numbers_are_made_in_tiles():
    def fun(x, key):
        return x + jax.random.normal(key, x.shape)

    count, low = run(fun, [BP], X, jax.random.key_data(jax.random.key(0)))
    assert count == {}
    assert "tensor<8x16xf32>" not in low.as_text("stablehlo")


@pytest.mark.parametrize("axes", [{"a": 3}, {"a": 6, "b": 2}])
def test_axes_that_are_no_power_of_two(axes):
    mesh = ap.Mesh(axes)
    args = (array(12, 6), array(6, 18), array(18, 6))
    schedule = [ap.ManualPartition({"x": 0}, axis="a")]
    if "b" in axes:
        schedule.append(ap.ManualPartition({"w1": 1}, axis="b"))
    if mesh.size <= len(jax.devices()):
        assert run(lambda x, w1, w2: x @ w1 @ w2, schedule, *args, mesh=mesh)[0] == {}
    else:
        low = ap.jit(lambda x, w1, w2: x @ w1 @ w2, mesh, schedule).lower(*args)
        assert dict(+low.program.collectives()) == {"all_reduce": 1}
