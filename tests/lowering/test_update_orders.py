"""Are gradients left in the order of the arrays that they update, and nothing else? Does the step stay the step?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify

MESH = {"batch": 4, "model": 2}
LOOK_UPS = ap.ManualPartition({"rows": 0, "others": 0}, axis="batch")
IMAGES = ap.ManualPartition({"x": 0, "dy": 0}, axis="batch")
STORED = ap.ManualPartition({"params": 0, "state": ap.FIRST_DIVISIBLE_DIM}, axis="batch")


def table_step(optimizer, look_ups=1):
    """An update of a table by one look-up in it or two, of indices of different rank."""

    def step(params, state, rows, others, w):
        def loss(table):
            found = jnp.take(table, rows, axis=0, mode="clip") @ w
            if look_ups == 2:
                found *= jnp.take(table, others, axis=0, mode="clip").sum(1) @ w
            return jnp.mean(found**2)

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    return step


def table_args(optimizer, width, count=4096):
    rng = np.random.default_rng(0)
    table, w = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((count, width), (width, 16)))
    rows, others = (jnp.asarray(rng.integers(0, count, shape), jnp.int32) for shape in ((64,), (64, 5)))
    return table, optimizer.init(table), rows, others, w


def lowered(step, args, schedule=(LOOK_UPS,), device="tpu_v5e"):
    return ap.jit(step, ap.Mesh(MESH, device=device), list(schedule), donate_argnums=(0, 1)).lower(*args)


def orders(low):
    """How often an order is asked for."""
    return low.as_text("stablehlo").count("@LayoutConstraint")


def test_the_gradient_of_a_table_of_short_rows_has_these_along_the_rows():
    optimizer = optax.adagrad(1e-2)
    low = lowered(table_step(optimizer), table_args(optimizer, 24))
    assert "operand_layouts = [dense<[0, 1]> : tensor<2xindex>]" in low.as_text("stablehlo")
    assert orders(low) == 1
    verify(low.program)


@pytest.mark.parametrize(("width", "count"), [(128, 4096), (256, 4096), (64, 32)])
def test_a_table_that_its_order_pads_no_less_is_left_as_it_is(width, count):
    optimizer = optax.adagrad(1e-2)
    assert orders(lowered(table_step(optimizer), table_args(optimizer, width, count))) == 0


@pytest.mark.parametrize("device", ["h100", "cpu_host", None])
def test_devices_without_layout_tiles_are_asked_for_no_order(device):
    optimizer = optax.adagrad(1e-2)
    assert orders(lowered(table_step(optimizer), table_args(optimizer, 24), device=device)) == 0


def test_sums_of_messages_that_a_product_reads_keep_their_order():
    def messages(nodes, senders, receivers, w):
        sums = jnp.zeros_like(nodes).at[receivers].add(nodes[senders])
        return jnp.tanh(sums @ w)

    nodes, edges = jax.ShapeDtypeStruct((4096, 24), jnp.float32), jax.ShapeDtypeStruct((8192,), jnp.int32)
    args = nodes, edges, edges, jax.ShapeDtypeStruct((24, 24), jnp.float32)
    mesh = ap.Mesh(MESH, device="tpu_v5e")
    assert orders(ap.jit(messages, mesh, [], donate_argnums=(0,)).lower(*args)) == 0


def test_two_look_ups_of_a_table_add_to_one_gradient():
    optimizer = optax.adagrad(1e-2)
    low = lowered(table_step(optimizer, 2), table_args(optimizer, 24))
    text = low.as_text("stablehlo")
    last = text[: text.index("@LayoutConstraint")].rsplit('"stablehlo.scatter"', 1)[1]
    assert orders(low) == 1
    assert "stablehlo.add" not in last.split("})", 1)[1]
    verify(low.program)


@pytest.mark.parametrize("look_ups", [1, 2])
@pytest.mark.parametrize("schedule", [(), (LOOK_UPS,), (LOOK_UPS, STORED)], ids=["whole", "batch", "stored"])
def test_a_step_with_its_gradients_in_order_is_the_step(look_ups, schedule):
    optimizer = optax.adam(1e-2)
    step, args = table_step(optimizer, look_ups), table_args(optimizer, 24)
    wanted = jax.jit(step)(*args)
    found = ap.jit(step, ap.Mesh(MESH, device="tpu_v3"), list(schedule), donate_argnums=(0, 1))(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def kernel_step(params, state, x, dy):
    """An update of the kernel of a transposed convolution."""

    def convolved(w):
        return jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    updates, state = optax.adam(1e-3).update(jax.linear_transpose(convolved, params)(dy)[0], state, params)
    return optax.apply_updates(params, updates), state


def kernel_args(features, made):
    rng = np.random.default_rng(0)
    shapes = (4, 4, features, made), (8, 4, 4, features), (8, 8, 8, made)
    w, x, dy = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    return w, optax.adam(1e-3).init(w), x, dy


@pytest.mark.parametrize(("features", "made", "asked"), [(256, 128, 1), (128, 256, 1), (128, 64, 0), (96, 64, 0)])
def test_kernels_of_transposed_convolutions_are_stored_with_the_features_they_make_along_the_lanes(
    features, made, asked
):
    """Or the other way round, where that pads less; their gradients come so."""
    low = lowered(kernel_step, kernel_args(features, made), (IMAGES,))
    assert orders(low) == asked
    verify(low.program)


@pytest.mark.parametrize("schedule", [(IMAGES,), (IMAGES, STORED)], ids=["batch", "stored"])
def test_a_step_with_the_gradient_of_a_kernel_in_order_is_the_step(schedule):
    args = kernel_args(128, 128)
    wanted = jax.jit(kernel_step)(*args)
    found = ap.jit(kernel_step, ap.Mesh(MESH, device="tpu_v3"), list(schedule), donate_argnums=(0, 1))(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
