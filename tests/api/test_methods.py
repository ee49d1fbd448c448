"""Is a partitioned function in a class a method, as one of `jax.jit` is?"""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 8})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = np.ones((16, 8), "f4")


class Scaled:
    factor = 3

    @functools.partial(jax.jit, static_argnums=0)
    def whole(self, x):
        return x * self.factor

    @ap.jit(mesh=MESH, schedule=[BP], static_argnums=0)
    def step(self, x):
        """What it does."""
        return x * self.factor

    @functools.partial(ap.filter_jit, mesh=MESH, schedule=[BP])
    def filtered(self, x):
        return x * self.factor

    @staticmethod
    @ap.jit(mesh=MESH, schedule=[BP])
    def alone(x):
        return x * 3

    @classmethod
    @ap.jit(mesh=MESH, schedule=[BP], static_argnums=0)
    def of_class(cls, x):
        return x * cls.factor


@pytest.mark.parametrize("name", ["whole", "step", "filtered", "alone", "of_class"])
def test_a_method_takes_the_instance_that_it_is_called_on(name):
    scaled = Scaled()
    for _ in range(2):
        np.testing.assert_array_equal(getattr(scaled, name)(X), X * 3)


def test_a_method_by_its_class_takes_the_instance_as_an_argument():
    np.testing.assert_array_equal(Scaled.step(Scaled(), X), X * 3)
    assert Scaled.step.lower(Scaled(), X).metadata.in_specs == {"x": (("batch",),)}


def test_a_method_looks_like_what_it_wraps():
    assert Scaled().step.__doc__ == "What it does."
    assert list(inspect.signature(Scaled().step).parameters) == ["x"]


def test_a_method_of_a_pytree_has_arrays_of_the_instance_as_arguments():
    @jax.tree_util.register_pytree_node_class
    class Layer:
        def __init__(self, w):
            self.w = w

        def tree_flatten(self):
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

        @ap.jit(mesh=MESH, schedule=[BP])
        def __call__(self, x):
            return jnp.tanh(x @ self.w)

    np.testing.assert_allclose(Layer(np.eye(8, dtype="f4"))(X), np.tanh(X), rtol=1e-5)


def test_an_nnx_step_can_be_a_method():
    nnx = pytest.importorskip("flax.nnx")

    class Counter(nnx.Module):
        def __init__(self):
            self.count = nnx.Variable(jnp.zeros(()))

        def add(self, x):
            self.count[...] += x.sum()
            return x

    Counter.add = ap.nnx.jit(Counter.add, MESH, [BP])
    counter = Counter()
    counter.add(X)
    assert counter.count[...] == X.sum()
