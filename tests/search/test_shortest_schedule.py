"""Is a found schedule printed as the few decisions that lay everything out as it does?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest

import autopart as ap

MESH = ap.Mesh({"data": 4, "model": 2}, device="tpu_v3")
D, F, LAYERS = 256, 1024, 3
OPT = optax.adam(1e-3)
S = jax.ShapeDtypeStruct


def step(params, state, x):
    def loss(params):
        y = x
        for n, block in enumerate(params["blocks"]):
            with jax.named_scope(f"block_{n}"):
                y = y + jnp.tanh(y @ block["up"]) @ block["down"]
        return (y @ params["head"]).var()

    updates, state = OPT.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


def args(batch=64):
    blocks = [{"up": S((D, F), "float32"), "down": S((F, D), "float32")}] * LAYERS
    params = {"blocks": blocks, "head": S((D, D), "float32")}
    return params, jax.eval_shape(OPT.init, params), S((batch, D), "float32")


def lowered(schedule):
    return ap.jit(step, MESH, schedule, donate_argnums=(0, 1)).lower(*args())


def schedule_of(code):
    space = {"ap": ap}
    exec(code, space)
    return space["schedule"]


SCHEDULES = {
    "FSDP": "FSDP(data)",
    "HSDP": "HSDP(data,model)",
    "ZeRO-2": "DP(data,model)+ZeRO2(data,model)",
    "Megatron": "DP(data)+Megatron(model)+ZeRO3(data)",
    "search": [ap.AutomaticPartition(budget=ap.Budget(60), cache=False)],
    "values": [ap.ManualPartition({"block_1/dot_general@*": 0}, "data"), ap.ManualPartition({"*/up": 1}, "model")],
    "loops": ["FSDP(data)", ap.ShardedLoops(), ap.SharedGathers(64)],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_code_leads_to_the_same_program(name):
    found = lowered(SCHEDULES[name])
    again = lowered(schedule_of(found.metadata.as_schedule()))
    assert again.as_text() == found.as_text()
    assert again.estimate.step_s == found.estimate.step_s
    assert "%" not in found.metadata.as_schedule()


def test_layers_and_kinds_of_weights_become_one_glob():
    code = lowered("FSDP(data)").metadata.as_schedule()
    (tactic,) = schedule_of(code)[1:]
    assert tactic.inputs == {"params": 0}


def test_equal_decisions_of_several_axes_are_one_tactic():
    (first, *_) = schedule_of(lowered("DP(data,model)").metadata.as_schedule())
    assert (dict(first.inputs), first.axis) == ({"x": 0}, ("data", "model"))


def test_decisions_that_change_nothing_go():
    needless = ap.ManualPartition({"x": 0, "block_0/dot_general@*#0": 0}, "data")
    (tactic,) = schedule_of(lowered([needless]).metadata.as_schedule())
    assert tactic.inputs == {"x": 0}


def test_a_decision_that_only_a_later_tactic_needs_stays():
    whole = ap.ManualPartition({"params/blocks/*/down": ap.REPLICATED}, "model")
    found = lowered([whole, ap.ManualPartition({"params/blocks/*/up": 1}, "model")])
    schedule = schedule_of(found.metadata.as_schedule())
    assert lowered(schedule).as_text() == found.as_text()
    assert len(schedule) == 2


def test_metadata_from_a_file_prints_what_was_done():
    found = lowered("FSDP(data)").metadata
    read = ap.Metadata.from_json(found.to_json())
    assert 'ap.ManualPartition({"params/blocks/2/down": 0}, axis="data")' in read.as_schedule()
    assert read == found


def test_constraints_of_the_model_are_not_printed_again():
    def constrained(x):
        return jnp.tanh(jax.lax.with_sharding_constraint(x * 2, jax.NamedSharding(DEVICES, jax.P("data")))) @ x.T

    DEVICES = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    run = lambda schedule: ap.jit(constrained, MESH, schedule).lower(S((64, 64), "float32"))  # noqa: E731
    found = run([ap.ManualPartition({"x": 1}, "model")])
    code = found.metadata.as_schedule()
    assert code.count("ManualPartition(") == 1
    assert run(schedule_of(code)).as_text() == found.as_text()


def test_for_what_has_no_name_a_tag_is_offered(tmp_path):
    text = """func.func @main(%x: tensor<8x8xf32>) -> tensor<f32> {
      %0 = stablehlo.tanh %x : tensor<8x8xf32> loc(unknown)
      %1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [1]
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc(unknown)
      %2 = stablehlo.dot_general %1, %1, contracting_dims = [0, 1] x [0, 1]
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<f32> loc(unknown)
      return %2 : tensor<f32> }"""
    (tmp_path / "model.mlir").write_text(text)
    program = ap.load(tmp_path / "model.mlir")
    found = ap.jit(program, MESH, [ap.ManualPartition({"%2": 1}, "data")]).lower(S((8, 8), "float32"))
    code = found.metadata.as_schedule()
    assert '{"%2": 1}' in code
    assert 'y = ap.tag("name", y) in the model gives one' in code
