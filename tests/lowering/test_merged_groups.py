"""Are groups of a convolution that fill no tile one on a TPU, and is the step the step?"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.ops.groups_as_one import merged

MESH = {"batch": 4, "model": 2}
BATCH = ap.ManualPartition({"x": 0}, axis="batch")
GROUPS = ap.ManualPartition({"w": 3}, axis="model")


def convolved(x, w, groups, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def step_of(groups, stride=1):
    def loss(w, x):
        return jnp.mean(jnp.tanh(convolved(jnp.tanh(x), w, groups, stride)) ** 2)

    return lambda w, x: jax.value_and_grad(loss, argnums=(0, 1))(w, x)


def args(reads, makes, groups, images=8, window=3):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(window, window, reads, makes * groups)) / window
    return jnp.asarray(w, jnp.float32), jnp.asarray(rng.normal(size=(images, 8, 8, reads * groups)), jnp.float32)


def counts(text):
    """Group counts of the convolutions, of features and of images."""
    return [
        tuple(map(int, found)) for found in re.findall(r"batch_group_count = (\d+).*?feature_group_count = (\d+)", text)
    ]


def emitted(fun, arguments, schedule=(BATCH,), device="tpu_v3"):
    return counts(ap.jit(fun, ap.Mesh(MESH, device=device), list(schedule)).lower(*arguments).as_text("stablehlo"))


def test_groups_that_fill_no_tile_are_one():
    assert set(emitted(step_of(8), args(4, 4, 8))) == {(1, 1)}
    assert set(emitted(step_of(32), args(8, 8, 32, images=64))) == {(1, 2), (2, 1)}


@pytest.mark.parametrize("device", ["h100", "cpu_host", None])
def test_devices_without_a_matrix_unit_of_tiles_keep_their_groups(device):
    assert set(emitted(step_of(8), args(4, 4, 8), device=device)) == {(1, 8), (8, 1)}


def test_a_window_for_each_feature_stays():
    assert set(emitted(step_of(32), args(1, 1, 32))) == {(1, 32), (32, 1)}


def test_tasks_of_a_vmap_stay():
    def tasks(w, x):
        return jax.vmap(lambda w, x: convolved(x, w, 1))(w, x)

    w, x = args(64, 64, 1)
    assert emitted(tasks, (jnp.stack([w, w]), jnp.stack([x, x])), schedule=()) == [(1, 2)]


@pytest.mark.parametrize(
    ("groups", "reads", "makes", "images", "as_one"),
    [(32, 4, 4, 16, 32), (32, 8, 8, 16, 16), (2, 128, 128, 16, 1), (10, 24, 24, 8, 10), (34, 40, 40, 16, 2),
     (2, 48, 128, 16, 2), (8, 32, 32, 128, 1), (32, 4, 4, 128, 32), (4, 192, 192, 16, 1), (64, 1, 2, 16, 64)],
)  # fmt: skip
def test_as_many_are_one_as_take_least(groups, reads, makes, images, as_one):
    assert merged(groups, reads, makes, images, 1 << 20, False) == as_one


def test_they_stay_where_few_places_are_read():
    assert merged(16, 32, 32, 2, 392, False) == 1
    assert merged(16, 32, 32, 4, 784, False) == 4


@pytest.mark.parametrize("schedule", [(BATCH,), (GROUPS,), (BATCH, GROUPS)])
@pytest.mark.parametrize(
    ("groups", "reads", "makes", "stride"), [(8, 4, 4, 1), (32, 8, 8, 1), (6, 16, 8, 2), (4, 1, 3, 1), (4, 48, 64, 2)]
)
def test_the_step_stays_the_step(schedule, groups, reads, makes, stride):
    step, arguments = step_of(groups, stride), args(reads, makes, groups)
    wanted = jax.jit(step)(*arguments)
    found = ap.jit(step, ap.Mesh(MESH, device="tpu_v3"), list(schedule))(*arguments)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
