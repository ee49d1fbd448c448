"""Does every keyword of `jax.jit` do in `ap.jit` what it does there, or say what to use instead?"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
ON = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
X = np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8)
LARGE = np.ones((16, 1024), "f4")


def reads_one(x, large):
    return {"y": jnp.tanh(x) * 2}


def arguments_of(module):
    """How many arguments the main function of a module's text takes."""
    return module.partition("@main(")[2].partition(") ->")[0].count("%arg")


def test_every_keyword_of_jax_jit_is_one_of_ours():
    missing = inspect.signature(jax.jit).parameters.keys() - inspect.signature(ap.jit).parameters.keys()
    assert not missing


@pytest.mark.parametrize("keep_unused", [False, True])
def test_an_argument_that_nobody_reads_is_passed_only_if_it_is_to_be_kept(keep_unused):
    low = ap.jit(reads_one, MESH, [BP], keep_unused=keep_unused).lower(X, LARGE)
    plain = jax.jit(reads_one, keep_unused=keep_unused).lower(X, LARGE)
    assert arguments_of(low.as_text("stablehlo")) == arguments_of(plain.as_text()) == 1 + keep_unused
    assert low.metadata.in_specs == {"x": (("batch",),), "large": ()}


def test_an_argument_is_priced_where_it_is_passed():
    passed, kept = (ap.jit(reads_one, MESH, [BP], keep_unused=k).lower(X, LARGE).estimate for k in (False, True))
    assert kept.argument_bytes - passed.argument_bytes == LARGE.nbytes


def test_an_argument_that_nobody_reads_stays_where_it_is():
    elsewhere = jax.device_put(LARGE, jax.devices()[5])
    step = ap.jit(reads_one, ON, [BP])
    for _ in range(2):
        np.testing.assert_allclose(step(X, elsewhere)["y"], np.tanh(X) * 2, rtol=1e-5)
    assert elsewhere.devices() == {jax.devices()[5]}
    kept = ap.jit(reads_one, ON, [BP], keep_unused=True)
    np.testing.assert_allclose(kept(X, elsewhere)["y"], np.tanh(X) * 2, rtol=1e-5)


def test_a_donated_argument_that_nobody_reads_is_not_consumed_and_may_be_replaced():
    def renewed(x, state):
        return jnp.tanh(x), jnp.ones_like(state) * 3

    step = ap.jit(renewed, ON, [BP], donate_argnums=1)
    state = jax.device_put(X, step.lower(X, X).compile().in_shardings[0][1])
    np.testing.assert_allclose(step(X, state)[1], np.full((8, 8), 3.0))
    assert not state.is_deleted()


def test_a_schedule_may_name_an_argument_that_nobody_reads():
    low = ap.jit(reads_one, ON, [ap.ManualPartition({"large": 0}, axis="model")], in_shardings=None).lower(X, LARGE)
    assert low.metadata.in_specs["large"] == (("model",),)
    np.testing.assert_allclose(low.compile()(X, LARGE)["y"], np.tanh(X) * 2, rtol=1e-5)


def test_an_argument_that_is_an_output_is_passed():
    step = ap.jit(lambda x, y: (x * 2, y), ON, [BP])
    np.testing.assert_array_equal(step(X, X)[1], X)


def test_inline_leaves_no_call_around_the_program():
    def around(inline):
        step = ap.jit(lambda x: jnp.tanh(x), ON, [BP], inline=inline)
        return [e.primitive.name for e in jax.make_jaxpr(lambda x: step(x))(X).eqns]

    assert around(True)[-1] == "shard_map"
    assert around(False)[-1] == "jit"


@pytest.mark.parametrize("keyword", ["device", "backend"])
def test_where_it_runs_is_said_by_the_mesh(keyword):
    given = {"device": jax.devices()[0], "backend": "cpu"}[keyword]
    with pytest.raises(ap.ArgumentError, match=f"{keyword} is.*") as error:
        ap.jit(reads_one, ON, [BP], **{keyword: given})
    assert "jax.sharding.Mesh" in str(error.value)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[4:8]), ("batch",), axis_types=(AxisType.Auto,))
    result = ap.jit(reads_one, mesh, [BP])(X, LARGE)["y"]
    assert result.devices() == set(jax.devices()[4:8])


@pytest.mark.parametrize("keyword", ["static_argnums", "static_argnames", "donate_argnums", "donate_argnames"])
def test_none_is_none_of_them(keyword):
    step = ap.jit(reads_one, ON, [BP], **{keyword: None})
    np.testing.assert_allclose(step(X, X)["y"], np.tanh(X) * 2, rtol=1e-5)
