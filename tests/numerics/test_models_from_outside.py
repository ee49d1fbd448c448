"""Do models as their users write them compute the same on eight devices?"""

from __future__ import annotations

import importlib
from typing import Any

import jax
import numpy as np
import pytest

import autopart as ap
from experiments.models.outside.training import Training
from experiments.simulator_accuracy.outside_pairs import DP, OTHER_KINDS

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
MODELS = ("moe", "llama", "mamba")
NOISY = {
    "set_transformer", "perceiver", "generator", "wav2vec", "diffusion_transformer", "roberta", "soft_moe", "swin",
    "gpt_dropout", "t5", "qwen", "microbatches", "whisper", "neox", "masked_autoencoder", "latent_unet",
    "sliding_window", "deep_sets_ranker", "muon_gpt",
}  # fmt: skip
"""The gradient of a key's bias, or of a bias in front of a norm, is zero but for rounding, and Adam's first step makes
that as large as any other; so does Muon with what a gradient has beside its rank, of few tokens; and in bf16 sums of
parts are rounded otherwise."""
FEW, FEW_OF = 0.1, {"muon_gpt": 0.2}
"""The share of the numbers that a step leaves which may differ by that."""
SAME_LOSS = 2e-4
"""Of a loss in bf16, over the loss."""

BP = ap.ManualPartition({"batch": 0}, axis="batch", name="BP")
STATE = {"params": ap.LARGEST_DIVISIBLE_DIM, "opt_state": ap.LARGEST_DIVISIBLE_DIM}
Z3 = ap.ManualPartition(STATE, axis="batch", name="Z3")


def small(model: str) -> Training:
    module = importlib.import_module(f"experiments.models.outside.{model}")
    return module.training(**module.SMALL)


def schedules(model: Training) -> dict[str, list[ap.Tactic]]:
    megatron = ap.ManualPartition({"params": model.megatron}, axis="model", name="MP")
    search = ap.AutomaticPartition(["batch", "model"], "greedy", ap.Budget(60), cache=False)
    return {"BP+MP": [BP, megatron], "BP+Z3": [BP, Z3], "found": [search]}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["BP+MP", "BP+Z3", "found"])
@pytest.mark.parametrize("model", MODELS)
def test_a_step_on_eight_devices_is_the_step(model, schedule):
    program = small(model)
    is_the_step(program, program.example_args(), schedules(program)[schedule])


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(set(OTHER_KINDS) - NOISY))
def test_a_step_of_another_kind_on_eight_devices_is_the_step(model):
    program = small(model)
    is_the_step(program, program.example_args(tokens=4), [DP])


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(NOISY))
def test_a_step_of_which_some_gradients_are_noise_differs_in_few_numbers(model):
    program = small(model)
    *state, loss = differences(program, program.example_args(tokens=4), [DP])
    off = sum(np.count_nonzero(each > 1e-3) for each in state)
    assert loss < SAME_LOSS
    assert off < FEW_OF.get(model, FEW) * sum(each.size for each in state)


def is_the_step(program: Training, args: tuple[Any, ...], schedule: list[ap.Tactic]) -> None:
    """Compares what a partitioned step leaves with what the step itself does."""
    for each in differences(program, args, schedule):
        assert each.max() <= 1e-3


def differences(program: Training, args: tuple[Any, ...], schedule: list[ap.Tactic]) -> list[np.ndarray]:
    """By array that a step leaves, how far its numbers are off, over the size of such numbers."""
    found, wanted = ap.jit(program.step, MESH, schedule)(*args), jax.jit(program.step)(*args)
    pairs = [
        [np.asarray(leaf, "f8") for leaf in pair] for pair in zip(*map(jax.tree.leaves, (found, wanted)), strict=True)
    ]
    return [np.abs(one - other) / max(np.sqrt(np.mean(other**2)), 1e-3) for one, other in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_batch_divides_the_work(model):
    program = small(model)
    low = ap.jit(program.step, MESH, [BP], donate_argnums=(0, 1)).lower(*program.args)
    assert low.metadata.flop_divided["batch"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_search_of_the_laptop_size_is_no_worse_than_the_best_named_schedule(model):
    program = importlib.import_module(f"experiments.models.outside.{model}").training()
    search = ap.AutomaticPartition(["batch", "model"], budget=ap.Budget(100), cache=False)
    low = ap.jit(program.step, MESH, [search], donate_argnums=(0, 1)).lower(*program.args)
    baselines = low.metadata.tactics[0].report["baselines"]
    assert low.estimate.step_s <= min(b["step_s"] for b in baselines if b["fits"])
