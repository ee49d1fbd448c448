"""To which programs and meshes does a plan apply, and what does it say of the others?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
W = jax.ShapeDtypeStruct((16, 16), "float32")
X = jax.ShapeDtypeStruct((32, 16), "float32")
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
MP = ap.ManualPartition({"params": {"up": 1}}, axis="model", name="MP")
PARAMS = {"up": W, "down": W}


def model(params, x):
    return jnp.tanh(x @ params["up"]) @ params["down"]


def planned(schedule=(BP, MP), fun=model, params=PARAMS, x=X, mesh=MESH):
    return ap.jit(fun, mesh, schedule).lower(params, x).plan


PLAN = planned()


def test_an_edit_elsewhere_leaves_a_plan_that_applies():
    def edited(params, x):
        x = jnp.sin(x) * 2
        return jnp.cos(model(params, x)) + params["bias"]

    low = ap.jit(edited, MESH, PLAN).lower({**PARAMS, "bias": jax.ShapeDtypeStruct((16,), "float32")}, X)
    assert low.metadata.in_specs["params/up"] == ((), ("model",))
    assert low.metadata.in_specs["params/down"] == (("model",),)
    assert low.metadata.tactics[0].report["plan"] == {"hash": PLAN.hash, "program": "edited"}
    again = ap.jit(model, MESH, PLAN).lower(PARAMS, X)
    assert again.metadata.tactics[0].report["plan"]["program"] == "same"


def conflicting(params, x):
    return jnp.tanh(x @ x.T).sum()


ARGUMENTS = range(3)


def first_dot(x):
    """The number of what the first matmul of `conflicting` leaves."""
    program = ap.jit(conflicting, MESH).lower(PARAMS, x).traced.program
    op = next(op for op in range(program.op_count) if program.spec(op).kind == "dot_general")
    return f"%{program.result_ptr[op]}"


def edited_elsewhere(params, x):
    return jnp.sin(params["up"]) * conflicting(params, x) + params["up"] @ params["down"]


def test_a_decision_about_an_intermediate_is_found_again_after_an_edit_elsewhere():
    square = jax.ShapeDtypeStruct((16, 16), "float32")
    plan = planned([ap.ManualPartition({first_dot(square): 1}, axis="model")], conflicting, x=square)
    rows = [row for step in plan.steps for row in step.actions]
    assert "op" in {row[1][0] for row in rows if row[0] == "tile"}
    assert not any("%" in str(part) for row in rows for part in row)
    low = ap.jit(edited_elsewhere, MESH, plan).lower(PARAMS, square)
    (decided,) = [a.value for a in low.scheduled.actions if hasattr(a, "dim") and a.value not in ARGUMENTS]
    program = low.traced.program
    assert program.spec(int(program.value_op[decided])).kind == "dot_general"
    assert program.operands_of(int(program.value_op[decided]))[0] == program.arguments[2]


def test_an_edit_of_the_op_that_is_decided_about_is_an_error_that_names_it():
    def edited(params, x):
        return jnp.tanh(x @ jnp.sin(x).T).sum()

    square = jax.ShapeDtypeStruct((16, 16), "float32")
    plan = planned([ap.ManualPartition({first_dot(square): 1}, axis="model")], conflicting, x=square)
    with pytest.raises(ap.PlanError, match=r"dot_general of f32\[16,16\].*edited there"):
        ap.jit(edited, MESH, plan).lower(PARAMS, square)


def test_other_arguments_are_listed():
    def other(weights, x):
        return x @ weights["up"]

    with pytest.raises(ap.PlanError, match="2 of its 3 inputs missing") as error:
        ap.jit(other, MESH, PLAN).lower({"up": W}, X)
    assert "params/up is missing" in str(error.value)


def test_arguments_of_other_types_are_listed():
    with pytest.raises(ap.PlanError, match="1 of another type") as error:
        ap.jit(model, MESH, PLAN).lower(PARAMS, jax.ShapeDtypeStruct((32, 16), "bfloat16"))
    assert "x is bf16[32,16], was f32[32,16]" in str(error.value)
    row = ap.jit(lambda x: x * 2, MESH, [BP]).lower(jax.ShapeDtypeStruct((32,), "float32")).plan
    with pytest.raises(ap.PlanError, match="1 of another type"):
        ap.jit(lambda x: x * 2, MESH, row).lower(jax.ShapeDtypeStruct((), "float32"))


def test_a_plan_applies_to_another_batch_and_width_where_its_axes_divide_them():
    wide = jax.ShapeDtypeStruct((16, 24), "float32"), jax.ShapeDtypeStruct((24, 16), "float32")
    low = ap.jit(model, MESH, PLAN).lower(
        dict(zip(("up", "down"), wide, strict=True)), jax.ShapeDtypeStruct((64, 16), "float32")
    )
    by_hand = ap.jit(model, MESH, [BP, MP]).lower(
        dict(zip(("up", "down"), wide, strict=True)), jax.ShapeDtypeStruct((64, 16), "float32")
    )
    assert low.metadata.in_specs == by_hand.metadata.in_specs
    assert low.metadata.out_specs == by_hand.metadata.out_specs
    assert low.metadata.remarks[0] == (
        "the plan was made for another program: params/down is f32[24,16], was f32[16,16], params/up is f32[16,24], "
        "was f32[16,16], x is f32[64,16], was f32[32,16]"
    )
    changed = {(row.what, row.name): (row.before, row.after) for row in PLAN.diff(low.plan).rows}
    assert changed["input", "x"] == ("f32[32,16] [batch]", "f32[64,16] [batch]")
    assert ("step_s", "") in changed
    with pytest.raises(ap.PlanError, match="30 is not a multiple of 4"):
        ap.jit(model, MESH, PLAN).lower(PARAMS, jax.ShapeDtypeStruct((30, 16), "float32"))


def decoder(params, x):
    for block in params["blocks"]:
        x = x + jnp.tanh(x @ block["up"]) @ block["down"]
    return x @ params["head"]


def train(state, x):
    gradients = jax.grad(lambda p: jnp.mean(decoder(p, x) ** 2))(state["params"])
    return {"params": jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], gradients)}


def trained(batch=32, width=16, layers=2, name="params", block=("up", "down")):
    up, down = (jax.ShapeDtypeStruct(s, "float32") for s in ((width, 64), (64, width)))
    blocks = [dict(zip(block, (up, down), strict=True)) for _ in range(layers)]
    params = {"blocks": blocks, "head": jax.ShapeDtypeStruct((width, 8), "float32")}
    return {name: params}, jax.ShapeDtypeStruct((batch, width), "float32")


SEARCH = ap.AutomaticPartition(budget=ap.Budget(40), cache=False, progress=False)


@pytest.mark.parametrize("name", ["FSDP(batch)+Megatron(model)", "DP(batch)+MegatronSP(model)", ""])
def test_a_plan_of_a_training_step_applies_to_the_batch_of_a_cluster(name):
    schedule, width = ([ap.Parallelism(name)], 16) if name else ([SEARCH], 4096)
    plan = ap.jit(train, MESH, schedule, donate_argnums=0).lower(*trained(batch=4096, width=width)).plan
    low = ap.jit(train, MESH, ap.Plan.from_json(plan.to_json()), donate_argnums=0).lower(*trained(8192, width))
    assert any(a.spec for a in plan.inputs)
    assert low.metadata.in_specs == {a.name: a.spec for a in plan.inputs}
    again = ap.jit(train, MESH, low.plan, donate_argnums=0).lower(*trained(8192, width))
    assert again.plan.hash == low.plan.hash


@pytest.mark.parametrize("name", ["FSDP(batch)+Megatron(model)", "DP(batch)+MegatronSP(model)"])
def test_decisions_about_layers_extend_to_an_added_one(name):
    plan = ap.jit(train, MESH, [ap.Parallelism(name)], donate_argnums=0).lower(*trained()).plan
    low = ap.jit(train, MESH, plan, donate_argnums=0).lower(*trained(layers=3))
    by_hand = ap.jit(train, MESH, [ap.Parallelism(name)], donate_argnums=0).lower(*trained(layers=3))
    assert low.metadata.in_specs == by_hand.metadata.in_specs
    assert low.estimate.step_s == pytest.approx(by_hand.estimate.step_s, 0.02)
    said = low.metadata.remarks[0]
    assert "state/params/blocks/2/down is new, and decided as state/params/blocks/1/down" in said


def test_arrays_that_are_numbered_within_a_layer_are_decided_as_those_of_the_same_number():
    def step(params, x):
        def loss(params):
            h = x
            for first, second in params:
                h = h + jnp.tanh(h @ first) @ second
            return jnp.mean(h**2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    square, x = jax.ShapeDtypeStruct((16, 16), "float32"), jax.ShapeDtypeStruct((32, 16), "float32")
    MP = ap.ManualPartition({"params": {"*/0": 1}}, axis="model", name="MP")
    plan = ap.jit(step, MESH, [MP], donate_argnums=0).lower(2 * [(square, square)], x).plan
    specs = ap.jit(step, MESH, plan, donate_argnums=0).lower(4 * [(square, square)], x).metadata.in_specs
    assert [specs[f"params/{n}/0"] for n in range(4)] == 4 * [((), ("model",))]
    assert [specs[f"params/{n}/1"] for n in range(4)] == 4 * [(("model",),)]


def test_renamed_arguments_and_keys_are_found_by_structure_and_said():
    def renamed(s, x):
        return train(s, x)

    def keys(state, x):
        blocks = [{"up": block["w_in"], "down": block["w_out"]} for block in state["params"]["blocks"]]
        made = train({"params": {**state["params"], "blocks": blocks}}, x)["params"]
        made["blocks"] = [{"w_in": block["up"], "w_out": block["down"]} for block in made["blocks"]]
        return {"params": made}

    plan = ap.jit(train, MESH, [ap.Parallelism("FSDP(batch)+Megatron(model)")], donate_argnums=0).lower(*trained()).plan
    low = ap.jit(renamed, MESH, plan, donate_argnums=0).lower(*trained())
    assert low.metadata.in_specs == {a.name.replace("state/", "s/"): a.spec for a in plan.inputs}
    assert "s/params/head was state/params/head" in str(low.metadata.tactics[0].report["plan"]["differs"])
    low = ap.jit(keys, MESH, plan, donate_argnums=0).lower(*trained(block=("w_in", "w_out")))
    specs = {a.name.replace("/up", "/w_in").replace("/down", "/w_out"): a.spec for a in plan.inputs}
    assert low.metadata.in_specs == specs


def test_square_weights_under_other_names_are_not_guessed():
    def other(weights, x):
        return jnp.tanh(x @ weights["b"]) @ weights["a"]

    with pytest.raises(ap.PlanError, match="2 of its 3 inputs missing"):
        ap.jit(other, MESH, PLAN).lower({"a": W, "b": W}, X)


@pytest.mark.parametrize(
    ("axes", "why"),
    [
        ({"batch": 8}, 'axis "model" is missing'),
        ({"batch": 2, "model": 2}, 'axis "batch" has size 2, was 4'),
        ({"model": 2, "batch": 4}, "another order"),
        ({"batch": 4, "model": 2, "more": 1}, 'axis "more" is new'),
    ],
)
def test_another_mesh_is_an_error_that_says_which_axis(axes, why):
    with pytest.raises(ap.PlanError, match=why):
        ap.jit(model, ap.Mesh(axes), PLAN).lower(PARAMS, X)


def test_a_mesh_of_real_devices_takes_the_plan_of_another_device():
    devices = np.array(jax.devices()[:8]).reshape(4, 2)
    low = ap.jit(model, jax.sharding.Mesh(devices, ("batch", "model")), PLAN).lower(PARAMS, X)
    assert low.metadata.in_specs["params/up"] == ((), ("model",))


def test_an_edit_that_the_plan_reaches_is_an_error_that_says_what_would_lie_elsewhere():
    def edited(params, x):
        return jnp.tanh(x @ params["up"]).sum(axis=1) + params["down"][0, 0]

    with pytest.raises(ap.PlanError, match=r"params/(up|down) would be whole, was"):
        ap.jit(edited, MESH, planned([MP])).lower(PARAMS, X)


def test_a_plan_stands_where_a_schedule_does_and_beside_other_tactics():
    _, metadata = ap.partition(model, MESH, PLAN, (PARAMS, X))
    assert [tactic.name for tactic in metadata.tactics] == ["BP", "MP"]
    low = ap.jit(model, MESH, [BP, ap.Replay(planned([MP]))]).lower(PARAMS, X)
    assert low.plan.inputs == PLAN.inputs
    auto = ap.AutomaticPartition(["batch", "model"], seeds=[PLAN], budget=ap.Budget(3), cache=False, progress=False)
    assert ap.jit(model, MESH, [auto]).lower(PARAMS, X).estimate.step_s <= PLAN.step_s


@pytest.mark.parametrize(
    "nonsense", ["plan.json", ["tile<x, 0, batch>"], [BP], {"x": 0}, None, 3, [("tile", 0, 0, "batch")]]
)
def test_replay_refuses_what_is_neither_actions_nor_a_plan(nonsense):
    with pytest.raises(ap.ArgumentError, match=r"a plan \(lowered.plan, ap.Plan.load\(path\)\), or a list of actions"):
        ap.Replay(nonsense)


def test_replay_refuses_a_plan_that_rewrites_the_program():
    plan = planned([ap.Microbatch({"x": 0}, steps=2), BP])
    with pytest.raises(ap.PlanError, match=r"ap.Replay cannot take a plan with \"Microbatch\""):
        ap.Replay(plan)


def test_options_that_are_not_the_plans_are_an_error():
    with pytest.raises(ap.PlanError, match="other options"):
        ap.jit(model, MESH, PLAN, options=ap.LoweringOptions(share_within=7))


def test_a_replayed_plan_says_which_options_it_needs():
    options = ap.LoweringOptions(share_within=7)
    plan = ap.jit(model, MESH, [BP], options=options).lower(PARAMS, X).plan
    with pytest.raises(ap.PlanError, match=r"options=plan.lowering_options\(\)"):
        ap.jit(model, MESH, [ap.Replay(plan)]).lower(PARAMS, X)
    again = ap.jit(model, MESH, [ap.Replay(plan)], options=plan.lowering_options()).lower(PARAMS, X)
    assert again.plan.hash == plan.hash


def test_microbatches_cut_by_a_function_cannot_be_planned():
    low = ap.jit(model, MESH, [ap.Microbatch({"x": lambda path, shape: 0}, steps=2)]).lower(PARAMS, X)
    with pytest.raises(ap.PlanError, match="decides when it is called"):
        _ = low.plan
