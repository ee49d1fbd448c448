"""Arguments and results that stay in the host's memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap

DEVICES = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
HOST = NamedSharding(DEVICES, P("d"), memory_kind="pinned_host")
MESH = ap.Mesh({"d": 8})


def update(state, x):
    return state * 0.5 + x, (state * x).sum()


@pytest.mark.parametrize("donated", [(), (0,)], ids=["kept", "donated"])
def test_state_that_is_given_to_the_host_comes_from_there_and_goes_back(donated):
    state, x = jax.device_put(jnp.arange(128.0).reshape(16, 8), HOST), jnp.ones((16, 8))
    wanted = update(np.arange(128.0).reshape(16, 8), np.ones((16, 8)))
    step = ap.jit(update, MESH, in_shardings=(HOST, P("d")), out_shardings=(HOST, None), donate_argnums=donated)
    for _ in range(2):
        state, total = step(jax.device_put(jnp.arange(128.0).reshape(16, 8), HOST), x)
        assert state.sharding.memory_kind == "pinned_host"
        assert total.sharding.memory_kind != "pinned_host"
        np.testing.assert_allclose(state, wanted[0])
        np.testing.assert_allclose(total, wanted[1])
    assert step.lower(state, x).out_shardings[0].memory_kind == "pinned_host"


def test_an_array_of_the_devices_is_moved_to_the_host_where_it_is_given_there():
    step = ap.jit(update, MESH, in_shardings=(HOST, None))
    np.testing.assert_allclose(step(jnp.ones((16, 8)), jnp.ones((16, 8)))[0], 1.5)


def test_a_result_that_the_model_puts_into_the_hosts_memory_is_left_there():
    def program(x):
        return {"kept": jax.device_put(x * 2, jax.memory.Space.Host), "other": x + 1}

    made = ap.jit(program, MESH, [ap.ManualPartition({"x": 0}, "d")])(jnp.ones((16, 8)))
    assert {name: a.sharding.memory_kind == "pinned_host" for name, a in made.items()} == {"kept": True, "other": False}
    np.testing.assert_allclose(made["kept"], 2)
