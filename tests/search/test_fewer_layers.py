"""Is a state's cost by a program with fewer layers that of the whole program? Is it asked only where it is?"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import autopart as ap
from autopart.api.tactics.tactic import TacticContext
from autopart.core.passes.program_verifier import verify_program
from autopart.core.repeats.fewer_layers import fewer_layers
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.hardware.devices import DEVICES, device
from autopart.search.contract import two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.evaluation.jobs import Job
from autopart.search.space import decision_space, named_schedules
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import DECISION_KINDS, Decision, DecisionKind, Option
from autopart.search.space.named_schedules import Named, NamedSchedule, found_schedules
from autopart.search.space.several_axes import combined
from autopart.spmd.device_local import LoweringOptions
from experiments.automatic.cases import traced
from experiments.models import gns
from experiments.search_quality.programs import MESHES as LARGE
from experiments.search_quality.programs import programs
from tests.prompt import only, slow
from tests.search.steps import decoder

LAYERS = 12
MESHES = [
    ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3"),
    ap.Mesh({"batch": 2, "model": 2, "data": 2}, device="tpu_v3"),
]


def task_of(program, mesh) -> SearchTask:
    partitioning = Partitioning(program, mesh)
    return SearchTask(
        partitioning, DecisionSpace.of(partitioning, mesh.axis_names), LoweringOptions(), None, StepSeconds()
    )


def whole_of(task) -> Evaluator:
    evaluator = Evaluator(task)
    evaluator._fewer = None
    return evaluator


@contextlib.contextmanager
def simulated() -> Iterator[list[int]]:
    """Collects how many ops the programs have that are simulated."""
    found: list[int] = []
    run = Simulator.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "run", lambda self, *args: found.append(self.program.op_count) or run(self, *args))
        yield found


def shares_costed_short(task, walks) -> float:
    """Walks at random, compares every state with the whole program's, and returns the share costed the short way."""
    whole, short = whole_of(task), Evaluator(task)
    fewer = short._fewer
    assert fewer is not None
    count = exact = 0
    for seed in range(walks):
        for state in whole.run(Job((), rollout=6, seed=seed)):
            reached = fewer.reach(state.decisions)
            cost = fewer.cost(reached) if reached is not None else None
            count += 1
            if cost is None:
                continue
            exact += 1
            assert cost.actions == state.cost.actions
            assert cost.step_s == pytest.approx(state.cost.step_s, rel=1e-12)
            assert cost.peak_bytes == pytest.approx(state.cost.peak_bytes, rel=1e-12)
            options = fewer.options()
            assert [o.decision for o in options] == [o.decision for o in state.options]
            assert [o.prior for o in options] == pytest.approx([o.prior for o in state.options], rel=1e-9)
    return exact / count


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: f"{len(mesh.axis_names)} axes")
def test_states_of_random_walks_cost_what_the_whole_program_says(mesh):
    assert shares_costed_short(task_of(decoder(LAYERS), mesh), walks=3) == 1


def test_layers_that_stay_on_the_chip_are_simulated_all():
    task = task_of(decoder(LAYERS), ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e"))
    short = Evaluator(task)._fewer
    assert short is not None
    reached, state = short.reach(()), whole_of(task)._state(())
    assert reached is not None
    with simulated() as lengths:
        assert short.cost(reached) == state.cost
    assert lengths == [short.whole.fewer.program.op_count, task.partitioning.program.op_count]


@pytest.mark.slow
def test_steps_of_a_graph_network_are_left_out_though_all_read_at_the_same_indices():
    small = dataclasses.replace(gns.Config(), steps=16, mlp_layers=2, hidden=128, latent=64)
    short = Evaluator(task_of(traced(gns, small), MESHES[0]))._fewer
    assert short is not None
    reached = short.reach(())
    assert reached is not None
    with simulated() as lengths:
        short.cost(reached)
    assert lengths == [short.whole.fewer.program.op_count]


@pytest.mark.parametrize(
    ("kib", "together"),
    [
        slow(40, (2, 0, 20)),
        (80, (3, 0, 20)),
        slow(110, (2, 0, 20)),
        slow(160, (3, 0, 20)),
        slow(640, (1, 10, 20)),
        slow(900, (1, 6, 20)),
    ],
)
def test_layers_whose_gradients_are_reduced_together_count_as_one(kib, together):
    """In the last two, one collective fills amid the layers: only those on one side of it are left out."""
    program = decoder(24)
    lengths, short = lengths_and_short(program, kib)
    assert lengths == [short.whole.fewer.with_more(program, *together).program.op_count]


def test_where_a_collective_fills_in_the_first_layer_two_more_are_simulated():
    program = decoder(24)
    lengths, short = lengths_and_short(program, 1100)
    farther = short.whole.fewer.with_more(program, 1, 2, 20)
    assert lengths == [short.whole.fewer.program.op_count, farther.program.op_count]


def test_where_collectives_fill_in_no_order_all_layers_are_simulated():
    program = decoder(24)
    lengths, _ = lengths_and_short(program, 320)
    assert lengths == [program.op_count]


def lengths_and_short(program, kib):
    """The ops of what is simulated where collectives hold so many KiB; the costs are those of the whole program."""
    chip = dataclasses.replace(device("tpu_v3"), name=f"combines_{kib}", combine_bytes=kib * 1024.0)
    with DEVICES.temporarily(chip.name, chip):
        task = task_of(program, ap.Mesh({"batch": 4, "model": 2}, device=chip.name))
        short, of_batch = Evaluator(task)._fewer, (decision_about_the_batch(task),)
        assert short is not None
        reached, state = short.reach(of_batch), whole_of(task)._state(of_batch)
        assert reached is not None
        with simulated() as lengths:
            cost = short.cost(reached)
    assert cost is not None
    assert cost.step_s == pytest.approx(state.cost.step_s, rel=1e-12)
    assert cost.peak_bytes == pytest.approx(state.cost.peak_bytes, rel=1e-12)
    return lengths, short


def decision_about_the_batch(task) -> Decision:
    """The one that tiles the model's inputs over the batch axis."""
    program = task.partitioning.program
    inputs = program.arguments[program.argument_names.index("batch/inputs")]
    return next(
        option.decision
        for option in task.space.options(task.partitioning)
        if option.decision.axis == "batch" and option.decision.dim == 0 and inputs in task.space.values(option.decision)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t32", "gns", "hf_gpt2_xl_train", "hf_bert_large_mlm", "it32"])
@pytest.mark.parametrize("device", ["tpu_v3", "h100"])
def test_states_of_large_programs_cost_what_the_whole_program_says(name, device):
    task = task_of(programs()[name](), LARGE[device])
    if Evaluator(task)._fewer is not None:
        shares_costed_short(task, walks=12)


def test_depth_changes_nothing_in_the_program_with_fewer_layers():
    shallow, deep = (fewer_layers(decoder(layers)) for layers in (LAYERS, LAYERS + 4))
    assert shallow is not None
    assert deep is not None
    assert shallow.program.op_count == deep.program.op_count < 0.6 * decoder(LAYERS).op_count
    assert np.array_equal(shallow.program.operands, deep.program.operands)
    assert deep.left_out == shallow.left_out + 4


def test_the_program_with_fewer_layers_is_a_program():
    program = decoder(LAYERS)
    fewer = fewer_layers(program)
    assert fewer is not None
    verify_program(fewer.program)
    assert fewer.times.sum() == program.op_count
    assert np.array_equal(fewer.program.op_spec, program.op_spec[fewer.ops])
    assert np.array_equal(fewer.stands_in[fewer.ops], np.arange(len(fewer.ops)))
    assert len(fewer.program.ties) == len(fewer.program.donated)


@pytest.mark.parametrize("program", [two_matrices(), decoder(2)], ids=["no layers", "two layers"])
def test_a_program_of_few_layers_is_costed_whole(program):
    assert fewer_layers(program) is None
    assert Evaluator(task_of(program, MESHES[0]))._fewer is None


def test_a_decision_about_one_layer_is_costed_by_the_whole_program():
    task = task_of(decoder(LAYERS), MESHES[0])
    group = next(o.decision for o in task.space.options(task.partitioning) if o.decision.kind == "tile_group")
    value = int(task.space.values(group)[LAYERS // 2])
    job = Job((Decision("value", value, group.dim, group.axis),))
    short = Evaluator(task)
    assert short._fewer is not None
    assert short._fewer.reach(job.decisions) is None
    assert short.run(job) == whole_of(task).run(job)


@pytest.mark.parametrize(("place", "by_fewer_layers"), [(0, False), slow(1, False), slow(-1, True)])
def test_gathers_that_some_layers_share_are_placed_in_the_whole_program(place, by_fewer_layers):
    task, gathers_twice = task_of(decoder(LAYERS), MESHES[0]), ()
    short, whole = Evaluator(task), whole_of(task)
    for label in (
        "tile<batch/inputs, 0, model>",
        "tile<batch/inputs, 0, batch>",
        "tile<params/blocks/0/up and 11 more, 0, batch>",
    ):
        options = [o.decision for o in short._state(gathers_twice).options]
        gathers_twice = (*gathers_twice, next(d for d in options if task.space.describe(d) == label))
    within = task.space.facts.repeated_reads.distances[place]
    decisions = (*gathers_twice, Decision("share_gathers", within, -1, ""))
    with simulated() as lengths:
        state = short._state(decisions)
    assert (lengths[-1] < task.partitioning.program.op_count) == by_fewer_layers
    expected = whole._state(decisions).cost
    assert state.cost.step_s == pytest.approx(expected.step_s, rel=1e-12)
    assert state.cost.peak_bytes == pytest.approx(expected.peak_bytes, rel=1e-12)
    assert state.cost.step_s < short._state(gathers_twice).cost.step_s


def test_earlier_tactics_that_treat_layers_differently_leave_the_whole_program_to_be_costed():
    task = task_of(decoder(LAYERS), MESHES[0])
    group = next(o.decision for o in task.space.options(task.partitioning) if o.decision.kind == "tile_group")
    partitioning = Partitioning(decoder(LAYERS), MESHES[0])
    partitioning.tile(int(task.space.values(group)[LAYERS // 2]), group.dim, group.axis)
    partitioning.propagate()
    space = DecisionSpace.of(partitioning, MESHES[0].axis_names)
    assert Evaluator(dataclasses.replace(task, partitioning=partitioning, space=space))._fewer is None


def test_a_kind_that_offers_decisions_by_values_leaves_the_whole_program_to_be_costed():
    class FirstArgument(DecisionKind):
        def options(self, space, partitioning, axes):
            return [Option(Decision("first", 0, -1, axes[0]), 0.1)]

        def apply(self, facts, partitioning, decision):
            return []

        def describe(self, facts, decision):
            return "nothing"

    with DECISION_KINDS.temporarily("first", FirstArgument):
        assert Evaluator(task_of(decoder(LAYERS), MESHES[0]))._fewer is None
    assert Evaluator(task_of(decoder(LAYERS), MESHES[0]))._fewer is not None


@pytest.mark.slow
def test_a_search_with_fewer_layers_finds_what_it_finds_with_all(monkeypatch):
    mesh = MESHES[0]
    step = ap.AutomaticPartition(axes=mesh.axis_names, budget=ap.Budget(40), cache=False)
    partitionings = [Partitioning(decoder(LAYERS), mesh) for _ in range(2)]
    short = step.act(partitionings[0], TacticContext())
    monkeypatch.setattr("autopart.search.evaluation.evaluator.FewerLayersCosts.of", lambda *_: None)
    whole = step.act(partitionings[1], TacticContext())
    assert short.report["best"]["step_s"] == pytest.approx(whole.report["best"]["step_s"], rel=1e-9)
    assert list(short.actions) == list(whole.actions)


@pytest.mark.parametrize("mesh", only(MESHES[:1], MESHES), ids=lambda mesh: f"{len(mesh.axis_names)} axes")
def test_probes_and_named_schedules_are_those_of_the_whole_program(mesh, monkeypatch):
    program = decoder(LAYERS)
    short = DecisionSpace.of(Partitioning(program, mesh), mesh.axis_names)
    monkeypatch.setattr(decision_space, "facts_of_fewer", lambda start, facts: None)
    whole = DecisionSpace.of(Partitioning(program, mesh), mesh.axis_names)
    assert short.of_fewer is not None
    assert whole.of_fewer is None
    assert [probe.decision for probe in short.probes] == [probe.decision for probe in whole.probes]
    for one, other in zip(short.probes, whole.probes, strict=True):
        assert dataclasses.astuple(one)[1:] == pytest.approx(dataclasses.astuple(other)[1:], rel=1e-12)
    named = found_schedules(short)
    assert named == found_schedules(whole)
    pairs = [(one, other) for one in named for other in named if one.axes != other.axes]
    found, expected = ([combined(space, pair) for pair in pairs] for space in (short, whole))
    assert [(c.label, c.decisions) for c in found] == [(c.label, c.decisions) for c in expected]
    assert len({c.state for c in found}) == len({c.state for c in expected})


class TilesOneValue(NamedSchedule):
    """Tiles one argument by its number, which is another one where layers are left out."""

    def decisions(self, space):
        value = int(space.program.arguments[-1])
        return [Named("One", (Decision("value", value, 0, space.axes[0]),), (space.axes[0],))]


def test_a_schedule_that_names_single_values_is_shown_the_whole_program(monkeypatch):
    program, mesh = decoder(LAYERS), MESHES[0]
    space = DecisionSpace.of(Partitioning(program, mesh), mesh.axis_names)
    monkeypatch.setattr(named_schedules, "registered_schedules", lambda: {"One": TilesOneValue()})
    [named] = found_schedules(space)
    assert named.decisions[0].target == program.arguments[-1] != space.of_fewer.program.arguments[-1]
    assert combined(space, [named]).decisions == named.decisions
