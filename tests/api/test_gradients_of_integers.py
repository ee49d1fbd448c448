"""Are gradients of integers, which say nothing, what `jax.jit` returns, and can they be passed on?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.api.jitted.verification import verify

MESH = ap.Mesh({"batch": 8})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X, N = np.ones((16, 8), "f4"), np.arange(8)
NOTHING = np.zeros(8, jax.dtypes.float0)

gradients = jax.grad(lambda x, n: (x * n).sum(), argnums=(0, 1), allow_int=True)


def types(tree):
    return [(leaf.dtype, leaf.shape) for leaf in jax.tree.leaves(tree)]


PROGRAMS = {
    "come out": (gradients, (X, N)),
    "come out of a constant": (lambda x: (x, NOTHING), (X,)),
    "go in": (lambda x, n: x * 2, (X, NOTHING)),
    "go in and come out": (lambda x, n: (x, n), (X, NOTHING)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("keep", [False, True], ids=["passed if read", "passed"])
def test_they_are_those_of_jax_jit_where_they(name, keep):
    fun, args = PROGRAMS[name]
    step, expected = ap.jit(fun, MESH, [BP], keep_unused=keep), jax.jit(fun)(*args)
    lowered = step.lower(*args)
    for call in (step, step, lowered.compile(), lowered.interpret, jax.jit(step)):
        found = call(*args)
        assert types(found) == types(expected)
        np.testing.assert_array_equal(jax.tree.leaves(found)[0], jax.tree.leaves(expected)[0])


def test_what_jax_jit_returned_is_taken():
    nothing = jax.jit(gradients)(X, N)[1]
    np.testing.assert_array_equal(ap.jit(lambda x, n: x * 2, MESH, [BP])(X, nothing), X * 2)


def test_they_are_verified_with_the_others():
    assert verify(gradients, MESH, [BP], (jnp.asarray(X), N)).agrees
