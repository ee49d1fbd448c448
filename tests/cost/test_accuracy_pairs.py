"""Are the pairs of programs from outside what the accuracy experiment says, and are kernels matched by scope?"""

from __future__ import annotations

import json

import pytest

from experiments.simulator_accuracy.kernels import compiler_seconds, plain_scope, table
from experiments.simulator_accuracy.outside_pairs import DP, MODELS, OTHER_KINDS, outside_pairs
from experiments.simulator_accuracy.referee import KEPT
from experiments.simulator_accuracy.states import kept_states

HLO = """%fused.1 (p: f32[8,8]) -> f32[8,8] {
  %c = f32[8,8] convolution(%p, %p), dim_labels=bf_io->bf
}
ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %f.1 = f32[8,8] fusion(%x), calls=%fused.1, metadata={op_name="jit(f)/jit(step)/jvp(M)/up_1/dot"}, "estimated_cycles":"3"
  %f.2 = f32[8,8] fusion(%x), calls=%fused.1, metadata={op_name="jit(f)/jit(step)/jvp(M)/up_2/dot"}, "estimated_cycles":"4"
  ROOT %copy.1 = f32[8,8] copy(%f.2), "estimated_cycles":"5"
}
"""  # noqa: E501


def test_kernels_of_equal_layers_have_one_scope():
    assert plain_scope("x/jit(step)/transpose(jvp(M))/Block_3/up/dot") == "transpose(jvp(M))/Block/up/dot"
    found = compiler_seconds(HLO, 1.0)
    assert found == {"matrix": [3, 4], "copy": [5], "jvp(M)/up/dot": [3, 4], "(copy)": [5]}


def test_scopes_that_differ_most_come_first_in_the_table():
    lines = table({"a": [1.0], "b": [1.0]}, {"a": [1.5], "b": [4.0]}).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["matrix", "vector", "copy", "b", "a"]


@pytest.mark.slow
@pytest.mark.parametrize("model", [*MODELS, *OTHER_KINDS])
def test_every_pair_of_a_program_from_outside_lowers(model):
    pairs = [pair for pair in outside_pairs() if pair.model == model]
    assert len(pairs) == (3 if model in MODELS else 1) + len(kept_states(model))
    for pair in pairs:
        assert pair.lower().estimate.compute_s > 0


def test_figures_that_are_kept_belong_to_pairs_that_exist():
    outside = {
        name for name in json.loads(KEPT.read_text())["pairs"] if name.split(" ")[0] in {**MODELS, **OTHER_KINDS}
    }
    named = {(model, state.name) for model in (*MODELS, *OTHER_KINDS) for state in kept_states(model)}
    named |= {(model, how) for model in MODELS for how in ("BP", "BP+FSDP", "BP+MP")}
    named |= {(model, DP.name) for model in OTHER_KINDS}
    assert outside <= {f"{model} {how} {(MODELS | OTHER_KINDS)[model][1][0]}" for model, how in named}
