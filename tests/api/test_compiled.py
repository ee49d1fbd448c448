"""Is what `compile` returns compiled, does it say what jax's own says, and does it run whatever it is called with?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.spmd.run import OnMesh

MESH = ap.Mesh({"batch": 4, "model": 2})
OTHER = jax.make_mesh((2, 4), ("p", "q"))
BP = ap.ManualPartition({"x": 0}, axis="batch")
MP = ap.ManualPartition({"params/w": 1}, axis="model")
PARAMS = {"w": np.ones((16, 8), "f4"), "v": np.ones((8, 16), "f4")}
X = np.linspace(-1, 1, 8 * 16, dtype="f4").reshape(8, 16)


def model(params, x):
    return {"y": jnp.tanh(x @ params["w"]) @ params["v"]}


def compiled(fun=model, schedule=(BP, MP), args=(PARAMS, X), **options):
    return ap.jit(fun, MESH, schedule, **options).lower(*args).compile()


@pytest.fixture
def compilations(monkeypatch):
    """The programs that XLA has compiled for autopart."""
    found, compile_ = [], OnMesh.compile
    monkeypatch.setattr(OnMesh, "compile", lambda self, options=None: found.append(self) or compile_(self, options))
    return found


# ---- what it says


def test_it_says_what_the_compiler_knows():
    step = compiled()
    memory = step.memory_analysis()
    assert memory.argument_size_in_bytes == 4 * (16 * 4 + 4 * 16 + 2 * 16)
    assert memory.output_size_in_bytes >= 4 * 2 * 16
    assert step.cost_analysis()["flops"] >= 2 * 2 * (16 * 4 + 4 * 16)
    assert "all-reduce" in step.as_text()
    assert len(step.runtime_executable().local_devices()) == 8
    assert isinstance(step.executable, jax.stages.Compiled)


def test_its_shardings_are_pytrees_on_the_devices():
    step = compiled()
    (params, x), kwargs = step.in_shardings
    assert (params["w"].spec, params["v"].spec, x.spec, kwargs) == (P(None, "model"), P("model"), P("batch"), {})
    assert step.out_shardings["y"] == step(PARAMS, X)["y"].sharding


def test_it_is_compiled_before_it_is_called(compilations):
    step = compiled()
    assert len(compilations) == 1
    for _ in range(2):
        step(PARAMS, X)
    step.memory_analysis(), step.as_text()
    assert len(compilations) == 1


def test_options_reach_the_compiler():
    lowered = ap.jit(model, MESH, [BP]).lower(PARAMS, X)
    np.testing.assert_allclose(
        lowered.compile({"xla_backend_optimization_level": 0})(PARAMS, X)["y"], model(PARAMS, X)["y"], rtol=1e-5
    )
    with pytest.raises(ap.ArgumentError, match="xla_no_such_option"):
        lowered.compile({"xla_no_such_option": 1})
    with pytest.raises(ap.ArgumentError, match="compiler_options"):
        lowered.compile(["xla_backend_optimization_level"])


# ---- what it takes


PLACES = {
    "numpy": X,
    "one device": lambda: jnp.asarray(X),
    "another device": lambda: jax.device_put(X, jax.devices()[5]),
    "another mesh": lambda: jax.device_put(X, NamedSharding(OTHER, P("p", "q"))),
    "explicit axes": lambda: jax.device_put(
        X, NamedSharding(jax.make_mesh((2,), ("e",), axis_types=(jax.sharding.AxisType.Explicit,)), P("e"))
    ),
    "its own": lambda: jax.device_put(X, compiled().in_shardings[0][1]),
}


@pytest.mark.parametrize("place", PLACES)
def test_arguments_may_be_anywhere(place):
    step, x = compiled(), PLACES[place]
    x = x() if callable(x) else x
    for _ in range(3):
        np.testing.assert_allclose(step(PARAMS, x)["y"], model(PARAMS, X)["y"], rtol=1e-5)


def test_an_argument_like_the_last_one_but_elsewhere_or_of_another_type_is_noticed():
    step = compiled(lambda x: x * 2, [BP], (X,))
    x = step(X)
    for _ in range(2):
        x = step(x)
    elsewhere = jax.device_put(x, jax.devices()[3])
    np.testing.assert_array_equal(step(elsewhere), step(x))
    np.testing.assert_array_equal(step(x), np.asarray(x) * 2)
    for wrong, says in ((x[:4], r"shape \[4, 16\]"), (x.astype("bfloat16"), "bfloat16"), ("text", "'text'")):
        with pytest.raises(ap.CallError, match=says):
            step(wrong)
    with pytest.raises(ap.CallError, match="another pytree"):
        step(x, x)


@pytest.mark.parametrize("number", [2.0, np.float32(2), np.float64(2), jnp.float32(2), jnp.asarray(2.0)])
def test_numbers_of_weak_and_strong_type_are_taken(number):
    step = compiled(lambda x, scale: x * scale, [BP], (X, jax.ShapeDtypeStruct((), "float32")))
    found = step(X, number)
    np.testing.assert_array_equal(found, X * 2)
    assert found.dtype == "float32"
    assert not found.weak_type


def test_donated_state_is_updated_in_place():
    def step(state, x):
        return {"w": state["w"] + x.sum(), "n": state["n"] + 1}

    run = compiled(step, [BP], ({"w": X, "n": np.int32(0)}, X), donate_argnums=0)
    assert run.memory_analysis().alias_size_in_bytes >= X.nbytes // 8
    state = first = run({"w": X, "n": np.int32(0)}, X)
    for _ in range(3):
        state = run(state, X)
    assert int(state["n"]) == 4
    assert first["w"].is_deleted()
    for _ in range(2):
        with pytest.raises(ap.CallError, match="state/n is an array that has been deleted, or donated to an earlier"):
            run(first, X)


def test_prng_keys_go_in_and_come_out():
    keys = jax.random.split(jax.random.key(3), 8)
    run = compiled(
        lambda keys: (jax.vmap(jax.random.fold_in)(keys, jnp.arange(8)), jax.vmap(jax.random.uniform)(keys)),
        [ap.ManualPartition({"keys": 0}, axis="batch")],
        (keys,),
    )
    for _ in range(2):
        folded, drawn = run(keys)
        assert folded.dtype == keys.dtype
        np.testing.assert_array_equal(drawn, jax.vmap(jax.random.uniform)(keys))
        keys = folded


def test_static_and_keyword_arguments():
    def power(x, n, *, shift):
        return x**n + shift

    run = ap.jit(power, MESH, [BP], static_argnums=1).lower(X, 3, shift=np.float32(1)).compile()
    np.testing.assert_allclose(run(X, shift=np.float32(1)), X**3 + 1, rtol=1e-5)
    assert run.in_shardings[0][0].spec == P("batch")


def test_host_callbacks_hear_each_call_once():
    heard = []

    def loud(x):
        jax.debug.callback(lambda s: heard.append(float(s)), x.sum())
        return x + jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    run = compiled(loud, [BP], (X,))
    assert heard == []
    for n in (1, 2):
        np.testing.assert_allclose(run(X + n), (X + n) * 3, rtol=1e-5)
    jax.effects_barrier()
    assert heard == pytest.approx([128, 256], abs=1e-3)


def test_a_loaded_program(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(jax.jit(lambda x: x @ x.T).lower(X).as_text())
    run = ap.jit(ap.load(path, argument_names=["x"]), MESH, [BP]).lower().compile()
    np.testing.assert_allclose(run(X)[0], X @ X.T, rtol=1e-5)
    assert run.memory_analysis().argument_size_in_bytes == X.nbytes // 4


def test_a_program_of_double_precision_compiles_outside_of_the_scope_it_runs_in(tmp_path):
    path = tmp_path / "double.mlir"
    path.write_text("""func.func @main(%x: tensor<8xf64>, %n: tensor<i64>) -> tensor<8xf64> {
        %0 = stablehlo.multiply %x, %x : tensor<8xf64>
        return %0 : tensor<8xf64> }""")
    run = ap.jit(ap.load(path, argument_names=["x", "n"]), MESH, [BP]).lower().compile()
    x = np.linspace(0, 1, 8)
    with jax.enable_x64(True):
        (found,) = run(x, np.int64(2**40))
        np.testing.assert_array_equal(found, x * x)


def test_a_mesh_that_names_another_platform_runs_on_the_devices_here():
    def inverse(x):
        return jnp.linalg.inv(x)

    x = np.random.default_rng(0).normal(size=(8, 4, 4)).astype("f4") + 4 * np.eye(4, dtype="f4")
    lowered = ap.jit(inverse, ap.Mesh({"batch": 4}, device="tpu_v3"), [BP]).lower(x)
    run = lowered.compile()
    np.testing.assert_allclose(run(x), np.linalg.inv(x), rtol=1e-3, atol=1e-4)
    assert "LuDecomposition" in lowered.as_text("stablehlo")
    assert "lapack" in run.as_text()


# ---- where it runs


def test_a_mesh_set_around_it_is_none_of_its_business():
    with jax.set_mesh(OTHER):
        run = compiled()
        np.testing.assert_allclose(run(PARAMS, X)["y"], model(PARAMS, X)["y"], rtol=1e-5)
    assert run.out_shardings["y"].mesh.axis_names == ("batch", "model")


def test_under_jit_it_is_part_of_the_program_around_it(compilations):
    step = ap.jit(lambda x: x * 2, MESH, [BP])
    np.testing.assert_array_equal(jax.jit(lambda x: step(x) + 1)(X), X * 2 + 1)
    assert compilations == []
    for _ in range(2):
        np.testing.assert_array_equal(step(X), X * 2)
    assert len(compilations) == 1


def test_under_jit_an_effect_of_a_call_with_constants_happens_at_each_run():
    heard = []

    def loud(x):
        jax.debug.callback(lambda s: heard.append(float(s)), x.sum())
        return x

    step = ap.jit(loud, MESH, [BP])
    x = jax.device_put(jnp.ones((8, 2)), step.lower(np.ones((8, 2), "f4")).compile().in_shardings[0][0])
    outer = jax.jit(lambda y: step(x) + y)
    for y in (1.0, 2.0, 3.0):
        outer(y)
    jax.effects_barrier()
    assert heard == [16.0] * 3


@pytest.mark.parametrize("device", [None, "tpu_v3"])
def test_a_lowered_program_is_shown_on_one_line(device):
    shown = repr(ap.jit(model, ap.Mesh({"batch": 4, "model": 2}, device=device), [BP, MP]).lower(PARAMS, X))
    assert shown.startswith("<Lowered of ")
    assert len(shown) < 300
    assert "\n" not in shown
