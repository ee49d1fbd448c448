"""Does a search tile images in space, where windows overlap and neighbours exchange their borders?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 8}, device="tpu_v3")
ARGUMENTS = (
    [jax.ShapeDtypeStruct((3, 3, 32, 32), "float32")] * 3,
    jax.ShapeDtypeStruct((1, 256, 256, 32), "float32"),
)


def step(params, x):
    """One step of gradient descent for convolutions of one image."""

    def loss(params):
        y = x
        for w in params:
            y = jax.nn.relu(lax.conv_general_dilated(y, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return jnp.mean(y)

    return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params))


def test_one_image_is_tiled_in_space_by_name_and_by_search():
    named = {schedule.name: schedule.step_s for schedule in ap.named_schedules(step, MESH, ARGUMENTS)}
    assert named["Spatial(a)"] < 0.5 * named["replicated"]
    low = ap.jit(step, MESH, [ap.AutomaticPartition(["a"], budget=ap.Budget(20))]).lower(*ARGUMENTS)
    assert low.estimate.step_s <= named["Spatial(a)"]
    assert low.program.collectives()["all_permute"] > 0
