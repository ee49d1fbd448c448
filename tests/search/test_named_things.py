"""Executors, cost models and named schedules by name: our own, added ones, and names that nobody knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel import Simulated, XlaCpuMemory, cost_model_of, estimate
from autopart.costmodel.cost_models import COST_MODELS, called_cost_model
from autopart.search.contract import MESH, OutOfOrder, run, two_matrices
from autopart.search.execution.executor import EXECUTORS, executor_of
from autopart.search.search import Search, search
from autopart.search.space import Decision, DecisionSpace, Named, NamedSchedule
from autopart.search.space.named_schedules import NAMED_SCHEDULES, found_schedules

X = np.ones((64, 64), np.float32)


def step(x):
    return (x @ x).sum()


def lowered(of_jit=None, mesh=MESH, **fields) -> ap.Lowered:
    auto = ap.AutomaticPartition(["a"], optimizer="greedy", budget=ap.Budget(20), cache=False, **fields)
    return ap.jit(step, mesh, [auto], cost_model=of_jit).lower(X)


def space() -> DecisionSpace:
    return DecisionSpace.of(Partitioning(two_matrices(), MESH), ("a", "b"))


@dataclass(frozen=True)
class Bytes:
    """A step takes a second per byte of memory."""

    def __call__(self, local, mesh):
        found = estimate(local, mesh)
        return ap.Estimate(**{**vars(found), "step_s": found.peak_bytes})


# ---- executors


def test_executors_have_names():
    assert set(EXECUTORS) == {"serial", "processes", "ray"}
    assert executor_of("serial") == ap.Serial()
    assert executor_of("processes") == ap.Processes()


def test_an_unknown_executor_is_answered_with_all_and_the_nearest():
    with pytest.raises(ap.UnknownNameError, match=r"(?s)no executor is called \"proces\".*processes, ray, serial"):
        executor_of("proces")


def test_an_added_executor_is_meant_by_its_name():
    with EXECUTORS.temporarily("out_of_order", OutOfOrder):
        assert run("greedy", executor="out_of_order").actions == run("greedy").actions


def test_a_name_of_an_executor_is_taken_once():
    with pytest.raises(ap.RegistryError, match=r'(?s)executor "serial" is registered already.*Serial.*OutOfOrder'):
        ap.register_executor("serial")(OutOfOrder)


# ---- cost models


def test_cost_models_have_names():
    assert {*COST_MODELS} == {"simulator", "xla_cpu_memory", "a100_40gb", "a100_80gb", "h100", "h200", "b200", "gb200"}
    assert cost_model_of("simulator") == Simulated()
    assert cost_model_of("xla_cpu_memory") == XlaCpuMemory()
    assert cost_model_of(None) is None
    assert called_cost_model("simulator") is None


@pytest.mark.parametrize("cost_model", ["simulator", Simulated()])
def test_the_simulator_by_name_is_what_prices_without_a_cost_model(cost_model):
    plain, named = lowered(), lowered(cost_model)
    assert named.estimate == plain.estimate
    within = lowered(Bytes(), cost_model=cost_model)
    for found in (named, within):
        assert found.metadata.tactics[0].actions == plain.metadata.tactics[0].actions
        assert found.metadata.tactics[0].report["best"] == plain.metadata.tactics[0].report["best"]


def test_the_simulator_by_name_needs_a_device():
    with pytest.raises(ap.MeshError, match="names no device"):
        lowered("simulator", ap.Mesh({"a": 4, "b": 2}))


def test_an_added_cost_model_is_meant_by_its_name():
    with COST_MODELS.temporarily("bytes", Bytes):
        found = lowered("bytes")
        assert found.estimate.step_s == found.estimate.peak_bytes
        assert found.metadata.tactics[0].report == {**lowered(Bytes()).metadata.tactics[0].report, **changing(found)}


def changing(found: ap.Lowered) -> dict:
    """What is another in each run."""
    report = found.metadata.tactics[0].report
    return {name: report[name] for name in ("seconds", "evaluations_per_s", "start_up_s")}


@pytest.mark.parametrize("where", [lambda: lowered("simulater"), lambda: lowered(None, cost_model="simulater")])
def test_an_unknown_cost_model_is_answered_with_all_and_the_nearest(where):
    with pytest.raises(ap.UnknownNameError, match=r"(?s)no cost model is called \"simulater\".*simulator, xla_cpu_mem"):
        where()


def test_a_cost_model_is_a_class_with_call():
    with pytest.raises(ap.RegistryError, match=r"a class with __call__\(local, mesh\)"):
        ap.register_cost_model("mine")(Decision)


# ---- named schedules


@dataclass(frozen=True)
class Zero(NamedSchedule):
    """Everything over one axis, then over all of them."""

    axis: str = ""

    def decisions(self, space):
        for axis in [self.axis] if self.axis else space.axes:
            yield Named(f"Zero({axis})", (Decision("zero3", 0, -1, axis), Decision("zero2", 0, -1, axis)), (axis,))


def test_named_schedules_have_names():
    assert list(NAMED_SCHEDULES) == [
        "DP", "Rows", "Others", "Edges", "Nodes", "Graph", "Context", "Spatial", "Experts", "Megatron", "MegatronVocab",
        "MegatronSP", "LargeWeights", "GShard", "ZeRO2", "ZeRO3", "ZeRO3Large",
    ]  # fmt: skip


def test_an_added_schedule_follows_our_own():
    before = found_schedules(space())
    with NAMED_SCHEDULES.temporarily("Zero", Zero):
        found = found_schedules(space())
    assert found[: len(before)] == before
    assert [named.label for named in found[len(before) :]] == ["Zero(a)", "Zero(b)"]


def test_an_added_schedule_is_combined_with_our_own():
    with NAMED_SCHEDULES.temporarily("Zero", Zero):
        labels = [row["name"] for row in run("greedy", ap.Budget(100)).report["baselines"]]
    assert "DP(a)+Zero(b)" in labels


def test_a_cached_result_is_of_the_same_named_schedules(tmp_path):
    def found():
        wanted = Search(axes=("a", "b"), budget=ap.Budget(60), cache=tmp_path)
        return search(Partitioning(two_matrices(), MESH), wanted).report["cached"]

    assert [found(), found()] == [False, True]
    with NAMED_SCHEDULES.temporarily("Zero", Zero):
        assert found() is False
    assert found() is True


def test_a_schedule_over_an_axis_that_is_not_searched_is_refused():
    with (
        NAMED_SCHEDULES.temporarily("Zero", lambda: Zero("c")),
        pytest.raises(ap.MeshError, match=r'(?s)the schedule "Zero\(c\)" is over "c".*over a, b'),
    ):
        found_schedules(space())


def test_a_schedule_must_say_what_it_decides():
    with pytest.raises(ap.RegistryError, match=r"a class with decisions\(space\)"):
        ap.register_named_schedule("mine")(Bytes)
