"""Do arrays that a function closes over count as its arguments do: in memory, in time, in lists, as what is tiled?"""

from __future__ import annotations

import gzip
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"b": 4, "m": 2})
ON_H100 = ap.Mesh({"b": 4, "m": 2}, device="h100")
BP = ap.ManualPartition({"x": 0}, axis="b", name="BP")
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(256, 512)).astype("f4")
X = RNG.normal(size=(16, 256)).astype("f4")


def project(x):
    return jnp.tanh(x @ TABLE)


def with_table(x, table):
    return jnp.tanh(x @ table)


def test_closed_over_arrays_cost_what_arguments_cost():
    mine = ap.jit(project, ON_H100, [BP]).lower(X).estimate
    given = ap.jit(with_table, ON_H100, [BP]).lower(X, TABLE).estimate
    assert (mine.peak_bytes, mine.step_s) == (given.peak_bytes, given.step_s)
    assert mine.argument_bytes >= TABLE.nbytes


def test_closed_over_arrays_are_listed_explained_and_tiled_by_name():
    mp = ap.ManualPartition({"closed_over": {"TABLE": 1}}, axis="m", name="MP")
    low = ap.jit(project, ON_H100, [BP, mp]).lower(X)
    assert low.metadata.in_specs["closed_over/TABLE"] == ((), ("m",))
    assert "closed_over/TABLE  argument f32[256,512]" in str(low.explain("closed_over/TABLE"))
    names = {row.name for row in ap.named_schedules(project, ON_H100, (jnp.ones((4096, 256)),))}
    assert "DP(b)+Megatron(m)" in names
    assert jax.tree.structure(low.in_shardings) == jax.tree.structure(((X,), {}))
    assert len(low.compile().in_shardings[0]) == 1


@pytest.mark.parametrize("held", [np.asarray, jnp.asarray], ids=["NumPy's", "jax's"])
@pytest.mark.parametrize("dtype", ["f4", "bfloat16", "i4"])
def test_a_call_computes_with_what_the_function_closes_over(held, dtype):
    table = held(np.asarray(TABLE * 9, jnp.dtype(dtype)))

    def program(x, scale):
        def turn(x, _):
            return jnp.tanh(x @ table) @ table.T * scale, None

        return jax.lax.scan(turn, jax.jit(lambda x: x @ table @ table.T)(x), None, length=2)[0]

    step = ap.jit(program, MESH, [BP, ap.ManualPartition({"closed_over/table": 1}, axis="m")])
    wanted = jax.jit(program)(X, 0.1)
    for x in (X, X, step(X, 0.1) * 0 + X):
        np.testing.assert_allclose(step(x, 0.1), wanted, rtol=2e-2, atol=1e-2)
    np.testing.assert_allclose(jax.jit(lambda x: step(x, 0.1))(X), wanted, rtol=2e-2, atol=1e-2)
    np.testing.assert_allclose(step.lower(X, 0.1).interpret(X, 0.1), wanted, rtol=2e-2, atol=1e-2)


def test_calls_go_by_the_fast_path_with_the_arrays_in_front():
    step = ap.jit(project, MESH, [BP])
    compiled = step.lower(X).compile()
    x = jax.device_put(X, compiled.in_shardings[0][0])
    _, quick = compiled.run((x,), {})
    assert quick is not None
    np.testing.assert_allclose(compiled(x), compiled(x + 0), rtol=1e-6)


def test_donation_constraints_and_microbatches_count_behind_what_is_closed_over():
    def train(w, x):
        gradient = jax.grad(lambda w: jnp.mean((x @ TABLE @ w) ** 2))(w)
        return w - 0.1 * gradient

    w = RNG.normal(size=(512, 8)).astype("f4") / 20
    options = {"donate_argnums": 0, "in_shardings": (jax.sharding.PartitionSpec("m"), None)}
    wanted = jax.jit(train)(w, X)
    for more in ([], [ap.Microbatch({"x": 0}, 2)], [ap.Recompute("nothing")]):
        low = ap.jit(train, MESH, [BP, *more], **options).lower(w, X)
        assert low.metadata.in_specs["w"] == low.metadata.out_specs["outputs"] == (("m",),)
        np.testing.assert_allclose(low.compile()(jnp.asarray(w), X), wanted, rtol=1e-4, atol=1e-6)


def test_a_plan_of_what_is_closed_over_is_made_again():
    low = ap.jit(project, MESH, [BP, ap.ManualPartition({"closed_over/TABLE": 1}, axis="m")]).lower(X)
    again = ap.jit(project, MESH, low.plan).lower(X)
    assert again.metadata.in_specs == low.metadata.in_specs


def test_arrays_in_a_file_are_arguments_that_no_call_brings(tmp_path):
    path = tmp_path / "project.mlir.gz"
    path.write_bytes(gzip.compress(str(jax.jit(project).lower(X).compiler_ir("stablehlo")).encode()))
    program = ap.load(path, argument_names=["x"])
    assert program.argument_names == ["x"]
    step = ap.jit(program, MESH, [BP])
    assert set(step.lower().metadata.in_specs) == {"x", "closed_over/0"}
    np.testing.assert_allclose(step(X)[0], project(X), rtol=1e-4, atol=1e-4)


def test_what_is_small_or_all_alike_stays_a_constant():
    few, ones = RNG.normal(size=(256, 8)).astype("f4"), np.ones((256, 512), "f4")
    low = ap.jit(lambda x: (x @ few, x @ ones), MESH, [BP]).lower(X)
    assert set(low.metadata.in_specs) == {"x"}


def test_a_shard_map_keeps_its_constants():
    rows = jax.sharding.PartitionSpec("b")
    mesh = jax.make_mesh((4, 2), ("b", "m"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    inner = jax.shard_map(project, mesh=mesh, in_specs=rows, out_specs=rows)
    step = ap.jit(lambda x: inner(x) + project(x), MESH, [BP])
    np.testing.assert_allclose(step(X), 2 * project(X), rtol=1e-4, atol=1e-4)


def test_more_than_ten_megabytes_warn_with_the_line_that_reads_them():
    params = {"up": RNG.normal(size=(2048, 1024)).astype("f4"), "down": RNG.normal(size=(1024, 2048)).astype("f4")}

    def large(x):
        return jnp.tanh(x @ params["up"]) @ params["down"]

    x = jax.ShapeDtypeStruct((16, 2048), "float32")
    with pytest.warns(ap.ClosedOverWarning, match=r"large closes over 16.8 MB of arrays") as found:
        ap.jit(large, MESH, [BP]).lower(x)
    text = str(found[0].message)
    assert "params/up f32[2048,1024], 8.39 MB, read at test_closures.py:" in text
    assert "try  pass them as arguments of large" in text
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ap.jit(project, MESH, [BP]).lower(X)
