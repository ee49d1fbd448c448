"""Is what a model partitions by hand, in a `jax.shard_map`, kept as it is, and the rest partitioned around it?"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.costmodel.compiled.links.collective_seconds import collective_seconds
from autopart.costmodel.hardware.links import mesh_links
from autopart.spmd.verify_local import verify

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
DEVICES = jax.make_mesh((4, 2), ("batch", "model"), axis_types=(AxisType.Auto,) * 2)
X = np.linspace(-1, 1, 8 * 16, dtype="f4").reshape(8, 16)
W = np.linspace(-1, 2, 16 * 4, dtype="f4").reshape(16, 4)
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")

by_hand = functools.partial(jax.shard_map, mesh=DEVICES)
over_model = functools.partial(by_hand, axis_names={"model"})


def summed(x, w):
    """x @ w with the contracted dim cut by hand."""
    return jax.lax.psum(x @ w, "model")


def held_to_jax(fun, schedule, *args, **options):
    """Lowers and runs it on 8 devices, beside jax's own partitioner; returns the lowered program."""
    step = ap.jit(fun, MESH, schedule, **options)
    low = step.lower(*args)
    verify(low.program)
    mesh = ap.jit(fun, DEVICES, schedule, **options)
    for found, wanted in zip(jax.tree.leaves(mesh(*args)), jax.tree.leaves(jax.jit(fun)(*args)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)
    return low


def test_a_region_over_all_axes_runs_as_written_and_decides_the_arrays_around_it():
    @functools.partial(by_hand, in_specs=(P("batch", "model"), P("model")), out_specs=P("batch"))
    def inside(x, w):
        return summed(x, w)

    low = held_to_jax(lambda x, w: jnp.tanh(inside(x * 2, w)), [], X, W)
    assert low.metadata.in_specs == {"x": (("batch",), ("model",)), "w": (("model",),)}
    assert low.metadata.out_specs == {"outputs": (("batch",),)}
    assert not low.program.collectives()
    (line,) = low.metadata.tactics[0].report["shardings"]
    assert line.startswith("shard_map ")
    assert "test_shard_map_in_the_model.py" in line
    assert line.endswith(": over batch, model, takes P('batch', 'model'), P('model', None), leaves P('batch', None)")


@jax.jit
def summed_by_a_function(x, w):
    return jax.lax.psum(jnp.where(x > 0, x, 0) @ w + jax.lax.axis_index("model"), "model")


def test_a_region_may_call_functions_that_communicate():
    @functools.partial(over_model, in_specs=(P(None, "model"), P("model")), out_specs=P())
    def inside(x, w):
        return summed_by_a_function(x, w) * summed_by_a_function(x + 1, w)

    held_to_jax(lambda x, w: inside(x, w) + jnp.where(x > 0, x, 0)[:, :4], [BP], X, W)


def test_other_axes_go_through_the_region():
    inside = over_model(summed, in_specs=(P(None, "model"), P("model")), out_specs=P())
    low = held_to_jax(lambda x, w: jnp.tanh(inside(jnp.sin(x), w)), [BP], X, W)
    assert low.metadata.in_specs == {"x": (("batch",), ("model",)), "w": (("model",),)}
    assert low.metadata.out_specs == {"outputs": (("batch",),)}
    assert not low.program.collectives()
    assert low.as_text("stablehlo").count('"stablehlo.all_reduce"') == 1
    assert "to_local(%2) {axes=[model]" in low.as_text("hlo")


def test_a_reduction_along_another_axis_leaves_the_parts_of_the_region_apart():
    """A mean over the batch, inside: summed over "batch", while along "model" each device has its own columns."""

    def normalised(x):
        return x - jnp.mean(x, axis=0) + jax.lax.axis_index("model")

    inside = over_model(normalised, in_specs=P(None, "model"), out_specs=P(None, "model"))
    low = held_to_jax(lambda x: inside(x) * 2, [BP], X)
    assert low.program.collectives() == {"all_reduce": 1}


def test_a_gather_along_another_axis_moves_nothing_along_the_regions_own():
    """What is whole along "model" on paper differs from device to device: no copies for the planner to use."""

    def mixed(x):
        y = x * (1.0 + jax.lax.axis_index("model"))
        return jnp.flip(jnp.cumsum(y, axis=0), axis=0)

    inside = over_model(mixed, in_specs=P(None, "model"), out_specs=P(None, "model"))
    held_to_jax(lambda x: inside(jnp.sin(x)), [BP], X)


@pytest.mark.parametrize(
    ("inside", "out"),
    [
        (lambda x: jax.lax.all_gather(x, "model", axis=1, tiled=True), P()),
        (lambda x: jax.lax.psum_scatter(x, "model", scatter_dimension=1, tiled=True), P(None, "model")),
        (lambda x: jax.lax.all_to_all(x, "model", 1, 0, tiled=True), P("model")),
        (lambda x: jax.lax.ppermute(x, "model", [(0, 1), (1, 0)]), P(None, "model")),
        (lambda x: jax.lax.pmax(x, "model"), P()),
        (lambda x: jax.lax.cond(jax.lax.axis_index("model") == 0, jnp.sin, jnp.cos, x), P(None, "model")),
    ],
    ids=["all_gather", "psum_scatter", "all_to_all", "ppermute", "pmax", "cond"],
)
def test_every_collective_of_a_region_runs_beside_tiles_along_other_axes(inside, out):
    region = over_model(inside, in_specs=P(None, "model"), out_specs=out, check_vma=False)
    low = held_to_jax(lambda x: region(x) + 1, [BP], X)
    assert low.metadata.in_specs["x"][0] == ("batch",)


def test_regions_in_scans_and_under_remat_and_grad():
    inside = over_model(summed, in_specs=(P(None, "model"), P("model")), out_specs=P())

    def loss(w, x):
        @jax.checkpoint
        def layer(h, w):
            return jnp.tanh(jnp.concatenate([inside(h, w)] * 4, axis=1)), None

        return jnp.mean(jax.lax.scan(layer, x, w)[0] ** 2)

    weights = np.stack([W, W / 2, -W]) / 4
    low = held_to_jax(jax.value_and_grad(loss), [BP], weights, X)
    assert low.metadata.in_specs["w"] == ((), ("model",))
    assert len(low.metadata.tactics[0].report["shardings"]) >= 2


def test_constraints_in_scans_remat_and_custom_vjp_hold():
    on = jax.sharding.NamedSharding(DEVICES, P("batch"))

    @jax.custom_vjp
    def kept(h):
        return jax.lax.with_sharding_constraint(h, on)

    kept.defvjp(lambda h: (kept(h), None), lambda _, g: (jax.lax.with_sharding_constraint(g, on),))

    def loss(w, x):
        layer = jax.checkpoint(lambda h, w: (jnp.tanh(kept(h) @ w), None))
        return jnp.mean(jax.lax.scan(layer, x, w)[0] ** 2)

    weights = np.linspace(-0.3, 0.3, 2 * 16 * 16, dtype="f4").reshape(2, 16, 16)
    low = held_to_jax(jax.value_and_grad(loss), [], weights, X)
    assert low.metadata.in_specs["x"] == (("batch",),)
    lines = low.metadata.tactics[0].report["shardings"]
    assert len(lines) >= 2
    assert all("test_shard_map_in_the_model.py" in line for line in lines)


def test_the_regions_own_collectives_are_priced():
    def step(collective):
        inside = over_model(collective, in_specs=P(None, "model"), out_specs=P(None, "model"))
        return ap.jit(lambda x: inside(x) * 2, MESH, [BP]).lower(jax.ShapeDtypeStruct((4096, 8192), "float32")).estimate

    with_sum, without = step(lambda x: jax.lax.psum(x, "model") / 2), step(lambda x: x / 2)
    assert with_sum.collective_s > 0
    assert without.collective_s == 0
    assert with_sum.collective_s == collective_seconds(mesh_links(MESH), "all_reduce", 4096 / 4 * 8192 / 2 * 4, "model")


def test_the_code_inside_cannot_be_tiled_along_the_regions_axes():
    inside = over_model(lambda x: ap.tag("h", jnp.sin(x)), in_specs=P(None, "model"), out_specs=P(None, "model"))
    with pytest.raises(ap.TileError, match="whole"):
        ap.jit(inside, MESH, [ap.ManualPartition({"h": 0}, axis="model")]).lower(X)
    low = held_to_jax(inside, [ap.ManualPartition({"h": 0}, axis="batch")], X)
    assert low.metadata.out_specs == {"outputs": (("batch",), ("model",))}


def test_a_region_over_another_mesh_says_so():
    inside = over_model(summed, in_specs=(P(None, "model"), P("model")), out_specs=P())
    with pytest.raises(ap.MeshError, match='axis "batch" is not in the mesh') as error:
        ap.jit(inside, ap.Mesh({"data": 4, "model": 2})).lower(X, W)
    assert "test_shard_map_in_the_model.py" in str(error.value)
    with pytest.raises(ap.MeshError, match="same order"):
        ap.jit(inside, ap.Mesh({"model": 2, "batch": 4})).lower(X, W)


def test_constraints_that_are_ignored_leave_the_region_which_is_what_the_program_computes():
    inside = over_model(summed, in_specs=(P(None, "model"), P("model")), out_specs=P())
    low = held_to_jax(inside, [BP], X, W, constraints="ignore")
    assert low.metadata.in_specs["w"] == (("model",),)


def test_what_runs_on_one_device_or_in_a_loop_refuses_a_region():
    inside = over_model(summed, in_specs=(P(None, "model"), P("model")), out_specs=P())
    with pytest.raises(ap.CallError, match="shard_map of the model"):
        ap.jit(inside, MESH, [BP]).lower(X, W).interpret(X, W)
    with pytest.raises(ap.ArgumentError, match="has a shard_map"):
        ap.jit(inside, MESH, [ap.Microbatch({"x": 0}, 2)]).lower(X, W)


@pytest.mark.parametrize("optimizer", ["greedy", "ilp"])
def test_a_search_decides_around_it_and_its_plan_is_one(optimizer):
    inside = over_model(summed, in_specs=(P(None, "model"), P("model")), out_specs=P())

    def loss(w, x):
        return jnp.mean(jnp.tanh(inside(x, w)) ** 2)

    search = ap.AutomaticPartition(axes=["batch", "model"], optimizer=optimizer, budget=ap.Budget(evaluations=30))
    args = [jax.ShapeDtypeStruct((16, 4), "float32"), jax.ShapeDtypeStruct((4096, 16), "float32")]
    low = ap.jit(jax.value_and_grad(loss), MESH, [search]).lower(*args)
    verify(low.program)
    again = ap.jit(jax.value_and_grad(loss), MESH, low.plan).lower(*args)
    assert again.metadata.in_specs == low.metadata.in_specs
    assert low.metadata.in_specs["w"] == (("model",),)


# ---- over the mesh in context


def in_context(x, w):
    return jnp.tanh(jax.shard_map(summed, in_specs=(P("batch", "model"), P("model")), out_specs=P("batch"))(x, w))


def constrained_in_context(x, w):
    return jax.lax.with_sharding_constraint(x @ w, P("batch"))


@pytest.mark.parametrize("fun", [in_context, constrained_in_context])
def test_where_no_mesh_is_set_the_one_that_is_given_is_in_context(fun):
    step = ap.jit(fun, MESH)
    assert step.lower(X, W).metadata.out_specs == {"outputs": (("batch",),)}
    with jax.set_mesh(DEVICES):
        expected = jax.jit(fun)(X, W)
    np.testing.assert_allclose(ap.jit(fun, DEVICES)(X, W), expected, rtol=2e-5, atol=1e-5)


def test_a_function_that_does_without_a_mesh_in_context_is_traced_without():
    seen = []
    ap.jit(lambda x: seen.append(jax.sharding.get_abstract_mesh()) or x * 2, MESH).lower(X)
    assert [mesh.empty for mesh in seen] == [True]


def test_a_mesh_in_context_that_lacks_what_the_function_names_says_what_to_do():
    with pytest.raises(ap.ProgramError, match=r"in_context wants a mesh in context[\s\S]*an ap.Mesh with the axes"):
        ap.jit(in_context, ap.Mesh({"rows": 8})).lower(X, W)
    with pytest.raises(ValueError, match="no mesh at all") as error:
        ap.jit(lambda x: fail("no mesh at all"), MESH).lower(X)
    assert not isinstance(error.value, ap.PartitionError)


def fail(text):
    raise ValueError(text)
