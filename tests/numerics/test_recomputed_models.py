"""Does a step that computes again compute, on eight devices, what the whole step computes?

Three steps of each model, partitioned, alone and in microbatches; state is donated and goes from step to step.
"""

from __future__ import annotations

import pytest

import autopart as ap
from tests.models.case import MESH
from tests.numerics.test_partitioned_equals_unpartitioned import assert_same, case_of, run, whole_results

GRAPH = {"graph": {"edges": 0, "senders": 0, "receivers": 0}}
SPLIT = {
    "decoder_unrolled": ap.Microbatch({"batch": 0}, 2),
    "decoder_scan_flax": ap.Microbatch({"tokens": 0}, 2),
    "diffusion_unet": ap.Microbatch({"batch": 0}, 2),
    "graph_network": ap.Microbatch(GRAPH, 2, loops=6),
}
RUNS = [
    ("decoder_unrolled", "BP", "nothing"),
    ("decoder_unrolled", "BP+MP", "blocks"),
    ("decoder_unrolled", "BP+Z3", "matmuls"),
    ("decoder_unrolled", "AllAuto", "blocks"),
    ("decoder_scan_flax", "BP+MP", "blocks"),
    ("decoder_scan_flax", "BP+Z3", "matmuls"),
    ("diffusion_unet", "BP", "blocks"),
    ("diffusion_unet", "BP+Z3", "matmuls"),
    ("graph_network", "ES", "blocks"),
]
BY_DEFAULT = [("decoder_unrolled", "BP+MP", "blocks")]


def runs():
    for model, schedule, keep in RUNS:
        for split in ("whole", "split"):
            fast = (model, schedule, keep) in BY_DEFAULT and (split == "whole") == (schedule == "BP+MP")
            marks = [pytest.mark.xdist_group(model), *([] if fast else [pytest.mark.slow])]
            yield pytest.param(model, schedule, keep, split, marks=marks)


@pytest.mark.parametrize(("model", "schedule", "keep", "split"), list(runs()))
def test_three_steps_that_compute_again_give_the_numbers_of_whole_steps(model, schedule, keep, split):
    case, mesh = case_of(model), MESH
    if schedule == "AllAuto":
        mesh = ap.Mesh(MESH.shape, device="tpu_v3")
        tactics = [ap.AutomaticPartition(list(MESH.axis_names), budget=ap.Budget(30), cache=False)]
    else:
        tactics = case.schedules[schedule]
    extra = [SPLIT[model]] if split == "split" else []
    schedule = [*extra, *tactics, ap.Recompute(keep)]
    step = ap.jit(case.step, mesh, schedule, donate_argnums=tuple(range(case.state)))
    assert_same(run(step, case), whole_results(model))


@pytest.mark.parametrize("model", ["decoder_unrolled", pytest.param("diffusion_unet", marks=pytest.mark.slow)])
def test_blocks_lower_the_estimated_peak(model):
    case = case_of(model)
    mesh = ap.Mesh(MESH.shape, device="tpu_v3")
    lowered = [ap.jit(case.step, mesh, [*extra]).lower(*case.args).estimate for extra in ([], [ap.Recompute()])]
    assert lowered[1].peak_bytes < lowered[0].peak_bytes
