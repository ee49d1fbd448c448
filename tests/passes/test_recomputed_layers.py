"""Are the blocks that `ap.Recompute` finds the layers that a user would write `jax.checkpoint` around?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.op import TensorType
from autopart.core.program import ROOT
from tests.prompt import only

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


@pytest.mark.parametrize("name", only(["a view at the start"], LAYERS))
def test_numbers_are_those_of_the_step_that_keeps_everything(name):
    layer, sizes = LAYERS[name]
    step, params = stacked(layer, sizes)
    x = np.random.default_rng(1).normal(size=(8, sizes[0])).astype("f4")
    found = lowered(layer, sizes, ap.Recompute("blocks"), rows=8).compile()(params, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, jax.jit(step)(params, x))


def attending(w, x):
    """A layer with a mask that is the same in all layers and for all of the batch."""
    rows = x.reshape(-1, 128, x.shape[-1])
    position = jnp.arange(128)
    scores = jnp.einsum("bqd,bkd->bqk", rows @ w["a"], rows @ w["b"].T)
    scores = jnp.where(position[:, None] >= position, scores, -1e30)
    return x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), rows).reshape(x.shape)


def in_a_scan(layer):
    """A training step of four layers in one scan."""

    def step(params, x):
        def loss(params):
            y, _ = jax.lax.scan(lambda y, w: (layer(w, y), None), x, params)
            return jnp.mean(y**2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")  # noqa: E731
    return step, {"a": f32(4, 16, WIDE), "b": f32(4, WIDE, 16)}


def one_by_one(layer):
    """The same of layers with parameters of their own."""
    return stacked(layer, (16,) * 4)


Z3 = ap.ManualPartition({"params": ap.FIRST_DIVISIBLE_DIM}, axis="d", name="Z3")


def with_parts(make, layer, *extra):
    step, params = make(layer)
    x = jax.ShapeDtypeStruct((4096, 16), "float32")
    return ap.jit(step, MESH, [BP, Z3, *extra], donate_argnums=0).lower(params, x)


@pytest.mark.parametrize("make", [one_by_one, in_a_scan])
def test_weights_stored_in_parts_are_gathered_as_often_as_with_a_checkpoint(make):
    found, by_hand = with_parts(make, two_halves, ap.Recompute("blocks")), with_parts(make, jax.checkpoint(two_halves))
    gathers = [low.program.collectives_by_axis()["d"]["all_gather"] for low in (found, by_hand)]
    assert gathers[0] <= gathers[1]


def test_a_mask_that_is_the_same_in_all_turns_of_a_scan_is_made_wide_in_the_turn():
    found = with_parts(in_a_scan, attending, ap.Recompute("blocks"))
    by_hand = with_parts(in_a_scan, jax.checkpoint(attending))
    assert found.estimate.peak_bytes <= 1.1 * by_hand.estimate.peak_bytes
    assert wide_masks(with_parts(in_a_scan, attending), of_scope=ROOT)
    assert not wide_masks(found, of_scope=ROOT)


def wide_masks(lowered, of_scope) -> list[int]:
    """The ops of a scope that leave a mask for each of the batch."""
    program = lowered.traced.program
    mask = TensorType((32, 128, 128), "i1")
    return [
        op for op in range(program.op_count) if program.op_scope[op] == of_scope and mask in program.spec(op).results
    ]
