"""Does the accuracy experiment count what it says, are kernels matched by their members, and do its pairs exist?"""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.xla_compile import compile_device_local
from experiments.simulator_accuracy.headline import headline
from experiments.simulator_accuracy.kernels import compiler_kernels
from experiments.simulator_accuracy.labels import stripped
from experiments.simulator_accuracy.outside_pairs import DP, MODELS, OTHER_KINDS, outside_pairs
from experiments.simulator_accuracy.referee import KEPT
from experiments.simulator_accuracy.states import KEPT as STATES

HLO = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8,8]{1,0})->f32[8,8]{1,0}}
%fused.1 (p: f32[8,8], q: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0:T(8,128)} parameter(0)
  %c = f32[8,8]{1,0:T(8,128)} convolution(%p, %q), dim_labels=bf_io->bf, metadata={op_name="jit(f)/x/op 4" stack_frame_id=1}
  ROOT %a = f32[8,8]{1,0:T(8,128)} add(%c, %p), metadata={op_name="jit(f)/x/op 5"}
}
ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8]{1,0:T(8,128)} parameter(0)
  %f.1 = f32[8,8]{1,0:T(8,128)S(1)} fusion(%x, /*index=1*/%x), calls=%fused.1, backend_config={"a":1,"estimated_cycles":"3","b":[]}
  ROOT %copy.1 = f32[8,8]{0,1:T(8,128)} copy(%f.1), sharding={replicated}, backend_config={"estimated_cycles":"5"}
}
"""  # noqa: E501

STRIPPED = """%fused.1 () -> {
  %0 = f32[8,8]{1,0:T(8,128)} convolution(), dim_labels=bf_io->bf #op 4
  %1 = f32[8,8]{1,0:T(8,128)} add() #op 5
ENTRY %main () -> {
  %x = f32[8,8]{1,0:T(8,128)} parameter(0)
  %f.1 = f32[8,8]{1,0:T(8,128)S(1)} fusion(%x, %x), calls=%fused.1, "estimated_cycles":"3"
  %copy.1 = f32[8,8]{0,1:T(8,128)} copy(%f.1), "estimated_cycles":"5\""""


def row(model, step_s, compiler_step_s, **more):
    given = {"compute_s": step_s, "compiler_compute_s": compiler_step_s, "peak_bytes": 1.0, "compiler_peak_bytes": 1.0}
    return {"model": model, "step_s": step_s, "compiler_step_s": compiler_step_s, "hbm_bytes": 1e9, **given, **more}


def test_a_stripped_text_keeps_members_layouts_spaces_and_cycles_and_can_be_read():
    assert stripped(HLO) == STRIPPED
    assert OptimisedHlo(STRIPPED).cycles == OptimisedHlo(HLO).cycles == 8


def test_kernels_have_the_numbers_of_their_ops_and_copies_those_of_what_they_copy():
    found = [(i.name, times, ops) for i, times, ops in compiler_kernels(OptimisedHlo(STRIPPED))]
    assert found == [("f.1", 1, [4, 5]), ("copy.1", 1, [4, 5])]


def test_the_headline_is_regret_order_and_what_fits():
    rows = [row("a", 1.0, 1.1), row("a", 2.0, 1.0), row("a", 3.0, 1.01, peak_bytes=0.9e9), row("b", 1.0, 1.5)]
    found = headline(rows)
    assert found["programs_with_states"] == 1
    assert found["regret_mean"] == found["regret_most"] == pytest.approx(0.1)
    assert (found["pairs_of_states"], found["ordered"]) == (2, 0)  # 1.0 and 1.01 are too near
    assert found["fits"] == pytest.approx(1 - 6 / 28)  # 0.9 GB for one byte: six of its seven limits
    assert found["compute_within"] == 0.25


@pytest.mark.slow
@pytest.mark.parametrize("model", [*MODELS, *OTHER_KINDS])
def test_every_pair_of_a_program_from_outside_lowers(model):
    pairs = [pair for pair in outside_pairs() if pair.model == model]
    assert len(pairs) == (3 if model in MODELS else 1) + len(STATES.plans(model))
    for pair in pairs:
        assert pair.lower().estimate.compute_s > 0


def test_figures_that_are_kept_belong_to_pairs_that_exist():
    outside = {
        name for name in json.loads(KEPT.read_text())["pairs"] if name.split(" ")[0] in {**MODELS, **OTHER_KINDS}
    }
    named = {(model, search) for model in (*MODELS, *OTHER_KINDS) for search in STATES.plans(model)}
    named |= {(model, how) for model in MODELS for how in ("BP", "BP+FSDP", "BP+MP")}
    named |= {(model, DP.name) for model in OTHER_KINDS}
    assert outside <= {f"{model} {how} {(MODELS | OTHER_KINDS)[model][0]}" for model, how in named}


def test_a_compiled_text_says_which_op_an_instruction_was_made_of():
    def f(w, x):
        return jnp.tanh(x @ w).sum()

    lowered = ap.jit(f, ap.Mesh({"d": 2}), [ap.ManualPartition({"x": 0}, "d")]).lower(np.ones((8, 8)), np.ones((4, 8)))
    compiled = compile_device_local(lowered.program, jax.devices("cpu"), "this host", numbered=True)
    found = {int(op) for op in re.findall(r"#op (\d+)", stripped(compiled.as_text()))}
    kinds = {lowered.program.program.spec(op).kind for op in found}
    assert {"dot_general", "tanh", "reduce"} <= kinds
