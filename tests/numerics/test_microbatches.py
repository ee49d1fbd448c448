"""Does a step in a loop over microbatches compute, on eight devices, what the whole step computes?

Three steps of each model, alone and partitioned; state is donated and goes from step to step. Over the batch's mesh
axis there are as many all_reduces as without the loop, or fewer: gradients are reduced once, after it.
"""

from __future__ import annotations

from typing import Any

import jax
import pytest

import autopart as ap
from tests.models.case import MESH
from tests.numerics.test_partitioned_equals_unpartitioned import assert_same, case_of, run, whole_results

STEPS = 2
ON_DEVICE = ap.Mesh(MESH.shape, device="tpu_v3")
ALL_AUTO = ap.AutomaticPartition(list(MESH.axis_names), budget=ap.Budget(30), cache=False, progress=False)
GRAPH = {"graph": {"edges": 0, "senders": 0, "receivers": 0}}
MODELS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "decoder_unrolled": ({"batch": 0}, 1, ("alone", "BP", "BP+MP", "AllAuto", "BP+Z3")),
    "decoder_scan_flax": ({"tokens": 0}, 1, ("alone", "BP", "BP+MP", "AllAuto", "BP+Z3")),
    "mixture_of_experts": ({"batch": 0}, 1, ("alone", "BP", "BP+MP", "AllAuto", "BP+Z3")),
    "graph_network": (GRAPH, 6, ("alone", "AllAuto", "ES")),
    "diffusion_unet": ({"batch": 0}, 1, ("alone", "BP", "BP+MP", "AllAuto", "BP+Z3")),
}
"""What is cut, how many loops that takes, and the schedules it stands in."""


def is_slow(model: str, schedule: str) -> bool:
    """By default the richest schedule of one of the smallest models."""
    return model != "mixture_of_experts" or schedule != MODELS[model][2][-1]


RUNS = [
    pytest.param(
        model,
        schedule,
        id=f"{model}-{schedule}",
        marks=[pytest.mark.xdist_group(model), *([pytest.mark.slow] if is_slow(model, schedule) else [])],
    )
    for model, (_, _, schedules) in MODELS.items()
    for schedule in schedules
]


def steps_of(model: str, schedule: str) -> tuple[ap.PartitionedFunction, ap.PartitionedFunction]:
    """The step without microbatches, and with them, in the middle of the schedule."""
    case, (inputs, loops, _) = case_of(model), MODELS[model]
    tactics = [ALL_AUTO] if schedule == "AllAuto" else case.schedules.get(schedule, [])
    split = ap.Microbatch(inputs, STEPS, loops=loops)
    donated = tuple(range(case.state))
    whole = ap.jit(case.step, ON_DEVICE, tactics, donate_argnums=donated)
    return whole, ap.jit(case.step, ON_DEVICE, [*tactics[:1], split, *tactics[1:]], donate_argnums=donated)


def batch_all_reduces(step: ap.PartitionedFunction, args: tuple[Any, ...]) -> int:
    return step.lower(*args).program.collectives_by_axis().get("batch", {}).get("all_reduce", 0)


@pytest.mark.parametrize(("model", "schedule"), RUNS)
def test_three_steps_in_microbatches_give_the_numbers_of_whole_steps(model: str, schedule: str):
    case = case_of(model)
    whole, looped = steps_of(model, schedule)
    if schedule in ("BP", "BP+MP", "ES"):
        assert batch_all_reduces(looped, case.args) <= batch_all_reduces(whole, case.args)
    assert_same(run(looped, case), whole_results(model))


def test_a_graph_network_needs_its_nodes_whole_between_loops_and_says_where():
    case = case_of("graph_network")
    with pytest.raises(ap.BlockedError, match=r"in the middle of the loop  at .*gns\.py:\d+"):
        ap.jit(case.step, MESH, [ap.Microbatch(GRAPH, STEPS)]).lower(*case.args)


@pytest.mark.slow
def test_a_step_in_microbatches_is_interpreted_as_it_is_partitioned():
    case = case_of("mixture_of_experts")
    _, looped = steps_of("mixture_of_experts", "BP+Z3")
    found = looped.lower(*case.args).interpret(*case.args)
    expected = case.step(*case.args)
    assert_same(jax.tree.map(jax.numpy.asarray, found), jax.tree.map(jax.numpy.asarray, expected))
