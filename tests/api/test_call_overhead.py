"""Is a call of `ap.jit` as fast as one of `jax.jit`, and do the calls that cannot be still go the slow way?"""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.api.jitted.compiled import Compiled
from experiments.call_overhead.__main__ import measured
from experiments.call_overhead.cases import decoding, update

MESH = ap.Mesh({"batch": 8})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = np.ones((8, 4), "f4")


@pytest.fixture
def looked_at(monkeypatch):
    """The calls that Python looked at."""
    calls, run = [], Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda self, args, kwargs: calls.append(args) or run(self, args, kwargs))
    return calls


@pytest.mark.parametrize("case", [update(101), decoding()], ids=lambda case: case.name)
def test_a_call_takes_less_than_twice_as_long_as_one_of_jax_jit(case):
    assert min(measured(case, rounds=3)["ratio"] for _ in range(2)) < 2


DISPATCHED = {
    "placed": lambda sharding: jax.device_put(X, sharding),
    "NumPy": lambda sharding: X,
    "on one device, not for good": lambda sharding: jnp.ones((8, 4)),
    "placed as an equivalent": lambda sharding: jax.device_put(X, NamedSharding(sharding.mesh, P("batch", None))),
}


@pytest.mark.parametrize("kind", DISPATCHED)
def test_a_call_like_an_earlier_one_is_not_looked_at(kind, looked_at):
    step = ap.jit(lambda x: x * 2, MESH, [BP])
    x = DISPATCHED[kind](step.lower(X).compile().in_shardings[0][0])
    for _ in range(4):
        np.testing.assert_array_equal(step(x), X * 2)
    assert len(looked_at) == 1


def test_an_array_in_another_place_is_looked_at_each_time(looked_at):
    step = ap.jit(lambda x: x * 2, MESH, [BP])
    elsewhere = jax.device_put(X, jax.devices()[3])
    for _ in range(3):
        np.testing.assert_array_equal(step(elsewhere), X * 2)
    assert len(looked_at) == 3


def test_keys_static_and_keyword_arguments_are_dispatched(looked_at):
    def noisy(key, x, times, *, scale):
        key, use = jax.random.split(key)
        return key, x * times + scale * jax.random.normal(use, x.shape)

    step = ap.jit(noisy, MESH, [BP], static_argnums=2)
    key, x = jax.random.key(0), X
    expected = jax.jit(noisy, static_argnums=2)
    for times in (2, 2, 3, 3, 2):
        right = expected(key, x, times, scale=np.float32(0.5))
        found = step(key, x, times, scale=np.float32(0.5))
        np.testing.assert_array_equal(jax.random.key_data(found[0]), jax.random.key_data(right[0]))
        np.testing.assert_allclose(found[1], right[1], rtol=1e-5)
        key, x = found
    # the first key and array are on no mesh; after that they are what a call returned, once for each static argument
    assert len(looked_at) == 3


def test_a_call_while_jax_traces_is_no_earlier_one():
    step = ap.jit(lambda x: x * 2, MESH, [BP])
    placed = step(X)
    step(placed), step(placed)
    assert "shard_map" in str(jax.make_jaxpr(lambda: step(placed))())


def test_weak_and_strong_numbers_choose_programs_of_their_own():
    step = ap.jit(lambda x, n: x * n, MESH, [BP])
    half = X.astype("bfloat16")
    for _ in range(2):
        assert (step(half, 2.0).dtype, step(half, np.float32(2)).dtype) == ("bfloat16", "float32")


def test_a_donated_array_is_refused_after_many_calls():
    step = ap.jit(lambda x: x * 2, MESH, [BP], donate_argnums=0)
    first = state = step(X)
    for _ in range(5):
        state = step(state)
    for _ in range(2):
        with pytest.raises(ap.CallError, match="deleted, or donated to an earlier call"):
            step(first)


def test_the_programs_called_since_the_last_compilation_are_kept(looked_at):
    traced = []

    def program(x):
        traced.append(len(x))
        return x + 1

    step = ap.jit(program, MESH, [BP], most_compiled=2)
    for rows in (8, 16, 8, 8, 8, 24, 8):
        np.testing.assert_array_equal(step(np.zeros(rows, "f4")), np.ones(rows))
    assert traced == [8, 16, 24]


def test_nothing_of_a_function_that_is_let_go_stays():
    step = ap.jit(lambda x: x * 2, MESH, [BP])
    step(step(X))
    (compiled,) = [slot.value for slot in step._compiled._slots.values()]
    gone = weakref.ref(compiled)
    del step, compiled
    gc.collect()
    assert gone() is None
