"""Do the loop nests of a partitioned model, run in sequence on one device, compute what the model computes?

One step of every model under its most elaborate schedules, by `Lowered.interpret`. Other tests compare partitioned
runs with the unpartitioned step; this one holds the table alone to it, and tells a wrong table from a wrong lowering.
"""

from __future__ import annotations

import jax
import pytest

import autopart as ap
from tests.models.case import MESH
from tests.numerics.test_partitioned_equals_unpartitioned import (
    MODELS,
    assert_same,
    case_of,
    on_host,
    whole_results,
)

QUICK = {"mixture_of_experts"}

RUNS = [
    pytest.param(
        model,
        schedule,
        id=f"{model}-{schedule}",
        marks=[] if model in QUICK and schedule == schedules[-1] else [pytest.mark.slow],
    )
    for model, schedules in MODELS.items()
    for schedule in schedules[-2:]
]


@pytest.mark.parametrize(("model", "schedule"), RUNS)
def test_loop_nests_run_in_sequence_give_the_unpartitioned_numbers(model: str, schedule: str):
    case = case_of(model)
    lowered = ap.jit(case.step, MESH, case.schedules[schedule]).lower(*case.args)
    assert_same(jax.tree.map(on_host, lowered.interpret(*case.args)), whole_results(model)[0])
