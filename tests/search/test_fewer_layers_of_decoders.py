"""Do states of decoders of 7 to 13 layers cost by fewer layers what the whole program says, on every sort of device?"""

from __future__ import annotations

import random

import pytest

import autopart as ap
from autopart.search.evaluation.evaluator import Evaluator
from autopart.search.space.decisions import Decision
from tests.prompt import slow
from tests.search.decoders import Decoder
from tests.search.test_fewer_layers import task_of, whole_of

WIDE = {"width": 1024, "vocabulary": 32768, "batch": 8, "length": 512, "heads": 16, "dtype": "bfloat16"}
DECODERS = {
    "small": Decoder(13),
    "clipped": Decoder(11, tied=False, clip=True),
    "in bf16": Decoder(12, tied=False, **WIDE),
    "in bf16, tied": Decoder(11, **WIDE),
    "shallow": Decoder(7, tied=False),
    "shallow, in bf16": Decoder(10, dtype="bfloat16", clip=True),
}
DEVICES = ("h100", "a100_80gb", "tpu_v3", "tpu_v5e", "tpu_v5p")
QUICK = {("small", "h100"), ("clipped", "tpu_v3"), ("in bf16", "tpu_v5p")}
CASES = [(name, device) if (name, device) in QUICK else slow(name, device) for name in DECODERS for device in DEVICES]


def drawn(whole: Evaluator, seed: int, pairs: int) -> list[tuple[Decision, ...]]:
    """Every decision by itself, and so many at random after which another one at random follows."""
    rng = random.Random(seed)
    first = [option.decision for option in whole._state(()).options]
    states: list[tuple[Decision, ...]] = [(decision,) for decision in first]
    for decision in rng.choices(first, k=pairs):
        states += [(decision, option.decision) for option in rng.choices(whole._state((decision,)).options or [], k=1)]
    return states


@pytest.mark.parametrize(("name", "device"), CASES)
def test_states_drawn_at_random_cost_what_the_whole_program_says(name, device):
    task = task_of(DECODERS[name].program(), ap.Mesh({"data": 4, "model": 2}, device=device))
    whole, short = whole_of(task), Evaluator(task)
    for decisions in drawn(whole, seed=0, pairs=6):
        said, expected = short._state(decisions).cost, whole._state(decisions).cost
        assert said.step_s == pytest.approx(expected.step_s, rel=1e-9), decisions
        assert said.peak_bytes == pytest.approx(expected.peak_bytes, rel=1e-9), decisions


def test_layers_are_left_out_of_decoders_of_ten_layers_and_more():
    for name in ("small", "clipped", "in bf16"):
        assert Evaluator(task_of(DECODERS[name].program(), ap.Mesh({"data": 8}, device="h100")))._fewer is not None
