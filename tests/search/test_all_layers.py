"""Are the kernels of all layers, written down from those of few, those of the whole program, to the last bit?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import autopart as ap
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.costmodel.simulator.layers.all_layers import AllLayers
from autopart.costmodel.simulator.simulator import Simulator
from autopart.search.evaluator import Evaluator
from autopart.search.fewer_layers_costs import FewerLayersCosts
from autopart.search.jobs import Job
from autopart.spmd.device_local import LoweringContext, LoweringOptions
from experiments.automatic.cases import traced
from experiments.models import bigbird, gns
from experiments.search_quality.programs import MESHES as LARGE
from experiments.search_quality.programs import programs
from tests.prompt import only
from tests.search.steps import decoder
from tests.search.test_fewer_layers import LAYERS, MESHES, task_of

BLOCKS = bigbird.Config(
    layers=LAYERS, heads=2, blocks=6, block=16, random_blocks=1, head_dim=32, vocabulary=512, batch=8
)
STEPS = dataclasses.replace(gns.Config(), steps=16, mlp_layers=2, hidden=128, latent=64)
PROGRAMS = {
    "decoder": lambda: decoder(LAYERS),
    "attention in blocks": lambda: traced(bigbird, BLOCKS),
    "graph network": lambda: traced(gns, STEPS),
}


def walked(task, walks) -> int:
    """Walks at random, compares every state that has an answer with the whole program's, and returns how many have."""
    short = Evaluator(task)._fewer
    assert short is not None
    assert short.all_layers is not None
    whole, count = short.longer.with_all(), 0
    for seed in range(walks):
        for state in Evaluator(task).run(Job((), rollout=6, seed=seed)):
            reached = short.reach(state.decisions)
            if reached is None or not short._lowered_alike(reached.local) or not short._shares_alike(reached.local):
                continue
            priced = short._price._simulator.priced(reached.local)
            cost = short._price.of_all(reached.local, reached.actions, short.all_layers, priced)
            if cost is not None:
                assert cost == whole.cost(reached.local, reached.actions)
                count += 1
    return count


@pytest.mark.parametrize("name", only(["decoder"], PROGRAMS))
@pytest.mark.parametrize("mesh", only(MESHES[:1], MESHES), ids=lambda mesh: f"{len(mesh.axis_names)} axes")
def test_states_of_random_walks_cost_what_a_run_of_the_whole_program_says(name, mesh):
    assert walked(task_of(PROGRAMS[name](), mesh), walks=2) >= 10


def test_they_do_on_other_devices():
    mesh = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e")
    assert walked(task_of(decoder(LAYERS), mesh), walks=2) >= 10


def test_steps_with_collectives_beside_compute_are_simulated_whole():
    mesh = ap.Mesh({"batch": 4, "model": 2}, device="h100")
    assert walked(task_of(decoder(LAYERS), mesh), walks=1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t32", "gns", "it32"])
def test_states_of_large_programs_do(name):
    task = task_of(programs()[name](), LARGE["tpu_v3"])
    fewer = Evaluator(task)._fewer
    if fewer is not None and fewer.all_layers is not None:
        assert walked(task, walks=8) > 0


def unfolded(short: FewerLayersCosts, partitioning):
    """What is made of a lowering of the program with fewer layers."""
    simulator = short._price._simulator
    assert isinstance(simulator, Simulator)
    assert short.all_layers is not None
    program = short.whole.fewer.program
    local = lower_for_device(partitioning, LoweringOptions(), LoweringContext.of(program))
    graph, _ = simulator._graph(local, simulator.priced(local), np.empty)
    return short.all_layers.unfolded(graph, np.empty)


def test_layers_that_are_lowered_differently_have_no_answer():
    short = Evaluator(task_of(decoder(LAYERS), MESHES[0]))._fewer
    assert short is not None
    partitioning, fewer = short.space.start.copy(), short.whole.fewer
    assert unfolded(short, partitioning) is not None
    partitioning.tile(argument(fewer.program, "params/blocks/3/down"), 0, "batch")
    partitioning.propagate()
    assert unfolded(short, partitioning) is None


def argument(program, name):
    """The value of an argument."""
    return program.arguments[program.argument_names.index(name)]


def test_ops_that_run_nothing_are_left_out():
    short = Evaluator(task_of(decoder(LAYERS), MESHES[0]))._fewer
    assert short is not None
    found = unfolded(short, short.space.start.copy())
    assert found is not None
    whole, passed = found
    assert len(whole.program.ops) < decoder(LAYERS).op_count / 3
    assert len(passed) == len(decoder(LAYERS).passed_arguments)
    assert whole.graph.reads["read_buffer"].max() < len(whole.held.home)


def test_an_op_that_reads_another_layer_than_those_like_it_has_no_answer():
    program = decoder(LAYERS)
    short = Evaluator(task_of(program, MESHES[0]))._fewer
    assert short is not None
    fewer, like = short.whole.fewer, short.longer.like_all
    operands = program.operands.copy()
    use = int(np.flatnonzero(operands == argument(program, f"params/blocks/{LAYERS // 2}/down"))[0])
    operands[use] = argument(program, f"params/blocks/{LAYERS // 2 - 1}/down")
    assert AllLayers.of(program, fewer, like) is not None
    assert AllLayers.of(dataclasses.replace(program, operands=operands), fewer, like) is None


def test_a_program_with_barriers_has_no_answer():
    program = decoder(LAYERS)
    short = Evaluator(task_of(program, MESHES[0]))._fewer
    assert short is not None
    with_barrier = dataclasses.replace(program, barriers=[range(program.op_count - 1, program.op_count)])
    assert AllLayers.of(with_barrier, short.whole.fewer, short.longer.like_all) is None
