"""Do steps of other libraries' modules run: their changes seen, their other leaves static, what is wrong at a path?"""

from __future__ import annotations

import sys
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = np.linspace(-1, 1, 8 * 4, dtype="f4").reshape(8, 4)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.up, self.norm = nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.drop, self.act = nnx.Dropout(0.1, rngs=rngs), jax.nn.relu

    def __call__(self, x):
        return self.drop(self.act(self.norm(self.up(x))))


def made():
    model = Net(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-2, eps=1e-3), wrt=nnx.Param)


def train(model, optimizer, x, scale=1.0):
    def loss(model):
        return jnp.mean((model(x) - 1) ** 2) * scale

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


def test_an_nnx_step_changes_its_modules_as_nnx_jit_does():
    mp = ap.ManualPartition({"model/up/kernel": 1}, axis="model")
    step, plain = ap.nnx.jit(train, MESH, [BP, mp], donate_argnums=(0, 1)), nnx.jit(train)
    ours, theirs = made(), made()
    for _ in range(3):
        value, right = step(*ours, X, scale=2.0), plain(*theirs, X, scale=2.0)
        np.testing.assert_allclose(value, right, rtol=1e-4)
    for a, b in zip(ours, theirs, strict=True):
        for one, other in zip(jax.tree.leaves(nnx.state(a)), jax.tree.leaves(nnx.state(b)), strict=True):
            if not jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    assert ours[0].up.kernel[...].sharding.spec == jax.sharding.PartitionSpec(None, "model")
    specs = step.lower(*ours, X, scale=2.0).metadata.in_specs
    assert specs["optimizer/opt_state/0/mu/up/kernel"] == ((), ("model",))


def test_modules_that_share_a_variable_go_on_sharing_it():
    class Tied(nnx.Module):
        def __init__(self, weight):
            self.weight = weight

    weight = nnx.Param(jnp.ones((4,)))
    first, second = Tied(weight), Tied(weight)

    def step(first, second, x):
        first.weight[...] += x.sum()
        return second.weight[...]

    run = ap.nnx.jit(step, MESH, [BP])
    np.testing.assert_allclose(run(first, second, X + 1), np.full(4, 33.0), rtol=1e-5)
    assert first.weight is second.weight
    np.testing.assert_allclose(first.weight[...], np.full(4, 33.0), rtol=1e-5)


def test_an_nnx_step_that_adds_a_part_is_refused():
    def grow(model, x):
        model.more = nnx.Param(x)

    with pytest.raises(ap.CallError, match="changes which parts a module has"):
        ap.nnx.jit(grow, MESH, [BP])(made()[0], X)


def test_a_static_argument_of_an_nnx_step_chooses_a_program():
    def scaled(model, x, how):
        return model(x) if how == "model" else x * 2

    step = ap.nnx.jit(scaled, MESH, [BP], static_argnames="how")
    np.testing.assert_array_equal(step(made()[0], X, "twice"), X * 2)
    assert step(made()[0], X, how="model").shape == (8, 8)


def test_a_plain_jit_of_a_step_that_changes_a_module_warns():
    model = made()[0]
    with pytest.warns(ap.MutationWarning, match=r"changes model/drop/rngs/count[\s\S]*ap.nnx.jit"):
        ap.jit(lambda model, x: model(x), MESH).lower(model, X)


def test_what_is_changed_and_returned_is_no_reason_to_warn():
    def step(state, x):
        state["sum"] = state["sum"] + x.sum()
        return state

    np.testing.assert_allclose(ap.jit(step, MESH, [BP])({"sum": np.float32(1)}, X + 1)["sum"], 33.0, rtol=1e-5)


def test_without_flax_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "autopart.api.jitted.nnx", None)
    monkeypatch.delattr("autopart.api.jitted.nnx", raising=False)
    with pytest.raises(ImportError, match="pip install flax"):
        _ = ap.nnx


# ---- filter_jit


class Classifier(eqx.Module):
    layer: eqx.nn.Linear
    activation: object
    names: tuple

    def __call__(self, x):
        return self.activation(jax.vmap(self.layer)(x))


def classifier():
    return Classifier(eqx.nn.Linear(4, 8, key=jax.random.key(0)), jax.nn.relu, ("a", 3))


def test_an_equinox_step_takes_and_returns_modules_with_leaves_that_are_no_arrays():
    def step(model, x):
        gradients = eqx.filter_grad(lambda m: jnp.mean(m(x) ** 2))(model)
        return eqx.apply_updates(model, gradients), "done"

    run = ap.filter_jit(step, MESH, [BP, ap.ManualPartition({"model/layer/weight": 0}, axis="model")])
    model = classifier()
    for _ in range(2):
        model, said = run(model, X)
    expected = eqx.filter_jit(step)(eqx.filter_jit(step)(classifier(), X)[0], X)[0]
    assert (said, model.activation, model.names) == ("done", jax.nn.relu, ("a", 3))
    np.testing.assert_allclose(model.layer.weight, expected.layer.weight, rtol=1e-5)
    assert model.layer.weight.sharding.spec == jax.sharding.PartitionSpec("model")


def test_another_static_leaf_is_another_program():
    run = ap.filter_jit(lambda d, x: x * d["n"], MESH, [BP])
    np.testing.assert_array_equal(run({"n": 2}, X), X * 2)
    np.testing.assert_array_equal(run({"n": 3}, X), X * 3)


def test_a_leaf_that_cannot_be_hashed_is_named_by_its_path():
    with pytest.raises(ap.CallError, match=r"\[0\]\['a'\]\[1\] is \{1\}"):
        ap.filter_jit(lambda d: d["a"][0], MESH)({"a": [X, {1}]})


def test_a_leaf_of_ap_jit_that_is_no_array_is_named_by_its_path():
    with pytest.raises(ap.CallError, match=r"model/activation = <[\s\S]*ap.filter_jit"):
        ap.jit(lambda model, x: model(x), MESH)(classifier(), X)


# ---- nnx with shapes alone


BATCH = {"x": jax.ShapeDtypeStruct((8, 4), "f4"), "key": jax.eval_shape(jax.random.key, 0)}
SHARDED = [ap.ManualPartition({"batch/x": 0}, axis="batch"), ap.ManualPartition({"model/up/kernel": 1}, axis="model")]


def train_on(model, optimizer, batch):
    return train(model, optimizer, batch["x"] + jax.random.normal(batch["key"], batch["x"].shape))


def test_an_nnx_step_lowers_for_shapes_and_for_modules_that_were_never_made():
    step = ap.nnx.jit(train_on, MESH, SHARDED)
    whole, abstract = step.lower(*made(), BATCH), step.lower(*nnx.eval_shape(made), BATCH)
    assert whole.metadata.in_specs == abstract.metadata.in_specs
    assert abstract.metadata.in_specs["batch/x"] == (("batch",),)
    assert ap.nnx.jit(lambda model, x: model(x), MESH).lower(made()[0], x=BATCH["x"]).metadata.out_specs


def test_modules_are_born_in_the_shardings_of_an_nnx_step():
    step = ap.nnx.jit(train_on, MESH, SHARDED)
    inputs, output = step.lower(*nnx.eval_shape(made), BATCH).as_jax_shardings()
    model, optimizer = nnx.jit(made, out_shardings=inputs[:2])()
    columns = jax.sharding.PartitionSpec(None, "model")
    assert model.up.kernel[...].sharding.spec == columns
    assert optimizer.opt_state[0].mu.up.kernel[...].sharding.spec == columns
    batch = jax.device_put({"x": X, "key": jax.random.key(1)}, inputs[2])
    plain = nnx.jit(train_on, in_shardings=inputs, out_shardings=output)(model, optimizer, batch)
    np.testing.assert_allclose(step(*made(), {"x": X, "key": jax.random.key(1)}), plain, rtol=1e-4)


def test_arguments_of_an_nnx_step_are_listed_as_in_its_signature():
    def step(zeta, alpha, x):
        return zeta(x) + alpha(x)

    low = ap.nnx.jit(step, MESH).lower(made()[0], made()[0], X)
    heads = [name.partition("/")[0] for name in low.traced.program.argument_names]
    assert list(dict.fromkeys(heads)) == ["zeta", "alpha", "x"]


def test_an_average_that_is_no_copy_yet_is_said_with_the_way_out():
    def averaged(model, ema, x):
        ema.up.kernel[...] = 0.9 * ema.up.kernel[...] + 0.1 * model.up.kernel[...]
        return model(x)

    model = made()[0]
    step = ap.nnx.jit(averaged, MESH, [ap.ManualPartition({"model/up/kernel": 1}, axis="model")])
    with pytest.warns(UserWarning, match=r"ema has no arrays of its own: ema/\S+ is model/[\s\S]*jnp.copy, ema\)"):
        low = step.lower(model, model, X)
    assert low.metadata.in_specs["model/up/kernel"] == ((), ("model",))
    assert "ema/up/kernel" in step.lower(model, jax.tree.map(jnp.copy, model), X).metadata.in_specs


class Block(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    drop: eqx.nn.Dropout
    act: Callable

    def __init__(self, width, key):
        self.up, self.down = eqx.nn.Linear(width, 4 * width, key=key), eqx.nn.Linear(4 * width, width, key=key)
        self.drop, self.act = eqx.nn.Dropout(0.1, inference=True), jax.nn.gelu

    def __call__(self, x):
        return x + self.drop(self.down(self.act(self.up(x))))


def eqx_step(model, x):
    gradients = eqx.filter_grad(lambda m: jnp.mean(jax.vmap(m)(x) ** 2))(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients))


def test_named_schedules_and_sweeps_take_steps_of_equinox_and_nnx_modules():
    mesh, x = ap.Mesh({"data": 2, "model": 2}, device="h100"), jax.ShapeDtypeStruct((2048, 256), "float32")
    model = Block(256, jax.random.key(0))
    found = ap.named_schedules(eqx_step, mesh, (model, x), donate_argnums=0)
    assert {"FSDP(data,model)", "DP(data)+Megatron(model)"} <= {row.name for row in found}
    of_nnx = ap.named_schedules(
        train, mesh, (*made(), jax.ShapeDtypeStruct((4096, 4), "float32")), donate_argnums=(0, 1)
    )
    assert any(row.name.startswith("DP(") for row in of_nnx)
    swept = ap.sweep(
        eqx_step, (model, x), devices=2, axes=["a"], device="h100", budget=ap.Budget(4), cache=False, donate_argnums=0
    )
    assert not swept.rows[0].error
