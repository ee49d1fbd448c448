"""Under `jax_debug_nans` and `jax_debug_infs`, does a call raise what one of `jax.jit` raises?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 8})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = jnp.ones((16, 8))

PROGRAMS = {
    "a logarithm": (jnp.log, -X),
    "a quotient": (lambda x: x / x, X * 0),
    "a root in a loop": (lambda x: jax.lax.fori_loop(0, 2, lambda _, y: jnp.sqrt(y - 1), x), X * 0),
    "a function that is called": (lambda x: jax.jit(lambda y: jnp.log(y) + 1)(x), -X),
}


@pytest.fixture(params=["everywhere", "in a with"])
def debug_nans(request):
    """Looks at the results of calls, as jax does it."""
    if request.param == "in a with":
        with jax.debug_nans(True):
            yield
        return
    jax.config.update("jax_debug_nans", True)
    yield
    jax.config.update("jax_debug_nans", False)


def message(call, x):
    with pytest.raises(FloatingPointError) as caught:
        call(x)
    return str(caught.value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_says_which_op_is_at_fault(name, debug_nans):
    fun, x = PROGRAMS[name]
    step = ap.jit(lambda x: fun(x), MESH, [BP])
    for _ in range(2):
        assert message(step, x) == message(jax.jit(fun), x)


def test_a_call_that_python_does_not_see_says_it_too():
    step = ap.jit(lambda x: jnp.log(x), MESH, [BP])
    for _ in range(3):
        step(X)
    with jax.debug_nans(True):
        for _ in range(3):
            step(X)
        assert message(step, -X) == "invalid value (nan) encountered in log"


def test_infinities_are_told_apart():
    with jax.debug_infs(True):
        assert message(ap.jit(lambda x: 1 / x, MESH, [BP]), X * 0) == message(jax.jit(lambda x: 1 / x), X * 0)


def test_a_compiled_program_and_the_reference_say_that_there_is_one(debug_nans):
    lowered = ap.jit(lambda x: jnp.log(x), MESH, [BP]).lower(X)
    for call in (lowered.compile(), lowered.interpret):
        assert message(call, -X) == "invalid value (nan) among the results of a partitioned program"


def test_a_result_that_no_op_makes_is_found_too(debug_nans):
    assert "run op by op on whole arrays, it has none" in message(ap.jit(lambda x: (x, np.nan), MESH, [BP]), X)


def test_a_step_whose_state_is_donated_says_as_much_as_it_can():
    step = ap.jit(lambda x: jnp.log(x), MESH, [BP], donate_argnums=0)
    step(jnp.copy(X))
    on_devices = jax.device_put(-X, step.lower(X).compile().in_shardings[0][0])
    with jax.debug_nans(True):
        assert message(step, on_devices).startswith("invalid value (nan)")


def test_under_jit_the_program_around_it_says_it(debug_nans):
    step = ap.jit(lambda x: jnp.log(x), MESH, [BP])
    assert "encountered in log" in message(jax.jit(lambda x: step(x) + 1), -X)


def test_numbers_that_are_valid_pass(debug_nans):
    np.testing.assert_array_equal(ap.jit(lambda x: jnp.log(x), MESH, [BP])(X), X * 0)
