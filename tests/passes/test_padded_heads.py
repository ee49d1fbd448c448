"""Are heads of a merged dim padded where a tag names them, and divided with the matmuls before and after?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

HEADS, WIDE = 5, 4
MESH = ap.Mesh({"batch": 2, "model": 4})
R = np.random.default_rng(0)
PARAMS = {name: (R.normal(size=(20, 20)) / 5).astype("f4") for name in ("q", "k", "v", "o")}
X = R.normal(size=(4, 8, 20)).astype("f4")
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
PADDED = ap.ManualPartition({"heads_*": 2}, axis="model", uneven="pad", name="HEADS")


def attended(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    def heads(name: str) -> jax.Array:
        return ap.tag(f"heads_{name}", (x @ params[name]).reshape(*x.shape[:2], HEADS, WIDE))

    q, k, v = (heads(name) for name in ("q", "k", "v"))
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ params["o"]


def trained(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    gradients = jax.grad(lambda params: jnp.sum(attended(params, x) ** 2))(params)
    return jax.tree.map(lambda w, g: w - 0.01 * g, params, gradients)


@pytest.mark.parametrize("fun", [attended, trained])
def test_numbers_are_the_same_and_all_matmuls_divided(fun):
    step = ap.jit(fun, MESH, [BP, PADDED])
    low = step.lower(PARAMS, X)
    for want, got in zip(jax.tree.leaves(jax.jit(fun)(PARAMS, X)), jax.tree.leaves(step(PARAMS, X)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert low.metadata.flop_divided["model"] > 0.9


def test_they_are_summed_once_as_even_heads_are():
    low = ap.jit(attended, MESH, [BP, PADDED]).lower(PARAMS, X)
    assert {kind: n for kind, n in low.program.collectives().items() if n} == {"all_reduce": 1}


def test_stored_weights_may_be_tiled_evenly_beside_it():
    tiled = ap.ManualPartition({"params": {"q": 1, "k": 1, "v": 1}}, axis="model", name="STORED")
    step = ap.jit(trained, MESH, [BP, tiled, PADDED])
    for want, got in zip(jax.tree.leaves(jax.jit(trained)(PARAMS, X)), jax.tree.leaves(step(PARAMS, X)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert step.lower(PARAMS, X).metadata.in_specs["params/q"] == ((), ("model",))


def test_a_search_pads_what_a_tag_names():
    params = {name: jax.ShapeDtypeStruct((1600, 1600), np.float32) for name in PARAMS}
    x = jax.ShapeDtypeStruct((2, 4096, 1600), np.float32)

    def step(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        q, k, v = (ap.tag(f"heads_{n}", (x @ params[n]).reshape(*x.shape[:2], 25, 64)) for n in ("q", "k", "v"))
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ params["o"]

    search = ap.AutomaticPartition(["model"], uneven="pad", cache=False, progress=False, budget=ap.Budget(20))
    low = ap.jit(step, ap.Mesh(MESH.shape, device="tpu_v3"), [BP, search]).lower(params, x)
    tried = str(low.metadata.tactics[-1].report)
    assert "heads_" in tried
    assert low.metadata.flop_divided["model"] > 0.9


def test_rows_of_a_stored_table_are_read_where_it_is_whole():
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(table[tokens] @ table.T)

    padded = ap.ManualPartition({"table": 0}, axis="model", uneven="pad", name="VOCABULARY")
    table, tokens = R.normal(size=(51, 8)).astype("f4"), R.integers(0, 51, (4, 8))
    step = ap.jit(fun, MESH, [padded])
    np.testing.assert_allclose(step(table, tokens), jax.jit(fun)(table, tokens), rtol=1e-4, atol=1e-4)
    reduced = [line for line in step.lower(table, tokens).as_text("hlo").splitlines() if "all_reduce" in line]
    assert all("x8xf32" not in line for line in reduced), reduced
