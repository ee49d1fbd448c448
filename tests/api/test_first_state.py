"""Does donated state keep its layout between programs of several shapes, or is it said that it moves?"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
W = np.linspace(-1, 1, 16 * 16, dtype="f4").reshape(16, 16)


class ByBatch:
    """A tactic that stores state in parts where the batch is large, as a search might."""

    name = "by batch"

    def act(self, partitioning, context):
        _, x = partitioning.program.arguments
        rows = partitioning.program.type_of(x).shape[0]
        inputs = {"x": 0, **({"w": ap.FIRST_DIVISIBLE_DIM} if rows > 8 else {})}
        return ap.ManualPartition(inputs, axis="a").act(partitioning, context)


def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


def batch(rows):
    return np.ones((rows, 16), "f4") * np.arange(16, dtype="f4") / 16


def test_state_that_moves_between_programs_of_two_shapes_is_said():
    run = ap.jit(step, MESH, [ByBatch()], donate_argnums=0)
    w = run(jnp.asarray(W), batch(8))
    with pytest.warns(ap.LayoutWarning, match=r"step: a call with these shapes moves 1.02 kB of state") as found:
        w = run(w, batch(16))
    assert "w is [a] here, and whole in the first program" in str(found[0].message)
    assert 'state="as first"' in str(found[0].message)
    assert found[0].filename == __file__
    assert w.sharding.spec == jax.sharding.PartitionSpec("a")


def test_state_as_first_keeps_the_layouts_of_the_first_call():
    run = ap.jit(step, MESH, [ByBatch()], donate_argnums=0, state="as first")
    plain = jax.jit(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, theirs = jnp.asarray(W), jnp.asarray(W)
        for rows in (16, 8, 16, 8):
            ours, theirs = run(ours, batch(rows)), plain(theirs, batch(rows))
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            assert ours.sharding.spec == jax.sharding.PartitionSpec("a")


def test_what_is_not_donated_may_lie_anywhere():
    run = ap.jit(step, MESH, [ByBatch()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (8, 16):
            run(W, batch(rows))


def test_state_is_free_or_as_first():
    with pytest.raises(ap.ArgumentError, match="state is 'as last'"):
        ap.jit(step, MESH, state="as last")


def test_sizes_that_the_first_plan_does_not_fit_are_planned_anew():
    run = ap.jit(step, MESH, [ByBatch()], donate_argnums=0, state="as first")
    w = run(jnp.asarray(W), batch(16))
    free = ap.jit(step, ap.Mesh({"a": 4}), [], donate_argnums=0, state="as first")
    np.testing.assert_allclose(free(free(jnp.asarray(W), batch(4)), batch(3)).shape, w.shape)


def test_constraints_in_the_model_are_part_of_the_first_plan():
    devices = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("a"))
    run = ap.jit(
        lambda w, x: step(w, jax.lax.with_sharding_constraint(x, rows)), MESH, [], donate_argnums=0, state="as first"
    )
    ours = jnp.asarray(W)
    for size in (16, 8):
        np.testing.assert_allclose(run(ours, batch(size)), step(W, batch(size)), rtol=1e-5, atol=1e-6)
        ours = jnp.asarray(W)
