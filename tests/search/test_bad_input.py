"""What does a user see who asks for a search that cannot be?"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.costmodel import Device, Switch
from autopart.search.contract import run
from autopart.search.evaluation.jobs import Job
from tests.search.steps import MESH, lowered


def automatic(**settings) -> ap.AutomaticPartition:
    return ap.AutomaticPartition(**{"axes": ["batch"], "cache": False, "progress": False} | settings)


def test_an_axis_that_is_not_in_the_mesh_names_the_tactic_and_the_axes():
    with pytest.raises(ap.MeshError, match='axis "bach" is not in the mesh') as caught:
        lowered([automatic(axes=["bach"])])
    assert "AutomaticPartition" in str(caught.value)
    assert "batch" in caught.value.hint


def test_a_mesh_without_a_device_says_what_is_needed():
    mesh = ap.Mesh({"batch": 4})
    with pytest.raises(ap.MeshError, match="names no device"):
        lowered([automatic()], mesh=mesh)


def test_an_unknown_optimizer_lists_the_known_ones():
    with pytest.raises(ap.UnknownNameError, match=r"annealing.*mcts"):
        lowered([automatic(optimizer="mtcs")])


def test_an_unknown_executor_lists_the_known_ones():
    with pytest.raises(ap.UnknownNameError, match='no executor is called "cluster"'):
        lowered([automatic(executor="cluster")])


@pytest.mark.parametrize("budget", [{"evaluations": -1}, {"evaluations": None}, {"seconds": float("nan")}])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ap.PartitionError, match="budget"):
        ap.Budget(**budget)


def test_no_budget_returns_what_the_earlier_tactics_gave():
    bp = ap.ManualPartition({"batch": 0}, axis="batch")
    rows = lowered([bp, automatic(budget=ap.Budget(0))]).metadata.tactics
    assert rows[1].actions == ()
    assert rows[1].collectives == rows[0].collectives


def test_where_nothing_fits_the_least_memory_is_returned_and_the_reason_given():
    wires = Switch(domain=8, bytes_per_s=1e10, latency_s=1e-6)
    ap.register_device(Device("thimble", {"bf16": 1e12}, 1e4, 1e11, "made up for a test", fast=wires))
    mesh = ap.Mesh(MESH.shape, device="thimble")
    with pytest.warns(ap.SearchWarning, match="nothing found fits"):
        low = lowered([automatic(axes=["batch", "model"], budget=ap.Budget(80))], mesh=mesh)
    report = low.metadata.tactics[-1].report
    assert not report["best"]["fits"]
    assert report["best"]["peak_bytes"] < 0.3 * report["start"]["peak_bytes"]
    assert "kB" in report["does_not_fit"][1]


@dataclass(frozen=True)
class Stumbles:
    def search(self, problem) -> None:
        problem.run([Job((o.decision,)) for o in problem.start.options])
        raise ZeroDivisionError("of my own making")


def test_an_optimizer_that_raises_is_named_and_what_it_found_is_kept(tmp_path):
    path = tmp_path / "records.jsonl"
    with pytest.raises(ap.OptimizerError, match=r"Stumbles.*of my own making") as caught:
        run(Stumbles(), records=path)
    assert caught.value.best.cost.score < 1
    assert len(path.read_text().splitlines()) > 5
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_lambda_cannot_go_to_workers():
    with pytest.raises(ap.PartitionError, match="cannot be sent to workers"):
        run("greedy", objective=lambda cost: cost.step_s, executor=ap.Processes(1))


def test_a_cost_model_that_raises_is_not_blamed_on_the_optimizer():
    def broken(local, mesh):
        raise ZeroDivisionError("in the cost model")

    with pytest.raises(ap.ArgumentError, match=r"broken raised ZeroDivisionError.*in the cost model") as error:
        run("greedy", cost_model=broken)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_thing_that_is_no_optimizer_is_refused():
    with pytest.raises(ap.OptimizerError, match="is no optimizer"):
        run(object())


def test_a_second_registration_of_a_name_names_the_first():
    with pytest.raises(ap.OptimizerError, match=r"first by autopart\.search\.mcts\.mcts"):
        ap.register_optimizer("mcts")(Stumbles)


@dataclass(frozen=True)
class Interrupted:
    def search(self, problem) -> None:
        problem.run([Job((o.decision,)) for o in problem.start.options])
        raise KeyboardInterrupt


def test_ctrl_c_returns_the_best_so_far():
    found = run(Interrupted())
    assert found.report["stopped"] == "interrupted"
    assert found.report["best"]["score"] < found.report["start"]["score"]
    assert found.actions


@pytest.mark.slow
def test_a_seed_may_be_automatic_itself_and_is_named_where_it_fails():
    found = lowered([automatic(seeds=[[automatic()]])]).metadata.tactics[-1]
    assert found.report["best"]["step_s"] <= found.report["start"]["step_s"]
    with pytest.raises(ap.PartitionError, match=r'tactic 1 of 1 in seed 1 of "outer"'):
        lowered([automatic(name="outer", seeds=[[automatic(axes=["nowhere"])]])])


def test_a_model_with_nothing_to_partition_is_left_alone():
    step = ap.jit(lambda x: jnp.tanh(x), MESH, [automatic(axes=["batch", "model"], budget=ap.Budget(20))])
    assert step.lower(np.float32(1)).metadata.tactics[-1].actions == ()
