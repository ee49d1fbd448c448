"""What happens to a partitioned function under jax's transformations: does it run, or say what to do instead?"""

from __future__ import annotations

import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap

X = np.linspace(-1, 1, 32, dtype="f4").reshape(8, 4)
STEP = ap.jit(lambda x: jnp.sin(x) * 2, ap.Mesh({"batch": 8}), [ap.ManualPartition({"x": 0}, axis="batch")])
EXPECTED = np.sin(X) * 2
OTHER = jax.make_mesh((4, 2), ("p", "q"))

RUNS = {
    "jit": lambda: jax.jit(STEP)(X),
    "jit inside other ops": lambda: jax.jit(lambda x: STEP(x * 1) + 0)(X),
    "jit ahead of time": lambda: jax.jit(STEP).lower(X).compile()(X),
    "nnx.jit": lambda: flax.nnx.jit(STEP)(X),
    "scan": lambda: jax.lax.scan(lambda c, _: (c, STEP(c)), jnp.asarray(X), None, length=2)[1][1],
    "cond": lambda: jax.jit(lambda x: jax.lax.cond(x[0, 0] < 0, STEP, lambda x: x, x))(X),
    "its own results": lambda: jax.jit(lambda x: STEP(x))(STEP(np.arcsin(X / 2)) * 1),
    "an array of another mesh": lambda: STEP(jax.device_put(X, NamedSharding(OTHER, P("p", "q")))),
}


@pytest.mark.parametrize("name", RUNS)
def test_it_runs_under(name):
    np.testing.assert_allclose(RUNS[name](), EXPECTED, rtol=1e-5, atol=1e-6)


def test_it_runs_inside_another_mesh():
    with jax.set_mesh(OTHER):
        np.testing.assert_allclose(STEP(X), EXPECTED, rtol=1e-5)


def test_shapes_are_known_without_running():
    assert jax.eval_shape(STEP, X) == jax.ShapeDtypeStruct((8, 4), "float32")
    assert "shard_map" in str(jax.make_jaxpr(STEP)(X))


REFUSED = {
    "grad": (lambda: jax.grad(lambda x: STEP(x).sum())(X), r"differentiated[\s\S]*ap.jit\(jax.grad"),
    "grad of jit": (lambda: jax.grad(lambda x: jax.jit(STEP)(x).sum())(X), r"differentiated[\s\S]*ap.jit\(jax.grad"),
    "vjp": (lambda: jax.vjp(STEP, X), "differentiated"),
    "jvp": (lambda: jax.jvp(STEP, (X,), (X,)), "differentiated"),
    "linearize": (lambda: jax.linearize(STEP, X), "differentiated"),
    "remat": (lambda: jax.grad(lambda x: jax.checkpoint(STEP)(x).sum())(X), "differentiated"),
    "vmap": (lambda: jax.vmap(STEP)(np.stack([X, X])), r"mapped over a batch[\s\S]*ap.jit\(jax.vmap"),
    "vmap of jit": (lambda: jax.vmap(jax.jit(STEP))(np.stack([X, X])), r"mapped over a batch"),
    "ap.jit of another mesh": (lambda: ap.jit(STEP, ap.Mesh({"a": 2}))(X), r"over the mesh \{.*\}, not \{a:2\}"),
    "shard_map": (
        lambda: jax.shard_map(STEP, mesh=OTHER, in_specs=P(), out_specs=P())(X),
        r"traced for the mesh \{'p': 4, 'q': 2\}",
    ),
    "jit of an array of another mesh": (
        lambda: jax.jit(STEP)(jax.device_put(X, NamedSharding(OTHER, P("p", "q")))),
        r"traced for the mesh \{'p': 4, 'q': 2\}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_what_to_do_instead_of(name):
    call, says = REFUSED[name]
    with pytest.raises(ap.PartitionError, match=says):
        call()


def test_a_function_partitioned_over_the_same_mesh_is_a_region_of_the_program():
    outer = ap.jit(lambda x: STEP(x) * 2, ap.Mesh({"batch": 8}))
    np.testing.assert_allclose(outer(X), 2 * EXPECTED, rtol=1e-5)


CLOSING = {
    "jit": lambda inner: jax.jit(inner),
    "grad": lambda inner: jax.grad(lambda y: inner(y).sum()),
    "vmap": lambda inner: jax.vmap(inner),
    "scan": lambda inner: lambda x: jax.lax.scan(lambda c, y: (c, inner(y)), 0, x),
}


@pytest.mark.parametrize("read", ["inside", "inside a call", "as it is"])
@pytest.mark.parametrize("around", CLOSING)
def test_a_value_of_the_trace_around_that_is_closed_over_is_to_be_an_argument(around, read):
    def inner(y):
        def close(x):
            return {"inside": lambda: x + y, "inside a call": lambda: jax.jit(jnp.add)(x, y), "as it is": lambda: y}[
                read
            ]()

        return ap.jit(close, ap.Mesh({"batch": 8}))(X)

    with pytest.raises(
        ap.ProgramError, match=r"close closes over a traced value[\s\S]*pass it as an argument"
    ) as error:
        CLOSING[around](inner)(X)
    assert ("test_under_transformations.py:" in str(error.value)) == (read != "as it is")


def test_what_is_closed_over_and_has_a_value_is_none_of_the_trace_around():
    table = jnp.ones((8, 4))
    found = jax.jit(lambda x: ap.jit(lambda x: x * table, ap.Mesh({"batch": 8}))(x))(X)
    np.testing.assert_array_equal(found, X)


def test_without_jit_the_function_runs_op_by_op_and_a_compiled_program_as_it_is(tmp_path):
    seen = []
    step = ap.jit(lambda x: seen.append(x) or jnp.sin(x) * 2, ap.Mesh({"batch": 8}))
    compiled = step.lower(X).compile()
    file = tmp_path / "sin.mlir"
    file.write_text(jax.jit(lambda x: jnp.sin(x) * 2).lower(X).as_text())
    loaded = ap.jit(ap.load(file), ap.Mesh({"batch": 8}))
    with jax.disable_jit():
        results = step(X), step(X), compiled(X), loaded(X)
    for found in results:
        np.testing.assert_allclose(jax.tree.leaves(found)[0], EXPECTED, rtol=1e-5)
    assert [isinstance(x, np.ndarray) for x in seen] == [False, True, True]
