"""Is `ap.reshard` a drop-in for `jax.device_put` between shardings of one mesh?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.spmd.redistribution import AlphaBeta

CUBE = Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("x", "y", "z"))
SHAPE = (8, 8, 8)


def on(spec: P, mesh: Mesh = CUBE) -> NamedSharding:
    return NamedSharding(mesh, spec)


def array(spec: P, shape=SHAPE, mesh: Mesh = CUBE) -> jax.Array:
    return jax.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), on(spec, mesh))


def assert_equal_shards(ours: jax.Array, theirs: jax.Array) -> None:
    assert ours.sharding.is_equivalent_to(theirs.sharding, theirs.ndim)
    for mine, other in zip(ours.addressable_shards, theirs.addressable_shards, strict=True):
        assert (mine.device, mine.index) == (other.device, other.index)
        assert np.array_equal(mine.data, other.data)


PAIRS = [
    (P("x"), P(None, "x")),
    (P(("x", "y"), "z"), P("z", ("y", "x"))),
    (P("x", "y", "z"), P("y", "z", "x")),
    (P(("x", "y", "z")), P()),
    (P(), P(None, ("z", "x"))),
    (P(None, ("y", "x")), P(("x", "z"), None, "y")),
    (P("x"), P("x")),
    (P("x"), P("x", None, None)),
]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_every_shard_is_what_device_put_gives(before, after):
    x = array(before)
    assert_equal_shards(ap.reshard(x, on(after)), jax.device_put(x, on(after)))


def test_inside_jit_the_source_is_named():
    before, after = on(P(("x", "y"), "z")), on(P("z", ("y", "x")))
    x = array(before.spec)
    y = jax.jit(lambda x: ap.reshard(x * 2, after, source=before) + 1)(x)
    assert_equal_shards(y, jax.device_put(np.asarray(x) * 2 + 1, after))


def test_inside_jit_without_a_source_the_error_says_how():
    with pytest.raises(ap.CallError, match="source=NamedSharding"):
        jax.jit(lambda x: ap.reshard(x, on(P("y"))))(array(P("x")))


def test_on_a_mesh_with_explicit_axes_the_source_is_known_inside_jit():
    explicit = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    x = jax.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), NamedSharding(explicit, P("a", "b")))
    with jax.set_mesh(explicit):
        y = jax.jit(lambda x: ap.reshard(x, NamedSharding(explicit, P("b", "a"))))(x)
    assert_equal_shards(y, jax.device_put(x, NamedSharding(explicit, P("b", "a"))))


def test_pytrees_take_one_sharding_or_one_for_each():
    tree = {"a": array(P("x")), "b": [array(P("y")), array(P(None, "z"))]}
    same = ap.reshard(tree, on(P(None, None, "x")))
    for ours, theirs in zip(jax.tree.leaves(same), jax.tree.leaves(tree), strict=True):
        assert_equal_shards(ours, jax.device_put(theirs, on(P(None, None, "x"))))
    targets = {"a": on(P("y")), "b": on(P(("x", "z")))}
    each = ap.reshard(tree, targets)
    assert_equal_shards(each["a"], jax.device_put(tree["a"], on(P("y"))))
    assert_equal_shards(each["b"][1], jax.device_put(tree["b"][1], on(P(("x", "z")))))


def test_a_tree_of_shardings_that_does_not_fit_is_an_error():
    with pytest.raises(ap.CallError, match="does not fit the arrays"):
        ap.reshard({"a": array(P("x"))}, {"b": on(P("y"))})


def test_it_is_linear_in_both_modes_of_differentiation():
    before, after = on(P("x")), on(P(None, "x"))
    x, weights = array(P("x")), array(P(None, "x"))

    def weighted(x):
        return (ap.reshard(x, after, source=before) * weights).sum()

    assert np.array_equal(jax.jit(jax.grad(weighted))(x), weights)
    _, tangent = jax.jvp(weighted, (x,), (jnp.ones_like(x),))
    assert tangent == weights.sum()


def test_donated_arrays_are_given_up():
    x = array(P("x"))
    y = ap.reshard(x, on(P(None, "x")), donate=True)
    assert x.is_deleted()
    assert np.array_equal(np.asarray(y).ravel(), np.arange(512, dtype=np.float32))


def test_random_keys_move():
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), on(P("x")))
    moved = ap.reshard(keys, on(P("y")))
    assert moved.dtype == keys.dtype
    assert np.array_equal(jax.random.key_data(moved), jax.random.key_data(keys))


def test_a_mesh_with_devices_in_another_order_is_respected():
    mesh = Mesh(np.array(jax.devices()[:8])[::-1].reshape(4, 2), ("a", "b"))
    x = array(P("a", "b"), mesh=mesh)
    assert_equal_shards(ap.reshard(x, on(P("b", "a"), mesh)), jax.device_put(x, on(P("b", "a"), mesh)))


def test_a_cost_in_seconds_moves_the_same_data():
    cost = AlphaBeta(dict.fromkeys("xyz", 1e-6), {"x": 1e9, "y": 1e10, "z": 1e11})
    x = array(P("x", "y", "z"))
    assert_equal_shards(ap.reshard(x, on(P()), cost=cost), jax.device_put(x, on(P())))


def test_no_device_holds_more_than_source_or_target_where_xla_holds_the_array():
    """jax#21562 in small: XLA replicates, we exchange."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    before, after = on(P("y", None, "x"), mesh), on(P(None, ("x", "y"), None), mesh)
    aval = jax.ShapeDtypeStruct((64, 64, 64), jnp.float32, sharding=before)
    ours = jax.jit(lambda x: ap.reshard(x, after, source=before)).lower(aval).compile()
    theirs = jax.jit(lambda x: x, in_shardings=before, out_shardings=after).lower(aval).compile()
    ours_bytes, their_bytes = (c.memory_analysis().temp_size_in_bytes for c in (ours, theirs))
    assert ours_bytes < their_bytes


def test_meshes_that_differ_are_an_error():
    other = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    with pytest.raises(ap.CallError, match="different meshes"):
        ap.reshard(array(P("x")), on(P("x"), other))
    turned = Mesh(CUBE.devices[::-1], CUBE.axis_names)
    with pytest.raises(ap.CallError, match="different meshes"):
        ap.reshard(array(P("x")), on(P("x"), turned))


def test_dims_that_do_not_divide_are_an_error():
    x = array(P(), shape=(8, 6, 8))
    with pytest.raises(ap.PartitionError, match=r"dim 1 of \(8, 6, 8\) cannot be cut in 4 parts"):
        ap.reshard(x, on(P(None, ("x", "y"))))


def test_specs_that_are_too_long_open_or_of_unknown_axes_are_errors():
    mesh = ap.Mesh({"x": 2})
    for spec, says in [(P(None, "x"), "has 2 entries"), (P(P.UNCONSTRAINED), "leaves dim 0 open"), (P("z"), '"z"')]:
        with pytest.raises(ap.PartitionError, match=says):
            ap.redistribution_plan(P(), spec, (8,), "float32", mesh)


def test_shardings_that_are_not_named_are_an_error():
    with pytest.raises(ap.CallError, match="SingleDeviceSharding"):
        ap.reshard(array(P("x")), SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(ap.CallError, match="SingleDeviceSharding"):
        ap.reshard(jnp.zeros(SHAPE), on(P("x")))
    with pytest.raises(ap.CallError, match="cannot reshard a str"):
        ap.reshard("x", on(P("x")))


def test_plan_prints_its_steps_cost_and_height():
    steps = ap.redistribution_plan(P("x"), P(None, "x"), (8, 8), "float32", ap.Mesh({"x": 4}))
    assert (steps.cost, steps.height) == (16, 1)
    assert str(steps) == (
        '[2{x}8, 8] -> [8, 2{x}8] on {x:4}: cost 16, height 1\n  all_to_all {0 -> 1} <"x">  [8, 2{x}8]'
    )
