"""Can every state that decisions lead to be lowered and priced, on models of all kinds?"""

from __future__ import annotations

import importlib
import math

import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.evaluation.jobs import Job
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions, lower
from tests.prompt import only

MESH = ap.Mesh({"a": 4, "b": 2, "c": 3}, device="tpu_v3")
"""Sizes that do not divide each other's multiples: two axes on one dim are often not legal."""

MODELS = (
    "mlp_equinox", "decoder_unrolled", "mixture_of_experts", "cnn_flax", "lstm_haiku", "kv_cache_decoding",
    "decoder_scan_flax", "encoder_decoder_nnx", "graph_network", "diffusion_unet",
)  # fmt: skip


@pytest.mark.parametrize("model", only(["mixture_of_experts"], MODELS))
def test_every_state_of_a_random_walk_has_a_cost(model):
    case = importlib.import_module(f"tests.models.{model}").case()
    step = ap.jit(case.step, MESH, [], donate_argnums=tuple(range(case.state)))
    program = step.lower(*case.args).traced.program
    partitioning = Partitioning(program, MESH)
    space = DecisionSpace.of(partitioning, MESH.axis_names)
    evaluator = Evaluator(SearchTask(partitioning, space, LoweringOptions(), None, StepSeconds()))
    keys = set()
    for seed in range(6):
        for state in evaluator.run(Job((), rollout=6, seed=seed)):
            assert 0 < state.cost.step_s < math.inf
            keys.add(state.key)
        local = lower(evaluator.partitioning)
        for value in range(program.value_count):
            for layout in (int(local.native[value]), int(local.settled[value])):
                local.distributed_type(value, layout)
    assert len(keys) > 10
