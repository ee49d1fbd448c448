"""Are shardings that come with a program its first decisions: those given to `ap.jit`, and the model's constraints?"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.core.importer.constraints import constraint_of

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


# ---- outputs that something else lays out too


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.permutations([P("batch"), P(None, "batch"), P("model"), P()], 2))
)
def test_an_argument_that_comes_back_is_laid_out_as_it_is_wanted(before, after):
    shardings = {"in_shardings": (before, P()), "out_shardings": (after, None)}
    step = ap.jit(lambda frozen, x: (frozen, x @ frozen), MESH, **shardings)
    frozen, product = step(X, X)
    np.testing.assert_array_equal(frozen, X)
    np.testing.assert_allclose(product, X @ X, rtol=1e-5, atol=1e-5)
    assert frozen.sharding.is_equivalent_to(on(*after), 2)
    assert step.lower(X, X).in_shardings[0][0].spec == before


def test_an_identity_is_a_resharding(tmp_path):
    rows, columns = {"in_shardings": P("batch"), "out_shardings": P(None, "batch")}, on(None, "batch")
    assert ap.jit(lambda x: x, MESH, **rows)(X).sharding.is_equivalent_to(columns, 2)
    low = ap.jit(lambda x: x, MESH, **rows).lower(X)
    assert low.program.collectives() == {"all_to_all": 1}
    file = tmp_path / "identity.mlir"
    file.write_text(jax.jit(lambda x: x).lower(X).as_text())
    assert ap.jit(ap.load(file), MESH, **rows)(X)[0].sharding.is_equivalent_to(columns, 2)


def test_two_outputs_of_one_value_are_laid_out_each_by_itself():
    def twice(x):
        y = jnp.tanh(x)
        return y, y, jax.lax.with_sharding_constraint(y, on("model"))

    wanted = P("batch"), P(None, "batch"), P(None, "model")
    for found, spec in zip(ap.jit(twice, MESH, out_shardings=wanted)(X), wanted, strict=True):
        np.testing.assert_allclose(found, np.tanh(X), rtol=1e-5)
        assert found.sharding.is_equivalent_to(on(*spec), 2)


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
    with pytest.raises(ap.ArgumentError, match="on which mesh"):
        ap.jit(schedule=[BP])(lambda x: x)(X)


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
    '#sdy.sharding<mesh<["batch"=4, "model"=2]>, [{"batch"}, {}]>': (("batch",), ()),
    '#sdy.sharding<mesh<["batch"=4, "model"=2]>, [{?}, {"model", "batch"}], replicated={"batch"}>': (
        None,
        ("model", "batch"),
    ),
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
    assert constraint_of(f"sharding constraint {text}", MESH, 2) == (FORMS[text], {"batch", "model"})


@pytest.mark.parametrize("text", ["{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[3,1]<=[3]}"])
def test_devices_that_no_axes_of_the_mesh_tile_over_are_an_error(text):
    with pytest.raises(ap.MeshError, match="no axes of the mesh"):
        constraint_of(f"sharding constraint {text}", MESH, 2)


def test_part_of_an_axis_is_an_error():
    with pytest.raises(ap.MeshError, match='a part of axis "batch"'):
        constraint_of('sharding constraint #sdy.sharding<mesh<["batch"=4]>, [{"batch":(1)2}, {}]>', MESH, 2)


def test_constraints_in_the_older_form_are_honoured():
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        low = ap.jit(constrained, MESH).lower(X, W)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert low.metadata.out_specs == {"outputs": ((), ("model", "batch"))}


# ---- over another mesh than ours


def over(sizes, *dims, explicit=False):
    kinds = (AxisType.Explicit if explicit else AxisType.Auto,) * len(sizes)
    return NamedSharding(jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=kinds), P(*dims))


def scanned(x, where):
    return jax.lax.scan(lambda h, _: (jax.lax.with_sharding_constraint(h * 2, where), None), x, None, 3)[0]


def branched(x, where):
    return jax.lax.cond(x[0, 0] > 0, lambda x: jax.lax.with_sharding_constraint(x * 2, where), lambda x: x, x)


def with_rule(x, where):
    rule = jax.custom_vjp(lambda x: jax.lax.with_sharding_constraint(x * 2, where))
    rule.defvjp(lambda x: (rule(x), None), lambda _, g: (jax.lax.with_sharding_constraint(g, where),))
    return jax.grad(lambda x: (rule(x) ** 2).sum())(x)


WAYS = {
    "constraint": lambda x, where: jax.lax.with_sharding_constraint(x * 2, where),
    "scan": scanned,
    "cond": branched,
    "custom_vjp": with_rule,
    "jit": lambda x, where: jax.jit(jnp.tanh, in_shardings=where, out_shardings=where)(x * 2),
    "device_put": lambda x, where: jax.device_put(x * 2, where),
    "one device": lambda x, _: jax.lax.with_sharding_constraint(
        x * 2, jax.sharding.SingleDeviceSharding(jax.devices()[0])
    ),
}
LAPTOPS = {"another axis": ({"d": 1}, None), "its name": ({"d": 1}, "d"), "our axes": ({"batch": 1, "model": 1}, None)}


@pytest.mark.parametrize("shardy", [True, False])
@pytest.mark.parametrize("laptop", LAPTOPS)
@pytest.mark.parametrize("way", WAYS)
def test_a_constraint_over_one_device_says_nothing(way, laptop, shardy):
    sizes, axis = LAPTOPS[laptop]
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        low = ap.jit(lambda x: WAYS[way](x, over(sizes, axis, None)), MESH, [BP]).lower(X)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert [t.name for t in low.metadata.tactics] == ["BP"]
    assert low.metadata.out_specs["outputs"] == (("batch",),)


def test_a_reshard_over_one_explicit_device_says_nothing():
    where = over({"d": 1}, None, None, explicit=True)
    low = ap.jit(lambda x: jax.sharding.reshard(x * 2, where), MESH, [BP]).lower(X)
    assert low.metadata.out_specs["outputs"] == (("batch",),)


def test_a_constraint_says_nothing_of_the_axes_that_its_mesh_lacks():
    rows = over({"model": 2}, None, None)
    low = ap.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, rows), MESH, [BP]).lower(X)
    assert low.metadata.out_specs["outputs"] == (("batch",),)
    columns = ap.ManualPartition({"x": 1}, axis="model")
    low = ap.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, rows), MESH, [columns]).lower(X)
    assert low.metadata.out_specs["outputs"] == ()


def test_a_named_axis_of_one_device_is_ours_where_we_have_it():
    here = over({"batch": 1, "stage": 1}, "stage", "batch")
    low = ap.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, here), MESH).lower(X)
    assert low.metadata.out_specs["outputs"] == ((), ("batch",))


def test_shardings_that_are_given_say_nothing_of_the_axes_that_their_mesh_lacks():
    one = over({"d": 1}, "d", None)
    low = ap.jit(linear, MESH, [BP], in_shardings=one, out_shardings=one).lower(X, W)
    assert low.metadata.in_specs["x"] == (("batch",),)
    with pytest.raises(ap.MeshError, match='"d" is not in the mesh'):
        ap.jit(linear, MESH, in_shardings=over({"d": 2}, "d")).lower(X, W)


@pytest.mark.parametrize(
    "op",
    [
        'sdy.sharding_constraint %0 <@empty, [{}, {}]> : tensor<8x8xf32>',
        'sdy.sharding_constraint %0 <@laptop, [{}, {}]> : tensor<8x8xf32>',
        'sdy.sharding_constraint %0 <mesh<["d"=1]>, [{"d"}, {}]> : tensor<8x8xf32>',
        'sdy.reshard %0 <@laptop, [{}, {}]> : tensor<8x8xf32>',
        *(
            f'stablehlo.custom_call @Sharding(%0) {{mhlo.sharding = "{text}"}} : (tensor<8x8xf32>) -> tensor<8x8xf32>'
            for text in ("{replicated}", "{maximal device=0}", "{devices=[1,1]<=[1]}", "{manual}")
        ),
    ],
)  # fmt: skip
def test_a_constraint_over_one_device_in_a_file_says_nothing(op, tmp_path):
    file = tmp_path / "one.mlir"
    file.write_text(f"""module attributes {{mhlo.num_partitions = 1 : i32}} {{
  sdy.mesh @empty = <[]>
  sdy.mesh @laptop = <["batch"=1, "model"=1]>
  func.func @main(%x: tensor<8x8xf32> loc("x")) -> tensor<8x8xf32> {{
    %0 = stablehlo.tanh %x : tensor<8x8xf32>
    %1 = {op}
    return %1 : tensor<8x8xf32>
  }}
}}""")
    low = ap.jit(ap.load(file), MESH, [BP]).lower()
    assert list(low.metadata.out_specs.values()) == [(("batch",),)]


def test_random_keys_come_with_no_shardings():
    def noisy(key, x):
        first, second = jax.random.split(key)
        return x + jax.random.normal(first, x.shape), second

    low = ap.jit(noisy, MESH, [BP]).lower(jax.eval_shape(jax.random.key, 0), X)
    assert [t.name for t in low.metadata.tactics] == ["BP"]
    assert not low.traced.program.tags


def test_constraints_that_keep_values_whole_are_named_with_the_way_out():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("batch",))
    whole = NamedSharding(mesh, P(None, None))

    def program(w, x):
        return jnp.tanh(jax.lax.with_sharding_constraint(jnp.tanh(x @ w), whole) @ w)

    bp = ap.ManualPartition({"x": 0}, axis="batch")
    said = str(ap.jit(program, ap.Mesh({"batch": 4}), [bp]).lower(jnp.ones((8, 8)), jnp.ones((16, 8))).metadata)
    assert "batch: constraints in the model keep 1 value whole on it, the largest f32[16,8] by with_sharding" in said
    assert 'constraints="ignore" leaves them out' in said
    free = ap.jit(program, ap.Mesh({"batch": 4}), [bp], constraints="ignore").lower(jnp.ones((8, 8)), jnp.ones((16, 8)))
    assert "constraints" not in str(free.metadata)
