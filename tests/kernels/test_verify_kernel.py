"""Is a false twin or rule caught?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.kernels.programs import arrays, plain_attention, plain_norm, rms_norm
from tests.kernels.test_gradients import attention


def wrong(verification):
    return [row.name for row in verification.rows if not row.agrees]


def test_a_true_twin_agrees_whole_and_in_slices():
    found = ap.verify_kernel(ap.kernel(rms_norm, like=plain_norm, gradient="twin"), *arrays((8, 6, 16), (16,)))
    assert found.agrees
    assert [row.name for row in found.rows][:3] == ["like its twin, result 0", "f0 in 2, result 0", "f0 in 8, result 0"]


def test_both_directions_of_a_gradient_are_run_in_slices():
    found = ap.verify_kernel(
        ap.kernel(attention, like=plain_attention), *[jax.ShapeDtypeStruct((2, 2, 8, 16), "f4")] * 3
    )
    assert found.agrees
    assert {row.name.split(":")[0] for row in found.rows if ":" in row.name} == {"forward", "backward"}


def test_a_false_rule_is_caught():
    found = ap.verify_kernel(ap.kernel(lambda x: jnp.cumsum(x, 0), rule="a b -> a b"), *arrays((8, 6)))
    assert wrong(found) == ["a in 2, result 0", "a in 8, result 0"]


def test_a_false_twin_is_caught():
    found = ap.verify_kernel(ap.kernel(lambda x: jnp.cumsum(x, 0), like=lambda x: 2 * x), *arrays((8, 6)))
    assert wrong(found) == ["like its twin, result 0", "f0 in 2, result 0", "f0 in 8, result 0"]


def test_a_kernel_that_cannot_run_here_is_not_taken_to_be_right():
    elsewhere = ap.kernel(lambda x: x + 1, like=lambda x: x + 1, platforms=["tpu"], name="elsewhere")
    with pytest.raises(ap.CallError, match="the kernel elsewhere cannot run on cpu"):
        ap.verify_kernel(elsewhere, jnp.ones(4))


@pytest.mark.parametrize(
    ("function", "rule", "true"),
    [
        (lambda x, start: x + start + jnp.arange(x.shape[0]), "a, @a -> a", True),
        (lambda x, start: x + jnp.arange(x.shape[0]), "a, @a -> a", False),
        (lambda x, y: (x * 2, y.sum()), "a, b -> a, ; tile -; reduce a:any", True),
        (lambda x, y: (x * 2, x[0]), "a, b -> a, ; tile -; reduce a:any", False),
    ],
)
def test_places_and_what_every_device_computes_are_verified(function, rule, true):
    second = jnp.int32(0) if "@" in rule else jnp.arange(4.0)
    assert ap.verify_kernel(ap.kernel(function, rule=rule), jnp.arange(8.0), second).agrees == true
