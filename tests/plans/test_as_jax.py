"""Is a plan, as PartitionSpecs, lines of code and rules, what jax and flax take, and does it lead to the same?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap

MESH = ap.Mesh({"data": 4, "model": 2}, device="h100")
V, D, H, F, S, B = 96, 64, 8, 128, 16, 32
RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.normal(scale=0.1, size=shape).astype(np.float32)


PARAMS = {
    "embedding": array(V, D),
    "blocks": [{"q": array(D, D), "o": array(D, D), "up": array(D, F), "down": array(F, D)} for _ in range(2)],
    "head": array(D, V),
}
TOKENS = RNG.integers(0, V, (B, S)).astype(np.int32)


def loss(params, tokens):
    x = params["embedding"][tokens]
    for n, block in enumerate(params["blocks"]):
        with jax.named_scope(f"block_{n}"):
            q = (x @ block["q"]).reshape(B, S, H, D // H)
            scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, q))
            x = x + jnp.einsum("bhst,bthd->bshd", scores, q).reshape(B, S, D) @ block["o"]
            x = x + jnp.tanh(x @ block["up"]) @ block["down"]
    return jnp.mean((x @ params["head"]) ** 2)


def step(params, tokens):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, tokens))


def plan_of(schedule):
    return ap.jit(step, MESH, schedule, donate_argnums=0).lower(PARAMS, TOKENS).plan


PLAN = plan_of("FSDP(data)+Megatron(model)")


def test_specs_run_in_plain_jax():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    specs = PLAN.as_jax().specs
    tree = jax.tree_util.tree_map_with_path(
        lambda path, _: NamedSharding(mesh, specs["params/" + jax.tree_util.keystr(path, simple=True, separator="/")]),
        PARAMS,
    )
    found = jax.jit(step, in_shardings=(tree, NamedSharding(mesh, specs["tokens"])))(PARAMS, TOKENS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, step(PARAMS, TOKENS))
    assert specs["params/blocks/0/up"] == P("data", "model")


def test_lines_say_where_weights_are_gathered_and_sums_are_taken():
    lines = {(line.value, line.spec): line for line in PLAN.as_jax().constraints}
    gathered = lines["params/blocks/*/up", P(None, "model")]
    assert (gathered.where, gathered.type, gathered.count) == ("test_as_jax.py:38", "f32[64,128]", 2)
    assert any("block_*/dot_general" in value for value, _ in lines)
    assert not any("transpose" in value for value, _ in lines)


def test_rules_name_dims_by_what_they_do():
    rules = dict(PLAN.as_jax().rules)
    assert rules["embed"] == rules["batch"] == "data"
    assert rules["mlp"] == rules["heads"] == "model"
    dims = {a.name: a.dims for a in PLAN.inputs}
    assert dims["params/embedding"] == ("vocab", "embed")
    assert dims["params/head"] == ("embed", "vocab")
    assert dims["params/blocks/1/q"] == ("embed", "heads")
    assert dims["params/blocks/1/down"] == ("mlp", "embed")
    assert dims["tokens"] == ("batch", "length")


def test_what_does_not_fit_into_rules_is_said():
    said = "\n".join(PLAN.as_jax().misfits)
    assert 'its "mlp" is on model, data, not on model' in said
    alike = plan_of([ap.ManualPartition({"tokens": 0}, "data"), ap.ManualPartition({"params/*/up": 1}, "model")])
    assert alike.as_jax().misfits == ()


def test_flax_reads_the_rules():
    linen = pytest.importorskip("flax.linen")
    with linen.logical_axis_rules(PLAN.as_jax().rules):
        assert linen.logical_to_mesh_axes(("embed", "mlp")) == P("data", "model")


@pytest.mark.parametrize("text", [str(PLAN.as_jax()), PLAN.as_jax().explicit], ids=["auto", "explicit"])
def test_the_code_runs(text):
    space: dict = {}
    with jax.set_mesh(jax.make_mesh((8,), ("other",))):
        exec(text.replace("jax.set_mesh(", "mesh = ("), space)
    kind = AxisType.Explicit if "Explicit" in text else AxisType.Auto
    assert space["mesh"].axis_types == (kind,) * 2
    assert space["specs"]["params/blocks/*/up"] == P("data", "model")
    assert ("jax.sharding.reshard(y, P(None, 'model'))" in text) == (kind == AxisType.Explicit)


def test_with_explicit_axes_a_product_over_parts_is_asked_for_its_result():
    def forward(params, x):
        return jnp.tanh(x @ params["up"]) @ params["down"]

    params, x = PARAMS["blocks"][0], array(B, D)
    BP, MP = ap.ManualPartition({"x": 0}, "data"), ap.ManualPartition({"params/up": 1}, "model")
    found = ap.jit(forward, MESH, [BP, MP]).lower(params, x).plan.as_jax()
    assert "dot_general(..., out_sharding=P('data'))" in found.explicit
    assert "out_sharding" not in str(found)

    def with_explicit_axes(params, x):
        return jnp.matmul(jnp.tanh(x @ params["up"]), params["down"], out_sharding=P("data"))

    with jax.set_mesh(jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)):
        parts = {name: jax.device_put(params[name], found.specs[f"params/{name}"]) for name in ("up", "down")}
        there = jax.jit(with_explicit_axes)(parts, jax.device_put(x, found.specs["x"]))
    np.testing.assert_allclose(there, forward(params, x), atol=1e-5)


def test_a_plan_from_a_file_has_them_too():
    read = ap.Plan.from_json(PLAN.to_json())
    assert str(read.as_jax()) == str(PLAN.as_jax())
    assert read == PLAN
