"""Are the blocks that `ap.Recompute` finds the layers that a user would write `jax.checkpoint` around?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"d": 4}, device="tpu_v3")
BP = ap.ManualPartition({"x": 0}, axis="d")
WIDE = 64


def normed(x):
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def two_halves(w, x):
    """A layer whose middle is as narrow as its ends, as that of a transformer."""
    x = x + jnp.tanh(normed(x) @ w["a"]) @ w["b"]
    return x + jax.nn.silu(normed(x) @ w["a"]) @ w["b"]


def two_pairs(w, x):
    """A layer of two equal pairs of matmuls with a way around both."""
    inside = x
    for _ in range(2):
        inside = jnp.sin(normed(inside) @ w["a"]) @ w["b"]
    return x + inside


def grouped(w, x):
    """A layer that begins with a view of what enters it."""
    groups = x.reshape(*x.shape[:-1], 4, -1)
    groups = groups - jnp.mean(groups, axis=-1, keepdims=True)
    return x + jnp.sin(groups.reshape(x.shape) @ w["a"]) @ w["b"]


def stacked(layer, sizes):
    """A training step of layers, of other widths where `sizes` change, with a skip from each width to the end."""

    def step(params, x):
        def loss(params):
            y, skips = x, []
            for w in params:
                if y.shape[-1] != w["a"].shape[0]:
                    skips.append(y)
                    y = jnp.concatenate([y, y], axis=-1)
                y = layer(w, y)
            return jnp.mean(y**2) + sum(jnp.mean(jnp.cos(s)) for s in skips)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    rng = np.random.default_rng(0)
    weights = [{"a": rng.normal(size=(n, WIDE)) / 8, "b": rng.normal(size=(WIDE, n)) / 8} for n in sizes]
    return step, jax.tree.map(lambda w: w.astype("f4"), weights)


LAYERS = {
    "halves of a layer": (two_halves, (16,) * 5),
    "pairs inside a layer": (two_pairs, (16,) * 5),
    "layers of other sizes": (two_pairs, (16,) * 3 + (32,) * 3),
    "a view at the start": (grouped, (16,) * 5),
}


def lowered(layer, sizes, *extra, rows=4096):
    step, params = stacked(layer, sizes)
    x = jax.ShapeDtypeStruct((rows, sizes[0]), "float32")
    return ap.jit(step, MESH, [BP, *extra], donate_argnums=0).lower(params, x)


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_computed_again_is_what_a_checkpoint_around_each_layer_computes_again(name):
    layer, sizes = LAYERS[name]
    found = lowered(layer, sizes, ap.Recompute("blocks")).estimate
    by_hand, whole = lowered(jax.checkpoint(layer), sizes).estimate, lowered(layer, sizes).estimate
    assert whole.flop < found.flop
    assert found.flop <= 1.02 * by_hand.flop
    assert found.peak_bytes <= 1.1 * by_hand.peak_bytes < whole.peak_bytes


def test_a_view_is_made_again_from_what_it_shows():
    program = lowered(*LAYERS["a view at the start"], ap.Recompute("blocks")).traced.program
    held = [int(program.operands_of(op)[0]) for parts in program.barriers for op in parts]
    assert held
    assert not [v for v in held if program.spec(int(program.value_op[v])).kind == "reshape"]


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_those_of_the_step_that_keeps_everything(name):
    layer, sizes = LAYERS[name]
    step, params = stacked(layer, sizes)
    x = np.random.default_rng(1).normal(size=(8, sizes[0])).astype("f4")
    found = lowered(layer, sizes, ap.Recompute("blocks"), rows=8).compile()(params, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, jax.jit(step)(params, x))
