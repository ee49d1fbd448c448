"""Does the ILP take convolutions in groups, and is what it proves no more than what it finds?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap


def step_in(groups):
    def loss(w, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups)
        return jnp.mean(y**2)

    def step(w, x):
        found, gradient = jax.value_and_grad(loss)(w, x)
        return found, w - gradient

    return step


@pytest.mark.parametrize("device", ["tpu_v5e", "h100"])
@pytest.mark.parametrize(("groups", "features"), [(8, 128), (32, 256), (2, 256), (64, 64)])
def test_what_is_proved_is_no_more_than_what_is_found(device, groups, features):
    w = jax.ShapeDtypeStruct((3, 3, features // groups, features), jnp.float32)
    x = jax.ShapeDtypeStruct((16, 14, 14, features), jnp.float32)
    mesh = ap.Mesh({"batch": 4, "model": 2}, device=device)
    low = ap.jit(step_in(groups), mesh, [ap.AutomaticPartition(["batch", "model"], ap.ILP())]).lower(w, x)
    [tactic] = low.metadata.tactics
    assert 0 < tactic.report["lower_bound"] <= tactic.report["best"]["score"]
