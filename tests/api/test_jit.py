"""Is `ap.jit` what a user of `jax.jit` expects?"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
X = np.linspace(-1, 1, 8 * 6, dtype="f4").reshape(8, 6)
W = np.linspace(-1, 2, 6 * 4, dtype="f4").reshape(6, 4)


def linear(x, w):
    return jnp.tanh(x @ w)


def check(fun, mesh, schedule, *args, **kwargs):
    """Partitioned equals whole; returns the lowered program."""
    partitioned = ap.jit(fun, mesh, schedule)
    whole, parts = jax.jit(fun)(*args, **kwargs), partitioned(*args, **kwargs)
    assert jax.tree.structure(whole) == jax.tree.structure(parts)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        assert a.dtype == b.dtype
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a, "f8"), np.asarray(b, "f8"), rtol=1e-5, atol=1e-6)
    return partitioned.lower(*args, **kwargs)


def test_numpy_in_sharded_arrays_out():
    result = ap.jit(linear, MESH, [BP])(X, W)
    assert isinstance(result, jax.Array)
    assert result.sharding.spec == jax.sharding.PartitionSpec("batch")
    np.testing.assert_allclose(result, linear(X, W), rtol=1e-5, atol=1e-6)


def test_results_can_be_fed_back_without_copies_of_layout():
    step = ap.jit(lambda x: x * 2, MESH, [BP])
    once = step(X)
    assert step(once).sharding == once.sharding


def test_compiled_once_per_shape():
    traces = []

    def fun(x):
        traces.append(x.shape)
        return x + 1

    step = ap.jit(fun, MESH, [BP])
    step(X), step(X + 1), step(X[:4])
    assert traces == [(8, 6), (4, 6)]


def test_keyword_arguments_and_pytrees_of_any_kind():
    class Point(NamedTuple):
        a: jax.Array
        b: jax.Array

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Box:
        point: Point
        extra: list

    def fun(box, *, scale):
        return {"sum": box.point.a + box.point.b * scale, "rest": (box.extra[0], None)}

    box = Box(Point(X, X * 2), [np.ones(3, "f4")])
    low = check(fun, MESH, [ap.ManualPartition({"box": {"point/a": 0}}, axis="batch")], box, scale=jnp.float32(3))
    assert low.metadata.in_specs["box/point/b"] == (("batch",),)


def test_keyword_argument_can_be_named_by_a_tactic():
    low = ap.jit(linear, MESH, [ap.ManualPartition({"w": 1}, axis="model")]).lower(x=X, w=W)
    assert low.metadata.in_specs["w"] == ((), ("model",))


def test_variadic_arguments_are_named_by_position():
    low = ap.jit(lambda *rows: sum(rows), MESH, [ap.ManualPartition({"rows/1": 0}, axis="batch")]).lower(X, X)
    assert low.metadata.in_specs["rows/0"] == (("batch",),)


def test_static_arguments_choose_a_program():
    def fun(x, power, *, negate=False):
        return -(x**power) if negate else x**power

    step = ap.jit(fun, MESH, [BP], static_argnums=1, static_argnames="negate")
    np.testing.assert_allclose(step(X, 2), X**2, rtol=1e-6)
    np.testing.assert_allclose(step(X, 3, negate=True), -(X**3), rtol=1e-5, atol=1e-7)


def test_static_argument_in_front_keeps_the_names_of_the_others():
    step = ap.jit(lambda n, x: x * n, MESH, [BP], static_argnums=0)
    np.testing.assert_allclose(step(3, X), X * 3)


def test_partial_and_callable_objects_are_accepted():
    class Scale:
        def __call__(self, x):
            return x * 4

    np.testing.assert_allclose(ap.jit(partial(linear, w=W), MESH, [BP])(X), linear(X, W), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ap.jit(Scale(), MESH, [BP])(X), X * 4)


def test_python_scalars_and_closed_over_arrays():
    table = jnp.asarray(W)
    check(lambda x, c: x @ table * c, MESH, [BP], X, 2.5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "int8", "uint32", "bool"])
def test_dtypes(dtype):
    x = jnp.asarray(np.arange(48).reshape(8, 6) % 5, dtype)
    check(lambda x: (jnp.where(x > x[0], x, x[1]), jnp.sum(x, axis=0), jnp.max(x, axis=0)), MESH, [BP], x)


def test_prng_keys_in_and_out():
    def fun(key, x):
        key, use = jax.random.split(key)
        return key, x + jax.random.normal(use, x.shape)

    check(fun, MESH, [BP], jax.random.key(3), X)


def test_batch_of_prng_keys_is_sharded():
    keys = jax.random.split(jax.random.key(0), 8)
    schedule = [ap.ManualPartition({"keys": 0}, axis="batch")]
    low = check(lambda keys: jax.vmap(lambda k: jax.random.uniform(k, (3,)))(keys), MESH, schedule, keys)
    assert low.metadata.in_specs["keys"] == (("batch",),)


def test_one_device_mesh_is_the_identity():
    low = check(linear, ap.Mesh({"batch": 1}), [BP], X, W)
    assert sum(low.program.collectives().values()) == 0


def test_jax_mesh_is_accepted_and_its_devices_used():
    devices = np.array(jax.devices()[::-1]).reshape(4, 2)
    mesh = jax.sharding.Mesh(devices, ("batch", "model"))
    result = ap.jit(linear, mesh, [BP])(X, W)
    assert result.sharding.mesh.devices.flat[0] == jax.devices()[-1]
    np.testing.assert_allclose(result, linear(X, W), rtol=1e-5, atol=1e-6)


def test_donated_state_keeps_its_layout():
    tx = optax.adam(1e-2)

    def train(params, opt_state, x):
        value, grads = jax.value_and_grad(lambda p: jnp.mean(linear(x, p["w"]) ** 2))(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, value

    params = {"w": jnp.asarray(W)}
    z2 = ap.ManualPartition({"params": ap.REPLICATED, "opt_state": ap.FIRST_DIVISIBLE_DIM}, axis="model", name="Z2")
    step = ap.jit(train, MESH, [BP, z2], donate_argnums=(0, 1))
    low = step.lower(params, tx.init(params), X)
    assert low.metadata.in_specs["opt_state/0/mu/w"] == low.metadata.out_specs["outputs/1/0/mu/w"] == (("model",),)
    assert low.metadata.in_specs["params/w"] == low.metadata.out_specs["outputs/0/w"] == ()
    state = (params, tx.init(params))
    expected = jax.tree.map(jnp.copy, state)
    for _ in range(3):
        *state, value = step(*state, X)
        *expected, loss = jax.jit(train)(*expected, X)
    np.testing.assert_allclose(value, loss, rtol=1e-5)
    np.testing.assert_allclose(state[0]["w"], expected[0]["w"], rtol=1e-4, atol=1e-6)


def test_outputs_and_tags_can_be_named():
    def fun(x, w):
        return ap.tag("hidden", x @ w) * 2

    low = check(fun, MESH, [ap.ManualPartition({"hidden": 1}, axis="model")], X, W)
    assert low.metadata.out_specs["outputs"] == ((), ("model",))
    low = check(fun, MESH, [ap.ManualPartition({"outputs": 0}, axis="batch")], X, W)
    assert low.metadata.in_specs["x"] == (("batch",),)


def test_replicated_tag_stops_propagation_and_gathers():
    def gram(x):
        return x @ ap.tag("transposed", x.T)

    keep = ap.ManualPartition({"transposed": ap.REPLICATED}, axis="batch")
    low = check(gram, MESH, [keep, BP], X)
    assert low.metadata.tactics[-1].collectives["all_gather"] == 1
    assert check(gram, MESH, [BP], X).metadata.tactics[-1].conflicts


def test_tag_survives_every_transformation():
    def loss(w, x):
        return jnp.sum(jnp.tanh(ap.tag("hidden", x @ w)))

    def fun(w, x):
        each = jax.vmap(lambda row: loss(w, row[None]))(x)
        scanned = jax.lax.scan(lambda c, row: (c + loss(w, row[None]), None), 0.0, x)[0]
        return each.sum() + scanned + loss(w, x), jax.grad(jax.checkpoint(loss))(w, x)

    low = check(fun, MESH, [ap.ManualPartition({"hidden": -1}, axis="model")], W, X)
    assert len(low.traced.program.tags["hidden"]) >= 5


def test_several_axes_in_one_tactic():
    both = ap.ManualPartition({"x": 0}, axis=("batch", "model"))
    assert check(linear, MESH, [both], X, W).metadata.in_specs["x"] == (("batch", "model"),)
    each = ap.ManualPartition({"w": (0, 1)}, axis=("model", "batch"))
    assert check(linear, MESH, [each], X, W).metadata.in_specs["w"] == (("model",), ("batch",))


def test_callable_decides_by_path_and_shape():
    seen = {}

    def decide(path, shape):
        seen[path] = shape
        return 1 if path == "a/w" else ap.UNKNOWN

    def fun(params, x):
        return x @ params["a"]["w"] + params["b"]

    params = {"a": {"w": W}, "b": np.ones(4, "f4")}
    low = check(fun, MESH, [ap.ManualPartition({"params": decide}, axis="model")], params, X)
    assert seen == {"a/w": (6, 4), "b": (4,)}
    assert low.metadata.in_specs["params/b"] == (("model",),)


def test_shardings_are_named_shardings_in_the_callers_pytrees():
    low = ap.jit(linear, MESH, [BP]).lower(X, W)
    (x, w), kwargs = low.in_shardings
    assert isinstance(x, jax.sharding.NamedSharding)
    assert x.spec == jax.sharding.PartitionSpec("batch")
    assert w.spec == jax.sharding.PartitionSpec()
    assert kwargs == {}
    assert low.out_shardings.spec == jax.sharding.PartitionSpec("batch")


def test_plain_jax_jit_accepts_the_shardings():
    low = ap.jit(linear, MESH, [BP, ap.ManualPartition({"w": 1}, axis="model")]).lower(X, W)
    in_shardings, out_shardings = low.as_jax_shardings()
    result = jax.jit(linear, in_shardings=in_shardings, out_shardings=out_shardings)(X, W)
    np.testing.assert_allclose(result, linear(X, W), rtol=1e-5, atol=1e-6)
    assert result.sharding.spec == jax.sharding.PartitionSpec("batch", "model")


def test_metadata_round_trips_through_json_and_prints_a_table():
    metadata = ap.jit(linear, MESH, [BP, ap.ManualPartition({"w": 0}, axis="model", name="MP")]).lower(X, W).metadata
    assert ap.Metadata.from_json(metadata.to_json()) == metadata
    assert metadata.tactics[1].collectives["all_reduce"] == 1
    assert metadata.tactics[1].collectives_by_axis == {"model": {"all_reduce": 1}}
    header, bp, mp = str(metadata).splitlines()[:3]
    assert header.split()[:3] == ["tactic", "actions", "all_reduce"]
    assert bp.split()[0] == "BP"
    assert mp.split()[:3] == ["MP", "2", "1"]


def test_partition_returns_the_papers_two_results():
    fun, metadata = ap.partition(linear, MESH, [BP], (X, W))
    np.testing.assert_allclose(fun(X, W), linear(X, W), rtol=1e-5, atol=1e-6)
    assert metadata.tactics[0].name == "BP"


def test_loaded_file_is_accepted_wherever_a_function_is(tmp_path):
    lowered = jax.jit(linear).lower(X, W)
    path = tmp_path / "linear.mlir"
    path.write_text(lowered.as_text(debug_info=True))
    program = ap.load(path)
    assert program.argument_names == ["x", "w"]
    step = ap.jit(program, MESH, [BP])
    assert step.lower().metadata.in_specs["x"] == (("batch",),)
    np.testing.assert_allclose(step(X, W)[0], linear(X, W), rtol=1e-5, atol=1e-6)
    path.write_text(lowered.as_text())
    assert ap.load(path).argument_names == ["arg0", "arg1"]


def test_a_mesh_with_a_device_gets_estimates_after_every_tactic():
    mesh = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
    low = ap.jit(linear, mesh, [BP, ap.ManualPartition({"w": 1}, axis="model")]).lower(X, W)
    first, second = low.metadata.tactics
    assert 0 < second.step_s <= first.step_s
    assert second.peak_bytes < first.peak_bytes
    assert low.estimate.step_s == second.step_s
    assert "step" in str(low.metadata).splitlines()[0]
    assert ap.jit(linear, MESH, [BP]).lower(X, W).estimate is None


def test_unknown_device_lists_the_known():
    with pytest.raises(ap.UnknownNameError, match="tpu_v3"):
        ap.jit(linear, ap.Mesh({"batch": 4}, device="tpu_v33"), [BP]).lower(X, W)


@pytest.mark.slow
def test_loaded_file_with_a_lapack_call_runs_in_a_fresh_process(tmp_path):
    path = tmp_path / "cholesky.mlir"
    path.write_text(jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((4, 3, 3), "float32")).as_text())
    code = f"""
import numpy as np, autopart as ap
step = ap.jit(ap.load({str(path)!r}), ap.Mesh({{"batch": 4}}), [ap.ManualPartition({{"arg0": 0}}, axis="batch")])
x = np.broadcast_to(4 * np.eye(3, dtype="f4"), (4, 3, 3))
np.testing.assert_allclose(step(x)[0], x / 2)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_function_is_traced_once_whatever_schedules_and_meshes_it_is_lowered_for():
    traces = []

    def step(x):
        traces.append(x.shape)
        return x * 2

    x = jax.ShapeDtypeStruct((8, 4), "float32")
    for axis in ("a", "b"):
        mesh = ap.Mesh({axis: 2})
        ap.jit(step, mesh, [ap.ManualPartition({"x": 0}, axis=axis)]).lower(x)
        ap.jit(step, mesh).lower(x)
    assert traces == [(8, 4)]
