"""Is a state's cost its own, whichever way the evaluator came to it, and that of the program that runs?"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from autopart.core.table.partitioning import Partitioning
from autopart.search.contract import MESH, two_matrices
from autopart.search.evaluation import evaluator as evaluator_module
from autopart.search.evaluation import state_walk
from autopart.search.evaluation.cost import Cost, StepSeconds
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.evaluation.jobs import Job, State
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions
from experiments.models.tactics import BP
from tests.search.steps import MEGATRON, decoder_partitioning, lowered


@pytest.fixture(scope="module")
def task() -> SearchTask:
    partitioning = decoder_partitioning()
    space = DecisionSpace.of(partitioning, ("batch", "model"))
    return SearchTask(partitioning, space, LoweringOptions(), None, StepSeconds())


def test_results_do_not_depend_on_the_jobs_before(task):
    worn = Evaluator(task)
    jobs = [Job((), rollout=5, seed=s, stop=0.2) for s in range(12)]
    first = [worn.run(job) for job in jobs]
    random = np.random.default_rng(0)
    for place in random.permutation(len(jobs)):
        assert Evaluator(task).run(jobs[place]) == first[place] == worn.run(jobs[place])


def seconds_and_actions(cost: Cost) -> float:
    return cost.step_s * (1 + cost.actions)


@pytest.mark.slow
def test_how_many_states_an_evaluator_keeps_changes_no_result(task, monkeypatch):
    jobs = [Job((), rollout=4, seed=s) for s in range(8)]
    jobs += [Job(states[-1].decisions, rollout=1, seed=9) for states in map(Evaluator(task).run, jobs)]
    expected = [Evaluator(task).run(job) for job in jobs]
    for snapshot_bytes, most_known in ((1, 1), (2**20, 3), (2**30, 10**6)):
        monkeypatch.setattr(state_walk, "SNAPSHOT_BYTES", snapshot_bytes)
        monkeypatch.setattr(evaluator_module, "MOST_KNOWN", most_known)
        kept = Evaluator(task)
        assert [kept.run(job) for job in (*jobs, *reversed(jobs))] == [*expected, *reversed(expected)]


def test_the_order_of_axes_on_a_dim_is_part_of_a_state():
    partitioning = Partitioning(two_matrices(), MESH)
    small = SearchTask(partitioning, DecisionSpace.of(partitioning, ("a", "b")), LoweringOptions(), None, StepSeconds())
    jobs = [Job((), rollout=4, seed=s) for s in range(150)]
    forth, back = Evaluator(small), Evaluator(small)
    assert [forth.run(job) for job in jobs] == [back.run(job) for job in reversed(jobs)][::-1]


def test_undoing_everything_returns_to_the_start(task):
    evaluator = Evaluator(task)
    start = evaluator.run(Job(()))[0]
    evaluator.run(Job((), rollout=6, seed=1))
    for known in (evaluator._known, evaluator._reached, evaluator._ran):
        known.clear()
    assert evaluator.run(Job(()))[0] == start


def test_states_round_trip_through_records(task):
    for state in Evaluator(task).run(Job((), rollout=3, seed=2)):
        assert State.from_json(state.to_json()) == state


def test_cost_in_search_is_the_cost_of_the_lowered_schedule():
    for tactics in ([], [BP], [BP, MEGATRON]):
        partitioning = decoder_partitioning(*tactics)
        space = DecisionSpace.of(partitioning, ("batch", "model"))
        task = SearchTask(partitioning, space, LoweringOptions(), None, StepSeconds())
        cost = Evaluator(task).run(Job(()))[0].cost
        estimate = lowered(tactics).scheduled.estimate
        assert estimate is not None
        assert (cost.step_s, cost.peak_bytes, cost.fits) == (estimate.step_s, estimate.peak_bytes, estimate.fits)


def beside_twins(task: SearchTask) -> list[Job]:
    """Each option where a group is tiled over both axes, which leaves little that another tile changes."""
    tiles = [o.decision for o in task.space.options(task.partitioning) if o.decision.kind == "tile_group"]
    pairs = [(a, b) for a in tiles for b in tiles if (a.target, a.dim) == (b.target, b.dim) and a.axis < b.axis]
    options = {pair: Evaluator(task).run(Job(pair))[-1].options for pair in pairs}
    return [Job((*pair, option.decision)) for pair in pairs for option in options[pair]]


@pytest.mark.slow
def test_states_that_run_alike_cost_what_each_does_alone(task):
    worn = Evaluator(task)
    for job in beside_twins(task):
        assert Evaluator(task).run(job) == worn.run(job)
    assert len(worn._ran) < len(worn._known)


@pytest.mark.slow
def test_what_another_worker_ran_is_not_run_again(task, monkeypatch):
    states, told = [Evaluator(task).run(job)[0] for job in beside_twins(task)], Evaluator(task)
    one, other = next((a, b) for a, b in itertools.combinations(states, 2) if a.runs == b.runs and a.key != b.key)
    told.learn((one,))
    monkeypatch.setattr(Evaluator, "_price", None)
    assert told.run(Job(other.decisions)) == (other,)


def test_an_objective_is_asked_for_each_state_that_runs_alike(task):
    by_actions = dataclasses.replace(task, objective=seconds_and_actions)
    evaluator = Evaluator(by_actions)
    for job in beside_twins(task):
        for state in evaluator.run(job):
            assert state.cost.score == seconds_and_actions(state.cost)
    assert len({state.cost.actions for state in evaluator._known.values()}) > 1


def test_equal_states_reached_in_another_order_have_one_key(task):
    evaluator = Evaluator(task)
    options = [o.decision for o in task.space.options(task.partitioning)]
    batch = next(d for d in options if d.kind == "tile_group" and d.axis == "batch")
    again = evaluator.run(Job((batch, batch)))[0]
    assert again.key == evaluator.run(Job((batch,)))[0].key
