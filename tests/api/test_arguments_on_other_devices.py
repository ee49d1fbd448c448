"""May arguments be on any devices, each on others, whichever way the function is lowered or called first?"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import autopart as ap

MESH = ap.Mesh({"batch": 8})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X, W = np.ones((16, 8), "f4"), np.ones((8, 8), "f4")


def linear(x, w):
    return x @ w


def over(devices, spec):
    mesh = jax.sharding.Mesh(np.array(devices), ("z",), axis_types=(jax.sharding.AxisType.Auto,))
    return NamedSharding(mesh, spec)


PLACES = {
    "NumPy": lambda x: x,
    "jax's own": jnp.asarray,
    "device 3": lambda x: jax.device_put(x, jax.devices()[3]),
    "device 5": lambda x: jax.device_put(x, jax.devices()[5]),
    "unpinned host memory": lambda x: jax.device_put(
        x, SingleDeviceSharding(jax.devices()[6], memory_kind="unpinned_host")
    ),
    "four devices": lambda x: jax.device_put(x, over(jax.devices()[:4], P())),
    "all, the last first": lambda x: jax.device_put(x, over(jax.devices()[::-1], P("z"))),
}


@pytest.mark.parametrize(("one", "other"), [*itertools.permutations(PLACES, 2)])
def test_each_argument_may_be_anywhere(one, other):
    step, x, w = ap.jit(linear, MESH, [BP]), PLACES[one](X), PLACES[other](W)
    for _ in range(2):
        np.testing.assert_array_equal(step(x, w), X @ W)


def test_they_may_be_on_other_devices_in_whatever_they_are_given_to():
    x, w = PLACES["device 3"](X), PLACES["device 5"](W)
    step = ap.jit(linear, MESH, [BP])
    lowered = step.lower(x, w)
    for call in (lowered.compile(), lowered.interpret, ap.filter_jit(linear, MESH, [BP])):
        np.testing.assert_array_equal(call(x, w), X @ W)
    np.testing.assert_array_equal(ap.jit(linear, MESH, [BP])(x, w=w), X @ W)
    np.testing.assert_array_equal(jax.jit(lambda: step(x, w))(), X @ W)
    assert ap.named_schedules(linear, ap.Mesh({"batch": 8}, device="tpu_v3"), (x, w))


def test_abstract_arguments_may_name_other_devices():
    x, w = (
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=SingleDeviceSharding(jax.devices()[n]))
        for n, a in enumerate((X, W))
    )
    assert ap.jit(linear, MESH, [BP]).lower(x, w).metadata.in_specs == {"x": (("batch",),), "w": ()}


def test_a_key_and_an_array_may_be_on_other_devices():
    key, x = jax.device_put(jax.random.key(0), jax.devices()[2]), PLACES["device 5"](X)
    noisy = lambda x, key: x + jax.random.normal(key, x.shape)  # noqa: E731
    np.testing.assert_allclose(ap.jit(noisy, MESH, [BP])(x, key), noisy(X, jax.random.key(0)), rtol=1e-6)


def test_a_static_argument_that_is_a_pytree_of_arrays_stays_what_it_is():
    @jax.tree_util.register_pytree_node_class
    class Layer:
        def __init__(self, w):
            self.w = w

        def tree_flatten(self):
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    layer = Layer(jnp.asarray(W))
    step = ap.jit(lambda layer, x: x @ layer.w, MESH, [BP], static_argnums=0)
    np.testing.assert_array_equal(step(layer, X), X @ W)
    step = ap.jit(lambda x, *, layer: x @ layer.w, MESH, [BP], static_argnames="layer")
    np.testing.assert_array_equal(step(X, layer=layer), X @ W)
