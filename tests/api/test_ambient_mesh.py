"""Is the mesh that is set used where none is given, and do results come back on it?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import autopart as ap

ROWS = [ap.ManualPartition({"x": 0}, "data")]
X = np.arange(64.0, dtype=np.float32).reshape(8, 8)


def rows(x):
    return (jnp.tanh(x) * 2).sum(1)


def mesh_of(kind: AxisType, shape=(8,), names=("data",)):
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_without_a_mesh_it_runs_on_the_one_that_is_set(kind):
    step = ap.jit(rows, schedule=ROWS)
    for shape, names in [((8,), ("data",)), ((4, 2), ("data", "model"))]:
        with jax.set_mesh(mesh_of(kind, shape, names)):
            assert step(X).sharding.spec == PartitionSpec("data")
            assert step.lower(X).metadata.mesh == dict(zip(names, shape, strict=True))


@pytest.mark.filterwarnings("ignore:.*with mesh.*:DeprecationWarning")
def test_with_mesh_sets_one_too():
    with jax.sharding.Mesh(np.array(jax.devices()), ("data",)):
        assert ap.jit(rows, schedule=ROWS)(X).sharding.spec == PartitionSpec("data")


def test_a_decorator_needs_no_mesh():
    @ap.jit(schedule=ROWS)
    def step(x):
        return rows(x)

    with jax.set_mesh(mesh_of(AxisType.Auto)):
        np.testing.assert_allclose(step(X), rows(X), rtol=1e-6)


def test_where_none_is_set_that_is_said():
    with pytest.raises(ap.ArgumentError, match="none is set"):
        ap.jit(rows)(X)


@pytest.mark.parametrize("given", ["ap.Mesh", "the mesh", "none"])
def test_results_go_on_with_arrays_of_explicit_axes(given):
    mesh = mesh_of(AxisType.Explicit)
    over = {"ap.Mesh": ap.Mesh({"data": 8}), "the mesh": mesh, "none": None}[given]
    step = ap.jit(rows, over, ROWS)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, PartitionSpec("data"))
        for array in (X, x, x):
            assert jax.typeof(step(array) * 2 + x[:, 0]).sharding.spec == PartitionSpec("data")
        inside = jax.jit(lambda x: step(x) * 2)(x)
        np.testing.assert_allclose(inside, 2 * rows(X), rtol=1e-6)


def test_a_mesh_of_explicit_axes_is_kept_where_none_is_set():
    mesh = mesh_of(AxisType.Explicit)
    out = ap.jit(rows, mesh, ROWS)(jax.device_put(X, jax.NamedSharding(mesh, PartitionSpec("data"))))
    assert out.sharding.mesh == mesh


def test_explicit_axes_constrain_nothing_but_what_the_model_says():
    mesh = mesh_of(AxisType.Explicit)
    pinned = lambda x: jax.sharding.reshard(x, PartitionSpec()) * 2  # noqa: E731
    with jax.set_mesh(mesh):
        free, kept = ap.jit(rows, mesh, ROWS).lower(X).metadata, ap.jit(pinned, mesh, []).lower(X).metadata
    assert [tactic.name for tactic in free.tactics] == ["ManualPartition[data]"]
    assert kept.tactics[0].name == "given shardings"
