"""Does a name that is there and has no arrays match nothing, without an error, and one that is not there have one?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 8})
SGD = optax.sgd(0.1)
X = np.ones((8, 8), "f4")
PARAMS = {"w": X, "frozen": {}}


def step_of(optimizer):
    def step(params, opt_state, *batches):
        gradients = jax.grad(lambda p: sum(jnp.tanh(x @ p["w"]).sum() for x in batches))(params)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state

    return step


def lowered(inputs, optimizer=SGD):
    tactic = ap.ManualPartition(inputs, axis="batch")
    return ap.jit(step_of(optimizer), MESH, [tactic]).lower(PARAMS, optimizer.init(PARAMS), X, X)


@pytest.mark.parametrize(
    "inputs",
    [
        {"opt_state": ap.FIRST_DIVISIBLE_DIM},
        {"opt_state/*/mu": 0},
        {"opt_state/0": {"mu": {"w": 0}}},
        {"opt*": 0},
        {"params": {"frozen": 0}},
        {"params/frozen/*": 0},
        {"outputs/1": 0},
        {"outputs": {"1": 0}},
    ],
)
def test_a_name_without_arrays_matches_nothing(inputs):
    low = lowered(inputs)
    assert set(low.metadata.in_specs.values()) == {()}
    assert set(low.metadata.out_specs.values()) == {()}


@pytest.mark.parametrize("inputs", [{"opt_stat": 0}, {"params": {"frosen": 0}}, {"outputs/2": 0}, {"opt_states/0": 0}])
def test_a_name_that_is_not_there_is_an_error(inputs):
    with pytest.raises(ap.UnknownNameError):
        lowered(inputs)


def test_what_has_no_arrays_for_one_optimizer_has_some_for_another():
    low = lowered({"opt_state/*/mu": 0}, optax.adam(0.1))
    assert low.metadata.in_specs["opt_state/0/mu/w"] == (("batch",),)


def test_the_nearest_name_may_have_no_arrays():
    with pytest.raises(ap.UnknownNameError, match="try  'opt_state'"):
        lowered({"opt_sate": 0})


def test_what_has_no_arrays_has_no_explanation():
    assert lowered({}).explain("opt_state").values == ()


def test_arguments_behind_a_star_are_named_together_and_each():
    assert lowered({"batches": 0}).metadata.in_specs["batches/1"] == (("batch",),)
    low = lowered({"batches/0": 0})
    assert (low.metadata.in_specs["batches/0"], low.metadata.in_specs["batches/1"]) == ((("batch",),), ())
