"""Does a convolution of few images take as long to write them as one of many?

Cycles of v3 for each place of 32 to 256 features, as libtpu 0.0.51 has them, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autopart.costmodel.simulator.kernels.kernel_graph import KERNEL
from tests.cost.programs import f32, simulated

CLOCK_HZ, PLACES, CONVOLUTIONS = 940e6, 2048, 6


def summed(x: jax.Array, kernels: jax.Array) -> jax.Array:
    for kernel in kernels:
        x = jax.lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))
        x = jnp.maximum(x, 0)
    return x.sum()


@pytest.mark.parametrize(
    ("features", "images", "cycles"),
    [(32, 2, 15.2), (32, 4, 19.8), (32, 8, 20.1), (128, 2, 15.5), (128, 4, 20.7), (256, 2, 31.3), (256, 4, 41.7)],
)
def test_few_images_are_written_as_slowly_as_many(features: int, images: int, cycles: float):
    kernels = f32(CONVOLUTIONS, 3, features, features)
    run = simulated(jax.grad(summed, 1), f32(images, PLACES, features), kernels, device="tpu_v3")
    nodes, program = run.graph.nodes, run.local.program
    forward = []
    for k in np.flatnonzero((nodes["kind"] == KERNEL) & (run.leader == np.arange(len(nodes)))).tolist():
        spec = program.spec(int(nodes["subject"][k]))
        alone = np.count_nonzero(run.leader == k) == 1
        if alone and spec.kind == "convolution" and spec.results[0].shape == (images, PLACES, features):
            forward.append(run.node_s[k] * CLOCK_HZ / PLACES)
    assert 0.8 < np.median(forward) / cycles < 1.25
