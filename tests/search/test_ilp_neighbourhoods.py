"""Do the parts of plans agree: a state as a choice, neighbourhoods of it, sums by class, the bound of equal layers?"""

from __future__ import annotations

import numpy as np
import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.links.bf16_collectives import narrow_moves, rounded_bytes
from autopart.costmodel.compiled.simulator import Simulation, Simulator
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.pairwise import PairwiseProblem, solve
from autopart.search.budget import Budget
from autopart.search.contract import OutOfOrder, run
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.ilp.bound import lower_bound
from autopart.search.ilp.by_class import plan_by_class, program_by_class
from autopart.search.ilp.decisive_moves import decisive_moves
from autopart.search.ilp.held_bytes import Liveness
from autopart.search.ilp.incumbent import choice_of
from autopart.search.ilp.lowered_moves import exact_jobs, least_jobs
from autopart.search.ilp.neighbourhood import grown, restricted
from autopart.search.ilp.sharding_model import Model
from tests.pairwise.random_problems import random_problem
from tests.search.test_ilp import MESHES, model_of, partitioning, task_of, walk, walked


def simulated(state: Partitioning) -> Simulation:
    return Simulator.of(state.program, state.mesh).run(lower_for_device(state))


def tiled(task: SearchTask) -> Partitioning:
    """A state that a named schedule might lead to: the first options, one after the other."""
    state = task.partitioning.copy()
    for _ in range(2):
        task.space.apply(state, task.space.options(state)[0].decision)
    return state


def rounding_s(model: Model, run: Simulation) -> float:
    """Seconds for the rounding of arguments that move as bf16, once each, which plans leave out."""
    place = run.local.placement
    narrow, device = np.empty(len(place.value), np.bool_), model.device
    narrow_moves(model.narrow, place.of_use, narrow)
    moved = [rounded_bytes(model.arrays, run.arrays, run.graph, narrow, k) for k in range(len(run.graph.nodes))]
    moves = np.flatnonzero(moved)
    value = run.arrays.moves["moved_value"][run.graph.nodes["subject"][moves]]
    for again in np.setdiff1d(moves, moves[np.unique(value, return_index=True)[1]]):
        moved[again] = 0.0
    rate = device.hbm_bytes_per_s * device.hbm_efficiency * device.stream_share
    return float(np.array(moved) / rate @ run.node_trips)


# ---- a state as a choice


def test_state_as_a_choice_has_the_mappings_and_the_labels_of_the_state():
    task = task_of(partitioning("branches", MESHES["{a:4,b:2}"]))
    model, state = model_of(task), tiled(task)
    local = simulated(state).local
    choice = choice_of(model.nodes, local)
    for node, options in enumerate(model.nodes.strategies):
        if options is not None:
            assert options.mapping[choice[node]] == tuple(local.mapping[model.nodes.member[node]].tolist())
    costs = model.plan_costs(simulated(state))
    planned = model.problem_of(costs, Liveness.of_peaks(model.nodes, [simulated(state)]))
    assert np.isfinite(planned.cost_of(np.pad(choice, (0, planned.nodes - len(choice)))))


def test_choice_of_a_state_costs_about_what_the_state_does():
    task = task_of(partitioning("branches", MESHES["{a:4,b:2}"]))
    model, state = model_of(task), tiled(task)
    found = simulated(state)
    costs, choice = model.plan_costs(found), choice_of(model.nodes, found.local).tolist()
    jobs = exact_jobs(costs.flow.taken(choice))
    model.table.learn(jobs, [job.answer(task) for job in jobs])
    by_class = plan_by_class(model, costs, choice)
    assert sum(by_class.values()) + rounding_s(model, found) == pytest.approx(found.serial_s, rel=0.02)
    assert by_class["matmul"] == pytest.approx(program_by_class(model, found)["matmul"])


def test_program_by_class_adds_up_to_the_step():
    task = task_of(partitioning("perceptron", MESHES["{a:4}"]))
    found = simulated(tiled(task))
    assert sum(program_by_class(model_of(task), found).values()) == pytest.approx(found.serial_s)


# ---- neighbourhoods


def problem_with_limit() -> PairwiseProblem:
    return random_problem(3, nodes=9, most=3, edges=18, forbidden=0.0, tight=0.6)


def test_neighbourhood_of_all_nodes_is_the_problem():
    problem = problem_with_limit()
    whole = solve(problem, 10)
    assert whole.choice is not None
    again = solve(restricted(problem, whole.choice, np.arange(problem.nodes)), 10)
    assert again.cost == pytest.approx(whole.cost)


@pytest.mark.parametrize("root", range(0, 9, 2))
def test_neighbourhood_chosen_anew_is_no_worse_and_fits(root):
    problem, random = problem_with_limit(), np.random.default_rng(root)
    begin = next(c for c in (random.integers(problem.strategies) for _ in range(1000)) if problem.fits(c))
    free = grown(problem, root, 4, random)
    assert len(free) == 4
    part = restricted(problem, begin, free)
    held = part.nodes - len(free)
    solved = solve(part, 10, start=np.concatenate([begin[free], np.zeros(held, np.int64)]))
    assert solved.choice is not None
    chosen = begin.copy()
    chosen[free] = solved.choice[: len(free)]
    assert problem.fits(chosen)
    assert problem.cost_of(chosen) <= problem.cost_of(begin)
    fixed = problem.cost_of(begin) - part.cost_of(np.concatenate([begin[free], np.zeros(held, np.int64)]))
    assert problem.cost_of(chosen) == pytest.approx(fixed + solved.cost)


def test_workers_are_no_part_of_what_neighbourhoods_find():
    one, three = (run(ap.Hybrid(), Budget(90), executor=e) for e in ("serial", OutOfOrder()))
    assert one.actions == three.actions
    assert one.report["rounds"] == three.report["rounds"]


def test_hybrid_is_no_worse_than_the_plan_it_begins_with():
    plan, both = run(ap.ILP(rounds=2, refined=False), Budget(90)), run(ap.Hybrid(), Budget(90))
    assert both.report["best"]["score"] <= plan.report["best"]["score"]
    assert both.report["lower_bound"] == plan.report["lower_bound"]


def test_solver_without_seconds_leaves_the_start():
    report = run(ap.ILP(seconds=0, refined=False), baselines=False).report
    assert [row["decisions"] for row in report["rounds"]] == [0]
    assert report["best"] == report["start"]


def test_where_there_is_no_time_for_a_bound_about_moves_each_op_is_bounded_by_itself():
    report = run(ap.ILP(seconds=0, refined=False), baselines=False).report
    assert 0 < report["lower_bound"] <= report["best"]["score"]
    assert any("each op by itself" in note for note in report["notes"])


def test_ctrl_c_in_a_solver_ends_the_search_with_the_best_and_the_bound(monkeypatch):
    from autopart.search.ilp import planning

    def interrupted(problem, **settings):
        solved = solve(problem, **{**settings, "seconds": 0})
        return type(solved)(**{**vars(solved), "notes": (planning.INTERRUPTED,)})

    monkeypatch.setattr(planning, "solve", interrupted)
    report = run(ap.ILP()).report
    assert report["stopped"] == "interrupted"
    assert 0 < report["lower_bound"] <= report["best"]["score"] <= report["start"]["score"]


# ---- the bound of equal layers


@pytest.mark.parametrize("name", ["behind_transposes", "accumulated_gradients", "softmax_of_products"])
def test_bound_from_groups_is_below_every_state_of_a_walk(name):
    start, random = walked(name), np.random.default_rng(1)
    bound = lower_bound(model_of(task_of(start), grouped=True), StepSeconds(), 20.0).score
    assert bound > 0
    for _ in range(30):
        state = start.copy()
        walk(state, random, int(random.integers(1, 8)))
        assert simulated(state).serial_s >= bound


@pytest.mark.slow
def test_bound_of_grouped_layers_is_the_one_of_single_ops():
    from tests.search.steps import decoder_partitioning

    task = task_of(decoder_partitioning(layers=3))
    single, grouped = (lower_bound(model_of(task, grouped=g), StepSeconds(), 20.0).score for g in (False, True))
    assert grouped == pytest.approx(single, rel=1e-3)


def test_asking_for_the_moves_that_decide_raises_the_bound_and_comes_to_an_end():
    task = task_of(partitioning("messages", MESHES["{a:4,b:2}"]))
    model = model_of(task, grouped=True)
    before = lower_bound(model, StepSeconds(), 20.0).score
    for _ in range(50):
        jobs = least_jobs(decisive_moves(model))
        if not jobs:
            break
        model.table.learn_least(jobs, [job.answer(task) for job in jobs])
    assert not decisive_moves(model)
    assert lower_bound(model, StepSeconds(), 20.0).score > before
