"""Are shardings that come with a program its first decisions: those given to `ap.jit`, and the model's constraints?"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.core.importer.constraints import dims_of_constraint

MESH = ap.Mesh({"batch": 4, "model": 2})
DEVICES = jax.make_mesh((4, 2), ("batch", "model"), axis_types=(AxisType.Auto,) * 2)
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
X = np.linspace(-1, 1, 8 * 8, dtype="f4").reshape(8, 8)
W = np.linspace(-1, 2, 8 * 16, dtype="f4").reshape(8, 16)
OPEN = P.UNCONSTRAINED


def linear(x, w):
    return {"y": jnp.tanh(x @ w)}


def on(*dims):
    return NamedSharding(DEVICES, P(*dims))


# ---- given to ap.jit


def test_given_shardings_are_the_first_decisions_and_the_schedule_decides_the_rest():
    step = ap.jit(linear, MESH, [BP], in_shardings=(None, P(None, "model")), out_shardings={"y": on("batch", "model")})
    low = step.lower(X, W)
    assert low.metadata.in_specs == {"x": (("batch",),), "w": ((), ("model",))}
    assert low.metadata.out_specs == {"outputs/y": (("batch",), ("model",))}
    assert [t.name for t in low.metadata.tactics] == ["given shardings", "BP"]
    assert "in_shardings of w: P(None, 'model')" in low.metadata.tactics[0].report["shardings"]
    found = step(X, W)["y"]
    np.testing.assert_allclose(found, linear(X, W)["y"], rtol=1e-5, atol=1e-6)
    assert found.sharding.is_equivalent_to(on("batch", "model"), 2)


def test_one_sharding_is_for_all_and_keeps_the_axes_that_it_does_not_name_off():
    low = ap.jit(linear, MESH, in_shardings=P("batch")).lower(X, W)
    assert set(low.metadata.in_specs.values()) == {(("batch",),)}
    with pytest.raises(ap.TileError, match="whole"):
        ap.jit(linear, MESH, [ap.ManualPartition({"w": 1}, axis="model")], in_shardings=(None, P())).lower(X, W)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"in_shardings": (P("rows"), None)}, r'in_shardings of x: axis "rows" is not in the mesh'),
        ({"in_shardings": (P("batch"),)}, "does not fit the arguments"),
        ({"in_shardings": (P("batch", None, "model"), None)}, "is for 3 dims"),
        ({"in_shardings": ("batch", None)}, "'batch' is no sharding"),
        ({"out_shardings": [P()]}, "does not fit the results"),
        ({"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])}, "is no sharding over mesh axes"),
        ({"constraints": "drop"}, '"keep" or "ignore"'),
        ({"compiler_options": {"a": object()}}, "XLA's options"),
    ],
)
def test_what_cannot_be_meant_says_what_can(options, says):
    with pytest.raises(ap.PartitionError, match=says):
        ap.jit(linear, MESH, **options).lower(X, W)


def test_in_shardings_are_for_positional_arguments():
    with pytest.raises(ap.CallError, match="positional arguments, not for w"):
        ap.jit(linear, MESH, in_shardings=P()).lower(X, w=W)


def test_compiler_options_reach_xla():
    assert ap.jit(linear, MESH, compiler_options={"xla_backend_optimization_level": 0})(X, W)["y"].shape == (8, 16)
    with pytest.raises(ap.ArgumentError, match="no_such_option"):
        ap.jit(linear, MESH, compiler_options={"xla_no_such_option": 1})(X, W)


# ---- as a decorator


def test_it_decorates():
    @ap.jit(mesh=MESH, schedule=[BP], static_argnums=1)
    def power(x, n):
        """x to the n."""
        return x**n

    @functools.partial(ap.jit, mesh=MESH, schedule=[BP])
    def double(x):
        return x * 2

    assert (power.__name__, power.__doc__) == ("power", "x to the n.")
    np.testing.assert_allclose(power(X, 2), X**2, rtol=1e-6)
    np.testing.assert_array_equal(double(X), X * 2)
    with pytest.raises(ap.ArgumentError, match="mesh is None"):
        ap.jit(schedule=[BP])


# ---- in the model


def constrained(x, w):
    h = jax.lax.with_sharding_constraint(x @ w, on("batch", OPEN))
    return jax.lax.with_sharding_constraint(jnp.tanh(h), on(None, ("model", "batch")))


def test_constraints_are_the_first_tactic_and_listed_in_the_metadata():
    step = ap.jit(constrained, MESH)
    low = step.lower(X, W)
    (tactic,) = low.metadata.tactics
    first, second = tactic.report["shardings"]
    assert "test_given_shardings.py" in first
    assert first.endswith("P('batch', UNCONSTRAINED)")
    assert second.endswith("P(None, ('model', 'batch'))")
    assert low.metadata.out_specs == {"outputs": ((), ("model", "batch"))}
    assert low.metadata.in_specs["x"] == (("batch",),)
    np.testing.assert_allclose(step(X, W), np.tanh(X @ W), rtol=1e-5, atol=1e-6)


def test_constraints_can_be_ignored():
    low = ap.jit(constrained, MESH, constraints="ignore").lower(X, W)
    assert low.metadata.tactics == ()
    assert low.metadata.out_specs == {"outputs": ()}


def test_a_constraint_over_another_axis_says_so():
    with pytest.raises(ap.MeshError, match=r'with_sharding_constraint.*"batch" is not in the mesh') as error:
        ap.jit(constrained, ap.Mesh({"data": 4})).lower(X, W)
    assert "test_given_shardings.py" in str(error.value)


def test_constraints_in_a_scanned_and_differentiated_model_hold():
    def loss(w, x):
        def layer(h, w):
            return jax.lax.with_sharding_constraint(jnp.tanh(h @ w), on("batch")), None

        return jnp.sum(jax.lax.scan(layer, x, w)[0])

    step = ap.jit(jax.grad(loss), MESH)
    weights = np.linspace(-0.3, 0.3, 3 * 8 * 8, dtype="f4").reshape(3, 8, 8)
    assert step.lower(weights, X).metadata.in_specs["x"] == (("batch",),)
    np.testing.assert_allclose(step(weights, X), jax.grad(loss)(weights, X), rtol=1e-4, atol=1e-5)


def test_a_spec_under_a_mesh_that_is_set_is_a_constraint_too():
    step = ap.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, P("batch")), MESH)
    with jax.set_mesh(DEVICES):
        assert step.lower(X).metadata.out_specs == {"outputs": (("batch",),)}


FORMS = {
    '#sdy.sharding<@mesh, [{"batch"}, {}]>': (("batch",), ()),
    '#sdy.sharding<@mesh, [{?}, {"model", "batch"}], replicated={"batch"}>': (None, ("model", "batch")),
    '#sdy.sharding<mesh<["batch"=4, "model"=2]>, [{}, {"model"}]>': ((), ("model",)),
    "{devices=[4,1,2]<=[8] last_tile_dim_replicate} unspecified_dims=[1]": (("batch",), None),
    "{devices=[1,8]<=[8]}": ((), ("batch", "model")),
    "{devices=[2,4]<=[4,2]T(1,0)}": (("model",), ("batch",)),
    "{devices=[8,1]<=[4,2]T(1,0)}": (("model", "batch"), ()),
    "{devices=[2,1,4]0,2,4,6,1,3,5,7 last_tile_dim_replicate}": (("model",), ()),
    "{replicated}": ((), ()),
}


@pytest.mark.parametrize("text", FORMS)
def test_both_forms_of_a_constraint_are_read(text):
    assert dims_of_constraint(f"sharding constraint {text}", MESH, 2) == FORMS[text]


@pytest.mark.parametrize("text", ["{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[3,1]<=[3]}"])
def test_devices_that_no_axes_of_the_mesh_tile_over_are_an_error(text):
    with pytest.raises(ap.MeshError, match="no axes of the mesh"):
        dims_of_constraint(f"sharding constraint {text}", MESH, 2)


def test_part_of_an_axis_is_an_error():
    with pytest.raises(ap.MeshError, match='a part of axis "batch"'):
        dims_of_constraint('sharding constraint #sdy.sharding<@mesh, [{"batch":(1)2}, {}]>', MESH, 2)


def test_constraints_in_the_older_form_are_honoured():
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        low = ap.jit(constrained, MESH).lower(X, W)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert low.metadata.out_specs == {"outputs": ((), ("model", "batch"))}
