"""`ap.jit(layouts="auto")`: the compiler chooses layouts in memory, and state keeps them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"d": 8})
BP = ap.ManualPartition({"x": 0}, "d")
CLOSED_OVER = np.arange(8.0, dtype="f4")


def step(state, x, unused):
    return jax.tree.map(lambda w: w - 0.1 * (x.T @ x), state), (x @ state["w"] + CLOSED_OVER).sum()


def arguments():
    return {"w": jnp.ones((8, 8))}, jnp.arange(128.0).reshape(16, 8) / 100, jnp.ones(3)


@pytest.mark.parametrize("donated", [(), (0,)], ids=["kept", "donated"])
def test_numbers_are_those_of_the_usual_layouts(donated):
    usual = ap.jit(step, MESH, [BP])
    free = ap.jit(step, MESH, [BP], donate_argnums=donated, layouts="auto")
    (a, x, y), (b, _, _) = arguments(), arguments()
    for _ in range(3):
        (a, total), (b, other) = usual(a, x, y), free(b, x, y)
        np.testing.assert_allclose(a["w"], b["w"], rtol=1e-6)
        np.testing.assert_allclose(total, other, rtol=1e-6)


def test_formats_are_what_device_put_takes_and_state_leaves_as_it_came():
    compiled = ap.jit(step, MESH, [BP], donate_argnums=0, layouts="auto").lower(*arguments()).compile()
    (state, x, _), _ = compiled.in_formats
    w = jax.device_put(jnp.ones((8, 8)), state["w"])
    made, _ = compiled({"w": w}, *arguments()[1:])
    assert made["w"].format.layout == state["w"].layout
    assert x.sharding == compiled.in_shardings[0][1]


def test_under_jit_the_program_is_part_of_the_one_around_it():
    free = ap.jit(step, MESH, [BP], layouts="auto")
    np.testing.assert_allclose(jax.jit(lambda *a: free(*a)[1])(*arguments()), step(*arguments())[1], rtol=1e-6)


def test_other_words_are_refused():
    with pytest.raises(ap.ArgumentError, match="layouts"):
        ap.jit(step, MESH, [BP], layouts="best")
