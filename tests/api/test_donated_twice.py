"""Is an array that a call donates, and is given once more, an error instead of the end of Python?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.api.jitted.compiled import Compiled

MESH = ap.Mesh({"batch": 8})
SCHEDULES = {"whole": [], "tiled": [ap.ManualPartition({"a": 0, "b": 0}, axis="batch")]}
X = np.ones((16, 8), "f4")
REFUSED = r"b is the array that is donated as a[\s\S]*copy"


def both(a, b):
    return a + b, a - b


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("donated", [(0, 1), 0], ids=["both", "one"])
def test_an_array_that_is_donated_and_given_again_is_refused(schedule, donated):
    step = ap.jit(both, MESH, schedule, donate_argnums=donated)
    x = jnp.asarray(X)
    with pytest.raises(ap.CallError, match=REFUSED):
        step(x, x)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_it_is_refused_after_calls_that_python_does_not_see(schedule):
    step = ap.jit(both, MESH, schedule, donate_argnames=("a", "b"))
    state = (jnp.asarray(X), jnp.asarray(X))
    for _ in range(4):
        state = step(*state)
    for _ in range(2):
        with pytest.raises(ap.CallError, match=REFUSED):
            step(state[0], state[0])
    with pytest.raises(ap.CallError, match=REFUSED):
        step(state[0], b=state[0])
    np.testing.assert_array_equal(step(*state)[0], X * 8)


def test_it_is_refused_by_a_compiled_program_too():
    compiled = ap.jit(both, MESH, donate_argnums=0).lower(X, X).compile()
    state = compiled(jnp.asarray(X), jnp.asarray(X))
    state = compiled(*state)
    with pytest.raises(ap.CallError, match=REFUSED):
        compiled(state[0], state[0])


def test_arrays_that_share_memory_are_two_arrays():
    mesh = jax.make_mesh((8,), ("z",), axis_types=(jax.sharding.AxisType.Auto,))
    placed = jax.device_put(X, NamedSharding(mesh, P()))
    part, alike = placed.addressable_shards[3].data, jax.device_put(placed, NamedSharding(mesh, P(None, None)))
    assert part.unsafe_buffer_pointer() == placed.addressable_shards[3].data.unsafe_buffer_pointer()
    step = ap.jit(lambda a, b, c: (a + b + c, a - b, a * c), MESH, donate_argnums=(0, 2))
    for found, expected in zip(step(placed, part, alike), (X * 3, X * 0, X), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(part, X)


def test_state_and_a_copy_of_it_that_is_placed_elsewhere_are_two_arrays():
    state = jnp.asarray(X)
    step = ap.jit(both, MESH, donate_argnums=(0, 1))
    average = jax.device_put(state, step.lower(X, X).compile().in_shardings[0][1])
    for _ in range(3):
        state, average = step(state, average)
    np.testing.assert_array_equal(state, X * 4)


def test_a_key_that_is_donated_and_given_again_is_refused():
    key = jax.random.key(0)
    step = ap.jit(lambda a, b: (jax.random.split(a, 1)[0], b), MESH, donate_argnums=0)
    with pytest.raises(ap.CallError, match=REFUSED):
        step(key, key)


@pytest.fixture
def looked_at(monkeypatch):
    """The calls that Python looked at."""
    calls, run = [], Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda self, args, kwargs: calls.append(args) or run(self, args, kwargs))
    return calls


def test_what_is_not_donated_may_be_given_twice(looked_at):
    step = ap.jit(lambda a, b, c: a + b + c, MESH, donate_argnums=0)
    a = step(X, X, X)
    b = step(jnp.asarray(X), X, X)
    for _ in range(4):
        a = step(a, b, b)
    seen = len(looked_at)
    for _ in range(3):
        a = step(a, b, b)
    assert len(looked_at) == seen
    np.testing.assert_array_equal(a, X * 45)


def test_an_array_of_numpy_may_be_donated_twice():
    step = ap.jit(both, MESH, donate_argnums=(0, 1))
    on_devices = step.lower(X, X).compile().in_shardings[0]
    for a, b in [(X, X), (X, X), jax.device_put((X, X), on_devices)]:
        np.testing.assert_array_equal(step(a, b)[0], X * 2)


def test_an_argument_that_nobody_reads_may_be_what_is_donated():
    x = jnp.asarray(X)
    np.testing.assert_array_equal(ap.jit(lambda a, b: b * 2, MESH, donate_argnums=(0, 1))(x, x), X * 2)
