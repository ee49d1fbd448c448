"""Are weights that a convolution reads reversed gathered before they are reversed, and no other reversal?"""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import autopart as ap

AXES = {"batch": 4, "model": 2}
TACTICS = [ap.ManualPartition({"x": 0}, axis="batch"), ap.ManualPartition({"w": 2, "outputs": 2}, axis="batch")]


def step(w, x):
    """A gradient of two convolutions: the second one's input gets it through its weight, reversed."""

    def loss(w):
        found = x
        for _ in range(2):
            found = jax.lax.conv_general_dilated(found, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (found**2).sum()

    return w - 1e-4 * jax.grad(loss)(w)


def also_added(w, x):
    """The reversed weight is read by something else too."""
    turned = w[::-1, ::-1]
    y = jax.lax.conv_general_dilated(x, turned, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return w + turned * y.mean()


def given():
    r = np.random.default_rng(0)
    return r.normal(size=(3, 3, 8, 8)).astype("f4"), r.normal(size=(8, 6, 6, 8)).astype("f4")


def reversals(fun):
    low = ap.jit(fun, ap.Mesh(AXES), TACTICS).lower(*given())
    return re.findall(r"= reverse\(([^)]*)\).* : tensor<3x3x(\d)x8xf32>", low.as_text("hlo"))


def test_a_weight_that_only_a_convolution_reads_reversed_is_gathered_before():
    assert [int(rows) for _, rows in reversals(step)] == [8]


def test_a_reversed_weight_that_is_added_too_is_reversed_in_parts():
    assert [int(rows) for _, rows in reversals(also_added)] == [2]


@pytest.mark.parametrize("fun", [step, also_added])
def test_the_program_computes_the_same(fun):
    w, x = given()
    np.testing.assert_allclose(ap.jit(fun, ap.Mesh(AXES), TACTICS)(w, x), jax.jit(fun)(w, x), rtol=1e-3, atol=1e-3)
