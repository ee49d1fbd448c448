"""Does every parameter of every public callable meet nonsense with an error that says what is legal?

Each callable has a row of arguments that work. One argument at a time is replaced by each hostile value; what happens
is success or a `PartitionError`. A callable or a parameter without an entry fails the test.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.costmodel import Device
from autopart.costmodel.hardware.devices import DEVICES
from tests.prompt import slow

MESH = ap.Mesh({"a": 4, "b": 2}, device="tpu_v3")
X = np.ones((8, 8), "f4")
TACTIC = ap.ManualPartition({"x": 0}, axis="a")
DEVICE = Device("surface", {"bf16": 1e12}, 1e9, 1e9, "made up")
MODULE = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }"


class Unprintable:
    def __repr__(self):
        raise RuntimeError("not to be printed")


class Unhashable(list):
    __hash__ = None  # type: ignore[assignment]


HOSTILE = [
    None, True, False, 0, -1, -3, 2**63, 10**30, 0.5, -0.5, math.nan, math.inf, -math.inf, 1j, "", "a", "é", 'a"b',
    "\0", "%999999", "%²", "mcts", b"bytes", (), (None,), ("a", "a"), (-1,), [], [None], [[None]], ["zz"], {}, {"a": 2},
    {"a": "two"}, {"a": 2**63}, {1: 2}, {"x": {"y": 0}}, {"x": None}, set(), object(), Unprintable(), Unhashable(), int,
    ap.MCTS, ap.ManualPartition, ap.Serial, ap.Budget, ap.MCTS(), ap.Budget(1), TACTIC, [TACTIC], MESH, DEVICE, P("zz"),
    np.float32(2), np.int64(2), np.ones(3), np.array(["text"]), np.array([None]), jnp.ones((8, 8)), lambda: 0,
    lambda *_: None, lambda *_: math.nan, lambda *_: -math.inf, iter([1]), Path("nowhere/at/all"), range(3), Exception,
]  # fmt: skip


def function(x):
    return jax.tree.map(lambda leaf: ap.tag("t", leaf), x)


@functools.cache
def estimate():
    return ap.jit(function, MESH, [TACTIC]).lower(X).estimate


@functools.cache
def plan():
    return ap.jit(function, MESH, [TACTIC]).lower(X).plan


@functools.cache
def partitioned():
    return ap.jit(function, MESH, [TACTIC]).lower(X)


@functools.cache
def metadata():
    return partitioned().metadata


@functools.cache
def loaded():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.mlir"
        path.write_text(MODULE)
        return ap.load(path)


def module_path() -> Path:
    path = Path(tempfile.gettempdir()) / "autopart_public_surface.mlir"
    path.write_text(MODULE)
    return path


def searched(**fields):
    tactic = ap.AutomaticPartition(**fields)
    return ap.jit(function, MESH, [tactic]).lower(X)


def applied(tactic):
    return ap.jit(function, MESH, [tactic]).lower(X)


def called(args, kwargs):
    return ap.jit(function, MESH)(args, **({} if kwargs is None else {"x": kwargs}))


def lowered(args, kwargs):
    return ap.jit(function, MESH).lower(args, **({} if kwargs is None else {"k": kwargs}))


def shards():
    devices = np.array(jax.devices()[:8]).reshape(4, 2)
    mesh = jax.sharding.Mesh(devices, ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return NamedSharding(mesh, P("a")), NamedSharding(mesh, P(None, "a"))


FIELDS = {
    "axes": ["a"], "optimizer": "greedy", "budget": ap.Budget(1), "seed": 0, "name": "auto", "executor": "serial",
    "objective": ap.StepSeconds(), "cost_model": None, "options": ap.LoweringOptions(), "seeds": (), "baselines": True,
    "records": None, "resume": None, "cache": False, "progress": False, "referee": None, "finalists": 1,
    "microbatch": (), "recompute": False, "uneven": "refuse", "stages": False,
}  # fmt: skip
JIT = {
    "fun": function, "mesh": MESH, "schedule": [TACTIC], "passes": (), "donate_argnums": (), "donate_argnames": (),
    "static_argnums": (), "static_argnames": (), "options": ap.LoweringOptions(), "cost_model": None, "strict": False,
    "keep_unused": False, "inline": False, "device": None, "backend": None, "state": "as first",
    "most_compiled": 3, "layouts": "default", "in_shardings": None, "out_shardings": None,
    "compiler_options": None, "constraints": "keep",
}  # fmt: skip
ONES = ap.kernel(lambda x: jnp.ones(()), like=lambda x: jnp.ones(()))
SEARCHES = ("optimizer", "budget", "seed", "executor", "objective", "cost_model", "options", "cache")

ROWS = {
    "MCTS": ({}, ap.MCTS, None),
    "Hybrid": ({}, ap.Hybrid, None),
    "ILP": ({}, ap.ILP, None),
    "Annealing": ({}, ap.Annealing, None),
    "Beam": ({}, ap.Beam, None),
    "Exhaustive": ({}, ap.Exhaustive, None),
    "Greedy": ({}, ap.Greedy, None),
    "RandomSearch": ({}, ap.RandomSearch, None),
    "Budget": ({}, ap.Budget, None),
    "StepSeconds": ({}, ap.StepSeconds, None),
    "LoweringOptions": ({}, ap.LoweringOptions, None),
    "Serial": ({}, ap.Serial, None),
    "Limits": ({}, ap.Limits, None),
    "Recompute": ({"keep": "blocks", "name": ""}, ap.Recompute, applied),
    "Pipeline": ({"axis": "a", "microbatches": 2, "inputs": None, "schedule": "gpipe", "repeats": None, "name": ""},
                 ap.Pipeline, applied),
    "Microbatch": ({"inputs": {"x": 0}, "steps": 2, "loops": 1, "name": ""}, ap.Microbatch, applied),
    "ExpectedTrips": ({"trips": 8}, ap.ExpectedTrips,
                      lambda trips: ap.jit(function, MESH, passes=[trips]).lower(X)),
    "Pad": ({"inputs": {"x": (0, 3)}, "name": ""}, ap.Pad, applied),
    "ShardedLoops": ({"name": ""}, ap.ShardedLoops, applied),
    "SharedGathers": ({"within": 8, "name": ""}, ap.SharedGathers, applied),
    "Processes": ({}, ap.Processes, None),
    "Mesh": ({"axes": {"a": 4, "b": 2}, "device": None, "links": None}, ap.Mesh,
             lambda mesh: ap.jit(function, mesh).lower(X)),
    "ManualPartition": ({"inputs": {"x": 0}, "axis": "a", "name": "", "uneven": "refuse"}, ap.ManualPartition, applied),
    "AutomaticPartition": (FIELDS, searched, None),
    "Parallelism": ({"schedule": "DP(a)", "name": ""}, ap.Parallelism, applied),
    "named_schedules": ({"fun": function, "mesh": ap.Mesh({"a": 4}, device="tpu_v3"), "args": (X,), "cost_model": None,
                         "options": ap.LoweringOptions(), "jit_options": 1},
                        lambda **k: ap.named_schedules(**{n: v for n, v in k.items() if n != "jit_options"}), None),
    "TacticContext": ({"options": ap.LoweringOptions(), "cost_model": None, "position": 1, "count": 1, "schedule": "",
                       "notes": ()}, ap.TacticContext, None),
    "TacticResult": ({"actions": (), "report": {}}, ap.TacticResult, None),
    "Replay": ({"actions": (), "name": ""}, ap.Replay, applied),
    "jit": (JIT, ap.jit, lambda step: step.lower(X)),
    "kernel": ({"fn": jnp.tanh, "like": jnp.tanh, "rule": None, "name": None, "gradient": "twin", "flop": None,
                "platforms": None}, ap.kernel, None),
    "verify_kernel": ({"kernel": ONES, "args": np.ones(8, "f4"), "seed": 0, "tolerance": None, "kwargs": 1},
                      lambda kernel, args, kwargs, **k: ap.verify_kernel(kernel, args, **k), None),
    "filter_jit": ({k: JIT[k] for k in ("fun", "mesh", "schedule")} | {"jit_options": 1},
                   lambda **k: ap.filter_jit(**{n: v for n, v in k.items() if n != "jit_options"}),
                   lambda step: step.lower(X)),
    "FilteredFunction.__call__": ({"args": X}, lambda args: ap.filter_jit(function, MESH)(args), None),
    "partition": ({k: JIT[k] for k in ("fun", "mesh", "schedule")} | {"example_args": (X,), "jit_options": 1},
                  lambda **k: ap.partition(**{n: v for n, v in k.items() if n != "jit_options"}), None),
    "load": ({"path": module_path(), "argument_names": None, "ties": None, "limits": ap.Limits(), "trusted": False},
             ap.load, None),
    "optimizers": ({}, ap.optimizers, None),
    "redistribution_plan": ({"source": P("a"), "target": P(None, "a"), "shape": (8, 8), "dtype": "float32",
                             "mesh": MESH, "cost": "elements"}, ap.redistribution_plan, None),
    "reshard": ({"x": 0, "target": shards()[1], "source": None, "donate": False, "cost": "elements"},
                lambda x, **k: ap.reshard(jax.device_put(X, shards()[0]) if isinstance(x, int) and x == 0 else x, **k),
                None),
    "Device": ({name: getattr(DEVICE, name) for name in DEVICE.__dataclass_fields__}, ap.Device,
               lambda device: estimated_on(device)),
    "Job": ({}, ap.Job, lambda job: searched(**FIELDS | {"optimizer": Runs(job)})),
    "Ray": ({"workers": None, "address": None}, lambda **fields: ap.Ray(**fields), None),
    "register_cost_model": ({"name": "simulator"}, ap.register_cost_model, lambda register: register(None)),
    "register_custom_call": ({"target_name": "", "traits": None, "localize": None, "examples": (), "omissions": (),
                              "batched": None},
                             ap.register_custom_call, lambda register: register(None)),
    "register_decision_kind": ({"name": "zero3"}, ap.register_decision_kind, lambda register: register(None)),
    "register_device": ({"device": None}, ap.register_device, None),
    "register_executor": ({"name": "serial"}, ap.register_executor, lambda register: register(None)),
    "register_named_schedule": ({"name": "DP"}, ap.register_named_schedule, lambda register: register(None)),
    "register_optimizer": ({"name": "mcts"}, ap.register_optimizer, lambda register: register(None)),
    "register_rule": ({"kinds": "add", "traits": ap.op_traits.Elementwise(), "localize": None, "examples": (),
                       "blocked_because": None,
                       "omissions": (), "structural": False, "defaults": None, "batched": None},
                      lambda kinds, **k: ap.register_rule(kinds, **k), lambda register: register(None)),
    "calibrate": ({"path": tempfile.mkdtemp() + "/mine.json", "like": "cpu_host", "seconds": 0.0, "trace": None,
                   "of": None},
                  ap.calibrate, None),
    "tag": ({"name": "t", "x": X}, ap.tag, None),
    "sweep": ({"fun": function, "args": (X,), "devices": 4, "device": "tpu_v3", "axes": ("a",), "schedule": (),
               "meshes": None, "batches": None, "tokens": 5, "price": {"tpu_v3": 1.0},
               "jit_options": 1} | {k: FIELDS[k] for k in SEARCHES},
              lambda **k: ap.sweep(**{n: v for n, v in k.items() if n != "jit_options"}), None),
    "warmup": ({}, ap.warmup, None),
    "PartitionedFunction.__call__": ({"args": X, "kwargs": None},
                                     called, None),
    "PartitionedFunction.lower": ({"args": X, "kwargs": None},
                                  lowered, None),
    "LoadedProgram.__call__": ({"args": np.ones(8, "f4")}, lambda args: ap.jit(loaded(), MESH)(args), None),
    "Compiled.__call__": ({"args": X}, lambda args: ap.jit(function, MESH).lower(X).compile()(args), None),
    "Lowered.compile": ({"compiler_options": {}},
                        lambda compiler_options: ap.jit(function, MESH).lower(X).compile(compiler_options), None),
    "Lowered.interpret": ({"args": X}, lambda args: ap.jit(function, MESH).lower(X).interpret(args), None),
    "Lowered.explain": ({"path": "x"}, lambda path: str(partitioned().explain(path)), None),
    "Lowered.what_if": ({"inputs": {"x": 1}, "axis": "b"}, lambda inputs, axis: partitioned().what_if(inputs, axis),
                        str),
    "Lowered.report": ({"path": "report.html"}, lambda path: partitioned().report(path), None),
    "Lowered.profile": ({"trace": "."}, lambda trace: partitioned().profile(trace), str),
    "Lowered.as_text": ({"form": "hlo", "lines": True},
                        lambda form, lines: ap.jit(function, MESH).lower(X).as_text(form, lines=lines), None),
    "Metadata.from_json": ({"text": "{}"}, ap.Metadata.from_json, str),
    "Plan.load": ({"path": "plan.json"}, ap.Plan.load, str),
    "Plan.from_json": ({"text": "{}"}, ap.Plan.from_json, str),
    "Plan.save": ({"path": "plan.json"}, lambda path: plan().save(path), None),
    "Plan.diff": ({"other": None}, lambda other: plan().diff(other), str),
    "Estimate.top": ({"k": 3, "kind": None}, lambda k, kind: estimate().top(k, kind), str),
    "objective": ({"result": 1.0}, lambda result: searched(**FIELDS | {"objective": lambda cost: result}), None),
    "cost model": ({"result": None}, lambda result: applied_with(lambda local, mesh: result), None),
    "decision": ({"decision": 0}, lambda decision: applied(ap.ManualPartition({"x": decision}, axis="a")), None),
    "key": ({"key": "x"}, lambda key: applied(ap.ManualPartition({key: 0}, axis="a"))
            if is_hashable(key) else None, None),
}  # fmt: skip
"""Callable -> (arguments that work, or {} for a dataclass's defaults; the call; what is done with its result)."""

RECORDS = {
    "Calibration",
    "Compiled", "Cost", "Estimate", "FilteredFunction", "LoadedProgram", "Lowered", "Metadata", "PartitionedFunction",
    "Plan", "PlanDiff",
    "Problem", "Profile", "Sweep", "TacticReport", "TileMapping",
}  # fmt: skip
"""What functions return: nobody makes them, their constructors store. (A rule's mappings are checked with the rule.)"""


@dataclasses.dataclass(frozen=True)
class Runs:
    """An optimizer that runs one job."""

    job: ap.Job

    def search(self, problem):
        problem.run([self.job])


def estimated_on(device):
    with DEVICES.restored():
        ap.register_device(device)
        mesh = ap.Mesh({"a": 4, "b": 2}, device=device.name)
        return str(ap.jit(function, mesh, [TACTIC]).lower(X).estimate)


def applied_with(cost_model):
    return ap.jit(function, MESH, [TACTIC], cost_model=cost_model).lower(X)


def defaults(cls) -> dict:
    return {f.name: f.default for f in dataclasses.fields(cls)}


def is_hashable(value) -> bool:
    try:
        return bool([hash(value)])
    except TypeError:
        return False


def is_error(thing) -> bool:
    return isinstance(thing, type) and issubclass(thing, (Exception, Warning))


def test_every_public_callable_and_parameter_has_a_row():
    for name in ap.__all__:
        thing = getattr(ap, name)
        protocol = getattr(thing, "_is_protocol", False)
        if not callable(thing) or is_error(thing) or protocol or name in RECORDS or name == "CostModel":
            continue
        assert name in ROWS, f"{name} has no row"
        arguments = ROWS[name][0] or defaults(thing) if dataclasses.is_dataclass(thing) else ROWS[name][0]
        parameters = set(inspect.signature(thing).parameters)
        assert parameters == set(arguments), f"{name}: {parameters ^ set(arguments)} has no value"


LONG = (
    "calibrate",
    "Compiled.__call__",
    "filter_jit",
    "FilteredFunction.__call__",
    "sweep",
    "named_schedules",
    "verify_kernel",
)
"""Rows that take long, and beside which there are others like them."""


@pytest.mark.filterwarnings("ignore::autopart.SearchWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::autopart.search.storage.records.RecordWarning")
@pytest.mark.parametrize("name", [slow(name) if name in LONG else name for name in ROWS])
def test_nonsense_meets_an_error_that_says_what_is_legal(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, call, use = ROWS[name]
    if not arguments and dataclasses.is_dataclass(getattr(ap, name, None)):
        arguments = defaults(getattr(ap, name))
    said = []
    for parameter, (number, value) in itertools.product(arguments, enumerate(HOSTILE)):
        try:
            found = call(**arguments | {parameter: value})
            if use is not None:
                use(found)
        except ap.PartitionError as error:
            said.append(str(error))
        except Exception as error:
            raise AssertionError(f"{name}: {parameter} = HOSTILE[{number}], {type(value).__name__}") from error
    assert all(said)
