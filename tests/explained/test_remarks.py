"""Is what could be better said: state that is not donated, memory kinds; and nothing that is next to nothing?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap

MESH = ap.Mesh({"b": 4}, device="h100")
BP = ap.ManualPartition({"x": 0}, axis="b", name="BP")
ADAM = optax.adam(1e-3)
PARAMS = {"up": jax.ShapeDtypeStruct((512, 2048), "float32"), "down": jax.ShapeDtypeStruct((2048, 512), "float32")}
STATE = jax.eval_shape(ADAM.init, PARAMS)
X = jax.ShapeDtypeStruct((64, 512), "float32")


def step(params, opt_state, x):
    gradients = jax.grad(lambda p: jnp.mean((jnp.tanh(x @ p["up"]) @ p["down"]) ** 2))(params)
    updates, opt_state = ADAM.update(gradients, opt_state)
    return optax.apply_updates(params, updates), opt_state, jnp.sum(x)


def test_state_that_is_not_donated_is_named_with_what_it_costs():
    low = ap.jit(step, MESH, [BP]).lower(PARAMS, STATE, X)
    remark = low.metadata.remarks[0]
    wanted = (
        "opt_state, params come back with the same types and are not donated: donate_argnames=('opt_state', 'params')"
    )
    assert remark.startswith(wanted)
    donated = ap.jit(step, MESH, [BP], donate_argnames=("opt_state", "params")).lower(PARAMS, STATE, X)
    saved = low.estimate.peak_bytes - donated.estimate.peak_bytes
    assert float(remark.partition(" saves up to ")[2].removesuffix(" MB on a device")) == pytest.approx(
        saved / 1e6, 0.05
    )
    assert not donated.metadata.remarks
    half = ap.jit(step, MESH, [BP], donate_argnums=0).lower(PARAMS, STATE, X).metadata.remarks
    assert half[0].startswith("opt_state comes back")
    assert type(low.metadata).from_json(low.metadata.to_json()) == low.metadata


@pytest.mark.parametrize(
    "fun",
    [lambda x, y: (x @ y, y @ x), lambda x, y: {"x": x + 1}, lambda x, y: (y * 2, y @ y)],
    ids=["products", "one array", "arrays of one type"],
)
def test_arrays_that_are_no_state_are_not_to_be_donated(fun):
    assert not ap.jit(fun, MESH).lower(jnp.ones((512, 512)), jnp.ones((512, 512))).metadata.remarks


def test_an_unchanged_tree_and_one_that_products_make_are_no_state():
    tree = {"a": jnp.ones((512, 512)), "b": jnp.ones((512, 512))}
    assert not ap.jit(lambda tree: tree, MESH).lower(tree).metadata.remarks
    nothing = ap.jit(lambda tree, x: jax.tree.map(lambda _: x @ x, tree), MESH).lower(tree, jnp.ones((512, 512)))
    assert not nothing.metadata.remarks


def test_a_memory_kind_that_estimates_leave_out_is_said():
    devices = jax.make_mesh((4,), ("b",), axis_types=(jax.sharding.AxisType.Auto,))
    for kind, says in (("pinned_host", True), ("device", False), (None, False)):
        given = NamedSharding(devices, P("b"), memory_kind=kind)
        low = ap.jit(lambda x: x + 1, MESH, in_shardings=(given,), out_shardings=given).lower(jnp.ones((8, 8)))
        about = [remark for remark in low.metadata.remarks if "memory_kind" in remark]
        assert len(about) == 2 * says
        if says:
            assert about[0].startswith("in_shardings of x: memory_kind 'pinned_host' is kept")


def test_a_value_that_the_model_puts_into_host_memory_is_said():
    def program(x):
        return jnp.sin(jax.device_put(jnp.tanh(x), jax.memory.Space.Host)) * 2

    remarks = ap.jit(program, MESH, [BP]).lower(jnp.ones((8, 8))).metadata.remarks
    assert remarks[0].startswith("1 value (256 B) that the model puts into host memory counts in the devices' memory")


def test_what_is_next_to_nothing_is_not_said_to_be_replicated_and_lines_are_wrapped():
    def program(params, x):
        return jnp.tanh(x @ params["up"]) @ params["down"] + params["bias"]

    bias, many = jax.ShapeDtypeStruct((512,), "float32"), jax.ShapeDtypeStruct((4096, 512), "float32")
    metadata = ap.jit(program, MESH, [BP]).lower({**PARAMS, "bias": bias}, many).metadata
    assert any(row.names == ("params/bias",) for row in metadata.replicated)
    lines = str(metadata).partition("left replicated:")[2].splitlines()
    assert not any("params/bias" in line for line in lines)
    assert lines[1].startswith("  params/down")
    assert "try  ap.ManualPartition({'params': ap.FIRST_DIVISIBLE_DIM}, axis='b')" in "\n".join(lines)
    assert all(len(line) <= 120 for line in lines)
    fixed = ap.jit(program, MESH, [BP, ap.ManualPartition({"params": ap.FIRST_DIVISIBLE_DIM}, axis="b")])
    assert "left replicated" not in str(fixed.lower({**PARAMS, "bias": bias}, many).metadata)
