"""The simulator's and the referee's seconds of a GPU, held to kernels that ran on an H100 (`experiments/on_device`)."""

import gzip
import json
import math
import statistics
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.xla.gpu_kernels import kernel_seconds
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from experiments.on_device.__main__ import KEPT
from experiments.on_device.steps import STEPS

DATA = Path(__file__).parents[1] / "data" / "h100"
MEASURED = json.loads(KEPT.read_text())["steps"]
MESH = ap.Mesh({"x": 1}, device="h100")


@pytest.mark.parametrize("name", sorted(path.name.split(".")[0] for path in DATA.glob("*.hlo.gz")))
def test_rooflines_of_compiled_kernels_are_near_what_they_took(name):
    module = OptimisedHlo(gzip.decompress((DATA / f"{name}.hlo.gz").read_bytes()).decode())
    assert 0.9 < kernel_seconds(module, device("h100")) / MEASURED[name]["kernel_s"] < 1.3


@pytest.mark.parametrize(
    "name", ["t32_block", "unet_block", "gpt", "bert", "conformer", "lstm", "resnet", "recommender"]
)
def test_simulated_steps_are_near_what_they_took(name):
    step, measured = STEPS[name](), MEASURED[name]
    ours = ap.jit(step.function, MESH, donate_argnums=step.donated).lower(*step.arguments).estimate
    assert 0.8 < ours.compute_s / measured["kernel_s"] < 1.25
    assert 0.8 < ours.peak_bytes / measured["peak_bytes"] < 1.1


def convolution(kind, images, places, window):
    """The forward, or one of its gradients, as jax makes them; with strides where there are fewer places."""
    stride = round(images[1] / places[1])
    low = [(n - 1) // 2 if stride == 1 else 0 for n in window]
    padding = [
        (a, (p - 1) * stride + n - i - a) for a, p, n, i in zip(low, places[1:], window, images[1:], strict=False)
    ]
    kernel = jax.ShapeDtypeStruct((*window, images[3], places[3]), jnp.float32)
    x, y = jax.ShapeDtypeStruct(images, jnp.float32), jax.ShapeDtypeStruct(places, jnp.float32)

    def forward(x, w):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    if kind == "forward":
        return forward, (x, kernel)
    with_respect_to = 0 if kind == "input gradient" else 1

    def gradient(given, y):
        pair = [jnp.zeros(x.shape), jnp.zeros(kernel.shape)]
        pair[1 - with_respect_to] = given
        return jax.vjp(forward, *pair)[1](y)[with_respect_to]

    return gradient, ((kernel, x)[with_respect_to], y)


def of_kind(kind):
    """Ours over the measured seconds, and those, of each convolution with 16 channels or more on both sides."""
    for row in json.loads((DATA / "convolutions.json").read_text())["rows"]:
        if row[0] == kind and min(row[1][3], row[2][3]) >= 16:
            function, arguments = convolution(*row[:4])
            yield ap.jit(function, MESH).lower(*arguments).estimate.compute_s / (row[4] * 1e-6), row[4]


@pytest.mark.parametrize(("kind", "spread"), [("forward", 0.4), ("input gradient", 0.35), ("kernel gradient", 0.35)])
def test_convolutions_take_what_they_took(kind, spread):
    ratios, us = zip(*of_kind(kind), strict=True)
    assert 0.85 < sum(r * t for r, t in zip(ratios, us, strict=True)) / sum(us) < 1.15
    assert statistics.pstdev(map(math.log, ratios)) < spread


def test_each_product_of_a_library_makes_what_is_cheap_for_itself():
    def given(x, bias, w, v):
        return x @ w, x @ v

    def added(x, bias, w, v):
        y = x + bias
        return y @ w, y @ v

    x, bias, w = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((65536, 2048), (2048,), (2048, 256)))
    ours, plain = (ap.jit(f, MESH).lower(x, bias, w, w).estimate.compute_s for f in (added, given))
    h100 = device("h100")
    once = 2 * 4 * math.prod(x.shape) / (h100.hbm_bytes_per_s * h100.hbm_efficiency)
    assert ours - plain == pytest.approx(2 * once, rel=0.05)
