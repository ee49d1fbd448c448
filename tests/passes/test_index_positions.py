"""Are indices that count along their own batch found, and do such rows tile with their batch?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.importer import read_module
from autopart.core.passes import run_passes
from tests.prompt import every

ROWS, COLUMNS = 16, 12
MESH = ap.Mesh({"a": 4, "b": 2})
BATCH = ap.ManualPartition({"x": 0, "i": 0}, axis="a", name="batch")


def inputs() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(rng.integers(-2, COLUMNS + 2, ROWS), jnp.int32)


def own(like: jax.Array) -> jax.Array:
    return jnp.arange(like.shape[0])


FOUND = {
    "get": lambda x, i: x[own(x), i],
    "get filled": lambda x, i: x.at[own(x), i].get(mode="fill", fill_value=3),
    "get clipped": lambda x, i: x.at[own(x), i].get(mode="clip"),
    "promised in bounds": lambda x, i: x.at[own(x), jnp.clip(i, 0, 9)].get(mode="promise_in_bounds"),
    "set": lambda x, i: x.at[own(x), i].set(7.0),
    "set dropped": lambda x, i: x.at[own(x), i].set(x[:, 0], mode="drop"),
    "add": lambda x, i: x.at[own(x), i].add(x[:, 1]),
    "multiply": lambda x, i: x.at[own(x), i].multiply(2.0),
    "max": lambda x, i: x.at[own(x), i].max(0.5),
    "gradient": lambda x, i: jax.grad(lambda x: jnp.sum(x[own(x), i] ** 2))(x),
    "wide": lambda x, i: x[lax.iota(jnp.uint8, ROWS), i],
    "one and back": lambda x, i: x[own(x) + 1 - 1, i],
    "two dims": lambda x, i: jnp.stack([x, -x], 1)[own(x)[:, None], jnp.arange(2)[None, :], i[:, None]],
    "a few each": lambda x, i: x[own(x)[:, None], jnp.stack([i, i + 1], 1)],
    "columns": lambda x, i: x.T[i, own(x)],
    "rows of rows": lambda x, i: x.reshape(ROWS, 3, 4)[own(x), i % 3],
    "pooling": lambda x, i: x.reshape(ROWS, 3, 4)[own(x), jnp.argmax(x[:, :3], axis=1)],
}

NOT_FOUND = {
    "shifted": lambda x, i: x[(own(x) + 1) % ROWS, i],
    "backwards": lambda x, i: x[ROWS - 1 - own(x), i],
    "half of the rows": lambda x, i: x[jnp.arange(ROWS // 2), i[: ROWS // 2]],
    "one row": lambda x, i: x[jnp.zeros_like(own(x)), i],
    "bound": lambda x, i: x[jnp.minimum(own(x), 9), i],
    "too narrow a type": lambda x, i: jnp.tile(x, (20, 1))[
        lax.iota("int32", 320).astype("int8").astype("int32"), jnp.tile(i, 20)
    ],
}


def marks(step) -> list[tuple[tuple[int, int], ...]]:
    lowered = jax.jit(step, keep_unused=True).lower(*inputs())
    program = read_module(lowered.compiler_ir("stablehlo"), argument_names=["x", "i"], ties={})
    program, _ = run_passes(program, ["index_positions"])
    return [s.attributes["positions"] for s in program.specs if "positions" in s.attributes]


@pytest.mark.parametrize("name", every(2, FOUND))
def test_a_position_is_found_and_its_batch_tiles_without_a_gather(name):
    step, args = FOUND[name], inputs()
    assert marks(step)
    for schedule in ([BATCH], [ap.ManualPartition({"x": 0, "i": 0}, axis=axis, name=axis) for axis in "ab"]):
        lowered = ap.jit(step, MESH, schedule).lower(*args)
        assert not lowered.program.collectives_by_axis()
        np.testing.assert_array_equal(lowered.compile()(*args), jax.jit(step)(*args))


@pytest.mark.parametrize("name", every(3, FOUND))
def test_other_dims_tile_beside_the_batch(name):
    step, args = FOUND[name], inputs()
    columns = ap.ManualPartition({"x": 1}, axis="b", name="columns")
    for schedule in ([columns], [BATCH, columns]):
        found = ap.jit(step, MESH, schedule).lower(*args).compile()(*args)
        np.testing.assert_allclose(found, jax.jit(step)(*args), rtol=1e-6)


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_no_position_is_not_marked_and_computes_the_same(name):
    step, args = NOT_FOUND[name], inputs()
    assert not marks(step)
    np.testing.assert_array_equal(ap.jit(step, MESH, [BATCH]).lower(*args).compile()(*args), jax.jit(step)(*args))


def test_a_loss_that_picks_each_labels_logit_keeps_its_logits_tiled():
    def loss(w, x, labels):
        logp = jax.nn.log_softmax(x @ w)
        return -jnp.mean(logp[jnp.arange(x.shape[0]), labels])

    def step(w, x, labels):
        value, gradient = jax.value_and_grad(loss)(w, x, labels)
        return w - gradient, value

    args = (jnp.ones((8, 32)), jnp.ones((16, 8)), jnp.arange(16))
    data = ap.ManualPartition({"x": 0, "labels": 0}, axis="a", name="BP")
    lowered = ap.jit(step, MESH, [data]).lower(*args)
    assert lowered.program.collectives_by_axis() == {"a": {"all_reduce": 2}}


def test_a_position_is_followed_through_many_ops():
    def step(x, i):
        rows = own(x)
        for _ in range(400):
            rows = rows + 1
        return x[rows - 400, i]

    assert marks(step)


def test_positions_of_many_elements_are_found():
    def pick(x, i):
        return x[jnp.arange(1 << 14)[:, None], jnp.arange(1 << 12)[None], i]

    shapes = (
        jax.ShapeDtypeStruct((1 << 14, 1 << 12, 8), jnp.float32),
        jax.ShapeDtypeStruct((1 << 14, 1 << 12), jnp.int32),
    )
    low = ap.jit(pick, MESH, [ap.ManualPartition({"x": 0, "i": 0}, "a"), ap.ManualPartition({"x": 1, "i": 1}, "b")])
    assert not low.lower(*shapes).program.collectives_by_axis()


def test_positions_are_found_again_inside_a_loop_over_microbatches():
    def step(x, i):
        return jnp.sum(x[own(x), i])

    args = inputs()
    lowered = ap.jit(step, MESH, [ap.Microbatch({"x": 0, "i": 0}, 2), BATCH]).lower(*args)
    assert lowered.program.collectives_by_axis() == {"a": {"all_reduce": 1}}
    np.testing.assert_allclose(lowered.compile()(*args), jax.jit(step)(*args), rtol=1e-6)
