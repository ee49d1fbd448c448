"""Do few examples go on to products as products have them, and all else as it comes? Is the step the step?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify

MESH = {"batch": 4, "model": 2}
FEATURES = 16
BATCH = ap.ManualPartition({"x": 0}, axis="batch")


def convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))


def loss(params, x, again=False):
    """A convolution in front of two products around which a residual goes on; behind them another one, if `again`."""
    y = jax.nn.gelu(convolved(x, params["w"]))
    for layer in params["layers"]:
        y = y + jnp.tanh(y @ layer)
    return jnp.mean(convolved(y, params["w"]) ** 2) if again else jnp.mean(y**2)


def step(params, x):
    return jax.value_and_grad(loss)(params, x)


def again(params, x):
    return jax.value_and_grad(loss)(params, x, again=True)


def args(examples):
    rng = np.random.default_rng(0)
    draw = [jnp.asarray(rng.normal(size=shape) / 4, jnp.float32) for shape in ((3, 16, 16), (16, 16), (16, 16))]
    x = jnp.asarray(rng.normal(size=(examples, 32, FEATURES)), jnp.float32)
    return {"w": draw[0], "layers": draw[1:]}, x


def orders(fun, examples, device="tpu_v3"):
    low = ap.jit(fun, ap.Mesh(MESH, device=device), [BATCH]).lower(*args(examples))
    verify(low.program)
    return low.as_text("stablehlo").count("@LayoutConstraint")


@pytest.mark.parametrize(("examples", "asked"), [(4, 0), (8, 2), (16, 2), (32, 0)])
def test_what_goes_on_to_products_and_comes_back_from_them_is_asked_for_where_a_device_has_few(examples, asked):
    assert orders(step, examples) == asked


def test_what_another_convolution_reads_is_left_as_it_comes():
    assert orders(again, 8) == 0


@pytest.mark.parametrize("device", ["h100", "cpu_host", None])
def test_devices_without_layout_tiles_are_asked_for_nothing(device):
    assert orders(step, 8, device) == 0


def test_the_step_stays_the_step():
    params, x = args(8)
    wanted = jax.jit(step)(params, x)
    found = ap.jit(step, ap.Mesh(MESH, device="tpu_v3"), [BATCH])(params, x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
