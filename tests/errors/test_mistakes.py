"""Is each mistake that people make met by an error that says what is right?

A row is a mistake and what must be said of it: the line after "try", or the reason where nothing simple is legal. None
may end in an error of another kind, none may pass without a word. A program is lowered once for all rows that only ask
about it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from tests.errors.mistaken import (
    ARGS,
    BP,
    FOLDER,
    MESH,
    OPT,
    PARAMS,
    arrays,
    called_twice,
    edited,
    file,
    low,
    lower,
    normalised,
    plan,
    search,
    shape,
    step,
    tile,
    twice,
)

ON_TPU = ap.Mesh({"data": 4}, device="tpu_v3")


def sweep(args=ARGS, **options):
    return ap.sweep(step, args, **{"axes": ["a"], "budget": ap.Budget(0), "cache": False, **options})


MISTAKES = [
    ("argument typo", lambda: lower(tile({"parms": 0})), "'params', 'params/up', 'params/down'"),
    ("path typo", lambda: lower(tile({"params": {"upp": 0}})), "'up'"),
    ("glob nothing", lambda: lower(tile({"params": {"*/kernel": 0}})), "'down', 'up'"),
    ("tag missing", lambda: lower(tile({"hiden": 0})), "'opt_state', 'params', 'x'"),
    ("output typo", lambda: lower(tile({"output": 0})), "'outputs', 'outputs/1/1', 'outputs/0/up'"),
    ("axis typo", lambda: lower(tile({"x": 0}, "dta")), "'data'"),
    ("optimizer typo at lower", lambda: lower(search(optimizer="mtcs")), "'mcts'"),
    ("executor typo", lambda: lower(search(executor="procs")), "'processes'"),
    ("cost model typo", lambda: ap.jit(step, MESH, [], cost_model="simulater"), "'simulator'"),
    ("device typo", lambda: ap.Mesh({"a": 2}, device="tpu_v9"), "'tpu_v7', 'tpu_v4', 'tpu_v3'"),
    ("device capitals", lambda: ap.Mesh({"a": 2}, device="H100"), "'h100', 'h200', 'b200'"),
    ("schedule file nothing", lambda: lower("nothing.py"), "there is no file nothing.py"),
    ("named typo", lambda: lower(ap.Parallelism("FDSP(data)")), "'FSDP', 'DP', 'HSDP'"),
    ("named no axes", lambda: lower(ap.Parallelism("FSDP")), 'such as "DP(data)" or "FSDP(data)+Megatron(model'),
    ("named axis typo", lambda: lower(ap.Parallelism("FSDP(dat)")), "'data'"),
    (
        "named nothing to do",
        lambda: lower(ap.Parallelism("Experts(data)")),
        "ap.named_schedules(fun, mesh, args) lists what t",
    ),
    ("named syntax", lambda: lower(ap.Parallelism("FSDP(data")), 'such as "DP(data)" or "FSDP(data)+Megatron(model'),
    ("named part twice", lambda: lower(ap.Parallelism("DP(data)+DP(data)")), "each part once"),
    ("named axis twice", lambda: lower(ap.Parallelism("DP(data,data)")), "each axis once: what it tiles is tiled by"),
    ("named plus at the end", lambda: ap.Parallelism("DP(data)+"), 'such as "DP(data)" or "FSDP(data)+Megatron(model'),
    ("searched policy typo", lambda: lower(search(recompute=["matmul"]), mesh=ON_TPU), "'matmuls'"),
    ("lowered in place of a program", lambda: ap.costmodel.estimate(low()), "lowered.program"),
    ("schedule of a file typo", lambda: lower(f"{file('mine.py', 'import os, ast; mine = []')}:mne"), "try  'mine'"),
    ("sweep over nothing", lambda: ap.sweep(step, ARGS), 'devices=64, device="h100"'),
    (
        "sweep of a function of the batch",
        lambda: sweep(lambda n: ARGS, meshes=[ON_TPU]),
        "with batches=(16, 32) a function of the",
    ),
    ("sweep with a price missing", lambda: sweep(devices={"h100": 2, "b200": 2}, price={"b200": 5}), "'h100': ...}"),
    ("sweep with a price and no tokens", lambda: sweep(devices={"h100": 2}, price={"h100": 2}), "tokens=, the tokens,"),
    ("sweep on no mesh", lambda: sweep(devices={"h100": 2}, schedule="DP(data)").best, '"data" is not in the mesh {a'),
    ("recompute policy typo", lambda: lower(ap.Recompute("blcks")), "'blocks'"),
    ("pass typo", lambda: ap.jit(step, MESH, [], passes=["dead"]), "'dead_code', 'folded_padding', 'joined_pads'"),
    ("text form", lambda: low().as_text("html"), 'no text form \'html\'; there are "program", "core"'),
    ("explain typo", lambda: low().explain("params/upp"), "'params/up', 'params', 'params/down'"),
    ("what_if typo", lambda: low().what_if({"params": {"upp": 0}}, "data"), "'up'"),
    ("what_if axis typo", lambda: low().what_if({"params": 0}, "dat"), "'data'"),
    ("top kind", lambda: low().estimate.top(3, kind="kernel"), "'kernels', 'collectives', 'buffers', or None"),
    (
        "link typo",
        lambda: ap.named_schedules(step, ap.Mesh({"a": 2}, device="h100", links={"a": "nvlnk"}), ARGS),
        "'nvlink', 'line'",
    ),
    ("link axis typo", lambda: ap.Mesh({"a": 2}, device="h100", links={"b": "nvlink"}), "'a'"),
    ("donate name typo", lambda: lower(donate_argnames="parms"), "step(params, opt_state, x)"),
    ("static name typo", lambda: lower(static_argnames="parms"), "step(params, opt_state, x)"),
    ("dim out of range", lambda: lower(tile({"x": 2})), "dim 0 (32 = 4 * 8), or dim 1 (64 = 4 * 16)"),
    ("dim negative", lambda: lower(tile({"x": -3})), "dim 0 (32 = 4 * 8), or dim 1 (64 = 4 * 16)"),
    (
        "indivisible",
        lambda: lower(tile({"x": 0}, "data"), args=(PARAMS, OPT, shape(30, 64))),
        'dim 1 (64 = 4 * 16), or axis "model" (size 2 div',
    ),
    ("scalar tiled", lambda: lower(tile({"opt_state": {"0/count": 0}})), "leaving it whole (ap.UNKNOWN)"),
    ("tiled twice", lambda: lower(tile({"x": 0}), tile({"x": 1})), 'axis "model" (size 2 divides 64)'),
    ("kept then tiled", lambda: lower(tile({"x": ap.REPLICATED}), tile({"x": 0})), 'axis "model" (size 2 divides 32)'),
    ("float dim", lambda: lower(tile({"x": 0.0})), "a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, "),
    ("bool dim", lambda: lower(tile({"x": True})), "a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, "),
    ("string dim", lambda: lower(tile({"x": "rows"})), "a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, "),
    (
        "three decisions two axes",
        lambda: lower(tile({"x": (0, 1, 1)}, ("data", "model"))),
        "x: 3 decisions for 2 axes ('data', 'model')",
    ),
    ("spec other axis", lambda: lower(tile({"x": P("model")})), "axis=('data', 'model')"),
    ("spec too long", lambda: lower(tile({"x": P(None, None, "data")})), "the array has 2"),
    (
        "two globs one path",
        lambda: lower(tile({"params": {"*": 0, "up": 1}})),
        "narrow one of the globs, or use two tactics",
    ),
    ("callable of one arg", lambda: lower(tile({"x": lambda p: 0})), "a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, "),
    (
        "callable returns nonsense",
        lambda: lower(tile({"x": lambda p, s: "a"})),
        "a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, ",
    ),
    ("callable raises", lambda: lower(tile({"x": lambda p, s: 1 / 0})), "test_mistakes.py:"),
    ("pad no pair", lambda: lower(ap.Pad({"x": 3})), "(dim, multiple), with a dim from 0 to 1"),
    ("tactic no dict", lambda: ap.ManualPartition("x", axis="data"), "a dict of names to decisions, such as {'x': 0}"),
    ("axis int", lambda: ap.ManualPartition({"x": 0}, axis=0), "a string that is not empty, or a list of them"),
    (
        "axis twice",
        lambda: ap.ManualPartition({"x": 0}, axis=("data", "data")),
        "each axis once: what it tiles is tiled by all of",
    ),
    ("schedule tactic", lambda: ap.jit(step, MESH, BP), "a list of tactics, such as [ap.ManualPartition({"),
    ("mesh dict", lambda: ap.jit(step, {"data": 4}, []), "an ap.Mesh({...}), or a jax.sharding.Mesh"),
    ("fun none", lambda: ap.jit(None, MESH, []), "a function, or an instance of a class with __cal"),
    ("fun class instance", lambda: ap.jit(3, MESH, []), "a function, or an instance of a class with __cal"),
    (
        "partition option typo",
        lambda: ap.partition(step, MESH, [], ARGS, donate=0),
        "'donate_argnums', 'donate_argnames', 'state'",
    ),
    ("donate out of range", lambda: lower(donate_argnums=7), "step(params, opt_state, x)"),
    ("static out of range", lambda: lower(static_argnums=7), "step(params, opt_state, x)"),
    (
        "static unhashable",
        lambda: ap.jit(lambda x, n: x, MESH, [], static_argnums=1).lower(shape(8), [1]),
        "a program is kept for each static argument, so i",
    ),
    ("in_shardings tree", lambda: lower(in_shardings=(P("data"),)), "pytree structure error: different lengths of tup"),
    ("in_shardings axis", lambda: lower(in_shardings=(None, None, P("dta"))), "'data'"),
    (
        "in_shardings foreign mesh",
        lambda: lower(in_shardings=(None, None, NamedSharding(jax.make_mesh((2,), ("zz",)), P("zz")))),
        "'data', 'model'",
    ),
    (
        "in_shardings smaller mesh same axis",
        lambda: lower(
            in_shardings=(
                None,
                None,
                NamedSharding(jax.make_mesh((2,), ("data",), devices=jax.devices()[:2]), P("data")),
            )
        ),
        "a NamedSharding of the same mesh, or a Partition",
    ),
    (
        "device option",
        lambda: ap.jit(step, MESH, [], device=jax.devices()[0]),
        "None here: the mesh says which devices, an ap.Me",
    ),
    ("budget int", lambda: ap.AutomaticPartition(budget=100), "an ap.Budget(...)"),
    ("budget negative", lambda: ap.Budget(-1), "it is an integer of at least 0, or None"),
    ("budget text", lambda: ap.Budget("many"), "it is an integer of at least 0, or None"),
    ("seed float", lambda: ap.AutomaticPartition(seed=0.5), "an integer of at least 0"),
    ("axes typo in search", lambda: lower(search(["dat"])), "'data'"),
    (
        "microbatch choices int",
        lambda: ap.AutomaticPartition(microbatch=4),
        "a list of numbers of microbatches, such as (1, 2",
    ),
    (
        "recompute choices string",
        lambda: ap.AutomaticPartition(recompute="blocks"),
        "True or False, or a list of policies of ap.Recom",
    ),
    ("uneven typo", lambda: ap.AutomaticPartition(uneven="padded"), '"refuse" or "pad"'),
    (
        "search without device",
        lambda: lower(ap.AutomaticPartition(budget=ap.Budget(1)), mesh=ap.Mesh({"data": 4, "model": 2})),
        'ap.Mesh({...}, device="tpu_v3"), or cost_model=.',
    ),
    ("NaN objective", lambda: lower(search(objective=lambda c: float("nan"))), "a number, or math.inf for never"),
    ("objective raises", lambda: lower(search(objective=lambda c: c.stps)), "`Cost -> float`, less is better"),
    (
        "cost model returns number",
        lambda: lower(BP, cost_model=lambda local, mesh: 3),
        "an ap.Estimate, such as dataclasses.replace(esti",
    ),
    ("cost model raises", lambda: lower(BP, cost_model=lambda local, mesh: 1 / 0), "test_mistakes.py:"),
    ("mesh size 0", lambda: ap.Mesh({"a": 0}), "sizes are integers of at least 1"),
    ("mesh float", lambda: ap.Mesh({"a": 2.0}), "sizes are integers of at least 1"),
    ("mesh list", lambda: ap.Mesh([4, 2]), "a dict of axis names to sizes, such as {'batch':"),
    ("mesh int axis", lambda: ap.Mesh({0: 2}), "mesh axis names are non-empty strings, not 0"),
    (
        "mesh 16 on 8 devices",
        lambda: ap.jit(lambda x: x + 1, ap.Mesh({"a": 16}), [])(np.ones(16, "f4")),
        "XLA_FLAGS=--xla_force_host_platform_device_count",
    ),
    ("mesh unicode", lambda: ap.Mesh({"ä": 2}), "ASCII letters, digits, signs and spaces, without"),
    ("mesh device class", lambda: ap.Mesh({"a": 2}, device=ap.Device), "a Device(...), or the name of one"),
    (
        "mesh device dict",
        lambda: ap.Mesh({"a": 2}, device={"name": "h100"}),
        "the name of a registered device, such as 'tpu_v3",
    ),
    (
        "own device no links",
        lambda: lower(
            tile({"x": 0}, "d"),
            mesh=ap.Mesh({"d": 4}, device=ap.Device("mine", {"bf16": 1e14}, 64e9, 1e12, source="me")),
        ),
        'Device("mine", ..., link_bytes_per_s=...)',
    ),
    (
        "device negative memory",
        lambda: ap.Device("m2", {"bf16": 1e14}, -1, 1e12, source="x"),
        "it must be a positive, finite number",
    ),
    ("device no peak", lambda: ap.Device("m3", {}, 1e9, 1e12, source="x"), 'peak_flop_per_s={"bf16": ...}'),
    ("device file missing", lambda: ap.Mesh({"x": 2}, device="none.json"), "autopart calibrate"),
    (
        "device file of something else",
        lambda: ap.Mesh({"x": 2}, device=str(file("other.json", '{"name": "x"}'))),
        "why  it says no 'measured'",
    ),
    ("no such GPU topology", lambda: ap.costmodel.topology_devices("h100:8"), "h100:1x4x8"),
    (
        "device taken",
        lambda: ap.register_device(ap.Device("h100", {"bf16": 1e14}, 1e9, 1e12, source="x")),
        "first by 989 bf16, 494 TF32, 1979 fp8 and int8, ",
    ),
    (
        "call wrong shape",
        lambda: low().compile()(*arrays((PARAMS, OPT)), jnp.ones((16, 64))),
        "call the jitted function, which lowers anew for ",
    ),
    (
        "call wrong tree",
        lambda: low().compile()(*arrays((PARAMS, OPT)), jnp.ones((32, 64)), 1),
        "PyTreeDef((({'down': *, 'up': *}, (CustomNode(na",
    ),
    ("call missing arg", lambda: ap.jit(step, MESH, [BP])(jnp.ones(3)), "step(params, opt_state, x)"),
    ("call extra keyword", lambda: ap.jit(step, MESH, [BP])(*arrays(ARGS), y=3), "step(params, opt_state, x)"),
    (
        "call string arg",
        lambda: ap.jit(lambda x: x, MESH, [])("text"),
        "static_argnames='x' if it is to choose a program",
    ),
    (
        "call object array",
        lambda: ap.jit(lambda x: x, MESH, [])(np.array([None])),
        "static_argnames='x' if it is to choose a program",
    ),
    ("lower nothing", lambda: ap.jit(step, MESH, [BP]).lower(), "step(params, opt_state, x)"),
    (
        "grad of jit",
        lambda: jax.grad(ap.jit(lambda x: x.sum(), MESH, []))(jnp.ones(8)),
        "transform first, then partition: ap.jit(jax.grad",
    ),
    (
        "vmap of jit",
        lambda: jax.vmap(ap.jit(lambda x: x.sum(), MESH, []))(jnp.ones((8, 8))),
        "transform first, then partition: ap.jit(jax.vmap",
    ),
    (
        "closure tracer",
        lambda: jax.jit(lambda y: ap.jit(lambda x: x + y, MESH, [])(y))(jnp.ones(8)),
        "pass it as an argument of <lambda>",
    ),
    (
        "donated deleted",
        lambda: called_twice(ap.jit(lambda x: x + 1, MESH, [], donate_argnums=0)),
        "pass on what that call returned",
    ),
    (
        "donated twice",
        lambda: twice(ap.jit(lambda x, y: (x + 1, y + 1), MESH, [], donate_argnums=(0, 1))),
        "a copy for one of them: jnp.copy(x), or jax.tree",
    ),
    (
        "interpret other shapes",
        lambda: low().interpret(*arrays((PARAMS, OPT)), jnp.ones((16, 64))),
        "call the jitted function, which lowers anew for ",
    ),
    (
        "microbatch unknown",
        lambda: lower(ap.Microbatch({"y": 0}, 2)),
        "'opt_state', 'params', 'x'",
    ),
    (
        "microbatch indivisible",
        lambda: lower(ap.Microbatch({"x": 0}, 5)),
        "steps that divide the dim, or a dim that they di",
    ),
    ("microbatch 0", lambda: ap.Microbatch({"x": 0}, 0), "an integer from 1 to 1048576"),
    (
        "microbatch of weight",
        lambda: lower(ap.Microbatch({"params": {"up": 1}}, 2)),
        "loops=2, which keeps for the whole batch what la",
    ),
    (
        "batch norm microbatch",
        lambda: lower(ap.Microbatch({"x": 0}, 2), fun=normalised, args=(shape(4, 4), shape(8, 4))),
        "loops=2, which keeps for the whole batch what la",
    ),
    (
        "two microbatches",
        lambda: lower(ap.Microbatch({"x": 0}, 2), ap.Microbatch({"x": 0}, 4)),
        "an earlier tactic is one",
    ),
    ("recompute int", lambda: ap.Recompute(3), "a string that is not empty, or a function of 3 a"),
    (
        "pipeline no nest",
        lambda: lower(ap.Pipeline("data")),
        "layers with the same ops on parameters of the same shapes",
    ),
    (
        "pipeline schedule typo",
        lambda: lower(ap.Pipeline("data", 2, schedule="1f2b")),
        '"gpipe" or "1f1b" or "circular"',
    ),
    (
        "microbatch in a search's seeds",
        lambda: lower(search(seeds=[[ap.Microbatch({"x": 0}, 2)]])),
        "put it into the schedule that ap.jit is given, b",
    ),
    ("plan missing file", lambda: ap.Plan.load(FOLDER / "none.json"), "No such file or directory"),
    ("plan no json", lambda: ap.Plan.load(file("x.json", "{")), "it is not JSON"),
    ("plan other json", lambda: ap.Plan.load(file("x.json", "[1]")), "it is not a JSON object"),
    ("plan edited", lambda: ap.Plan.load(edited(step_s="fast")), "its digest is of other content: it was altered o"),
    (
        "plan other mesh",
        lambda: ap.jit(step, ap.Mesh({"data": 2, "model": 2}, device="tpu_v3"), ap.Plan.load(plan())).lower(*ARGS),
        "ap.Mesh({'data': 4, 'model': 2}), or plan for th",
    ),
    (
        "plan other program",
        lambda: ap.jit(lambda x: x + 1, MESH, ap.Plan.load(plan())).lower(shape(8)),
        "the program it was made for, or plan this one",
    ),
    (
        "plan in list",
        lambda: ap.jit(step, MESH, [ap.Plan.load(plan())]),
        "a list of tactics, such as [ap.ManualPartition({",
    ),
    (
        "plan save to folder that is not there",
        lambda: low().plan.save(FOLDER / "no" / "p.json"),
        "No such file or directory",
    ),
    ("report to folder not there", lambda: low().report(FOLDER / "no" / "r.html"), "a folder that is there"),
    (
        "timeline to folder not there",
        lambda: low().estimate.write_timeline(FOLDER / "no" / "t.json"),
        "a folder that is there",
    ),
    ("report path int", lambda: low().report(3), "a path"),
    ("load missing", lambda: ap.load(FOLDER / "none.mlir"), "no such file or directory"),
    ("load a folder", lambda: ap.load(FOLDER), "is a directory"),
    ("load words", lambda: ap.load(file("w.mlir", "hello")), 'Unable to parse module assembly: error: "-":1:1:'),
    ("load python", lambda: ap.load(file("w.py", "x=1")), 'Unable to parse module assembly: error: "-":1:1:'),
    ("replay list of ints", lambda: ap.Replay([1]), "a plan (lowered.plan, ap.Plan.load(path)), or a "),
    (
        "sweep devices 0",
        lambda: ap.sweep(step, ARGS, devices=0, device="h100"),
        "their number is an integer from 1 to 1048576",
    ),
    ("sweep no device", lambda: ap.sweep(step, ARGS, devices=4), "the name of a registered device, such as 'h100',"),
    (
        "sweep dict and device",
        lambda: ap.sweep(step, ARGS, devices={"h100": 4}, device="h100"),
        "None: devices= says which kinds there are",
    ),
    ("sweep unknown device", lambda: ap.sweep(step, ARGS, devices={"h10": 4}), "'h100', 'h200'"),
    ("sweep price of another", lambda: ap.sweep(step, ARGS, devices={"h100": 4}, price={"h10": 2}), "'h100'"),
    (
        "sweep batches without function",
        lambda: ap.sweep(step, ARGS, devices=4, device="h100", batches=(1, 2)),
        "a function of 1 argument",
    ),
    (
        "sweep args function without batches",
        lambda: ap.sweep(step, lambda b: ARGS, devices=4, device="h100"),
        "a list of arguments",
    ),
    (
        "sweep tokens text",
        lambda: ap.sweep(step, ARGS, devices=4, device="h100", tokens="many"),
        "an integer of at least 1, or None",
    ),
    ("named no mesh", lambda: ap.named_schedules(step), "mesh=ap.Mesh({...}, device=...)"),
    (
        "named no device",
        lambda: ap.named_schedules(step, ap.Mesh({"a": 2}), ARGS),
        'ap.Mesh({...}, device="tpu_v3"), or cost_model=.',
    ),
    (
        "named row typo",
        lambda: ap.named_schedules(low())["FSPD(data)"],
        "'DP(data)', 'FSDP(data,model)', 'DP(data,model)'",
    ),
    ("reshard axis typo", lambda: ap.redistribution_plan(P("dat"), P(), (8,), "float32", MESH), "'data'"),
    (
        "reshard too many dims",
        lambda: ap.redistribution_plan(P(None, None, "data"), P(), (8, 8), "float32", MESH),
        "the array (8, 8) has 2",
    ),
    (
        "reshard indivisible",
        lambda: ap.redistribution_plan(P("data"), P(), (7,), "float32", MESH),
        "another dim, fewer axes, or a padded array",
    ),
    (
        "reshard dtype",
        lambda: ap.redistribution_plan(P("data"), P(), (8,), "float33", MESH),
        "an element type, such as 'float32'",
    ),
    (
        "register optimizer instance",
        lambda: ap.register_optimizer("mine")(3),
        "a class with search(problem), or a function that",
    ),
    ("tag not string", lambda: ap.jit(lambda x: ap.tag(3, x), MESH, []).lower(shape(8)), "a string that is not empty"),
    ("limits", lambda: ap.Limits(max_ops=-1), "an integer of at least 1"),
    (
        "frameworks nnx sharding",
        lambda: ap.nnx.jit(step, MESH, [], in_shardings=P()),
        "tactics that name leaves, such as 'model/*'",
    ),
    (
        "filter_jit unhashable",
        lambda: ap.filter_jit(lambda a, x: x, MESH, []).lower([1, set()], shape(8)),
        "what is no array chooses a program, so it must b",
    ),
    (
        "too few devices compile",
        lambda: ap.jit(lambda x: x, ap.Mesh({"a": 64}), []).lower(shape(64)).compile(),
        "XLA_FLAGS=--xla_force_host_platform_device_count",
    ),
    (
        "xla option typo",
        lambda: low().compile({"xla_gpu_nonsense": True}),
        "INVALID_ARGUMENT: No such compile option: 'xla_g",
    ),
    (
        "strict",
        lambda: ap.jit(lambda x: x @ x.T, MESH, [tile({"x": 0})], strict=True).lower(shape(8, 8)),
        "order the tactics, tag a value and decide about ",
    ),
    (
        "cudnn",
        lambda: ap.jit(
            lambda q: jax.nn.dot_product_attention(q, q, q, implementation="cudnn"), ap.Mesh({"b": 8}, device="tpu_v5e")
        ).lower(shape(8, 128, 4, 64, d="bfloat16")),
        "jax.nn.dot_product_attention(..., implementation",
    ),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_met_by_what_is_right(make, says):
    with pytest.raises(ap.PartitionError) as error:
        make()
    assert says in str(error.value), str(error.value)


def test_there_are_more_mistakes_than_a_day_makes():
    assert len(MISTAKES) >= 120
