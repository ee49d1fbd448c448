"""Can a package outside autopart add one of everything, and is each used in one search?"""

from __future__ import annotations

import json

import pytest
from conftest import REGISTRIES

import autopart as ap
from autopart.core.ops import OpSpec, TensorType, TileMapping, known_kinds, mappings_of, traits_of
from autopart.core.ops.example_import import example_op
from autopart.core.ops.rule import rules
from autopart.costmodel import estimate

PROGRAM = """
func.func @main(%q: tensor<4x32x256x64xf32>, %k: tensor<4x32x256x64xf32>, %v: tensor<4x32x256x64xf32>,
                %w: tensor<64x64xf32>) -> tensor<4x32x256x64xf32> {
  %0 = stablehlo.custom_call @acme_attention(%q, %k, %v)
      : (tensor<4x32x256x64xf32>, tensor<4x32x256x64xf32>, tensor<4x32x256x64xf32>) -> tensor<4x32x256x64xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [3] x [0]
      : (tensor<4x32x256x64xf32>, tensor<64x64xf32>) -> tensor<4x32x256x64xf32>
  return %1 : tensor<4x32x256x64xf32>
}
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return tmp_path_factory.mktemp("search") / "records.jsonl"


@pytest.fixture(scope="module")
def found(acme, records) -> ap.Lowered:
    """One search with all that acme adds: on its device, by its optimizer, executor and cost model."""
    path = records.parent / "program.mlir"
    path.write_text(PROGRAM)
    auto = ap.AutomaticPartition(
        ["a", "b"], optimizer="acme_climber", executor="acme_backwards", cost_model="acme_energy",
        budget=ap.Budget(200), records=records, cache=False,
    )  # fmt: skip
    program = ap.load(path, argument_names=["q", "k", "v", "w"])
    return ap.jit(program, ap.Mesh({"a": 4, "b": 2}, device="acme_chip"), [auto]).lower()


@pytest.fixture(scope="module")
def report(found):
    return found.metadata.tactics[0].report


@pytest.fixture(scope="module")
def states(found, records) -> list[dict]:
    """Every state that was costed."""
    return [state for line in records.read_text().splitlines()[1:] for state in json.loads(line)["states"]]


def test_each_thing_stands_in_its_registry(acme):
    assert [name for name, registry in REGISTRIES.items() if name not in registry] == []


def test_the_custom_call_is_sliced_and_its_flop_are_known(found):
    assert found.estimate.unknown_ops == ()
    assert found.estimate.flop >= 4 * 4 * 32 * 256 * 256 * 64 / 8
    assert "{@acme_attention} : tensor<2x8x256x64xf32>" in found.as_text("hlo")


def test_the_custom_calls_example_has_the_mappings_that_its_rule_states(acme):
    [rule] = [rule for rule in rules() if rule.kind == "custom_call @acme_attention"]
    assert mappings_of(example_op(rule.examples[0]).spec) == (
        TileMapping((0, 0, 0), (0,), 4),
        TileMapping((1, 1, 1), (1,), 2),
    )


def test_the_mesh_is_made_of_the_device(found):
    assert found.estimate.device == "acme_chip"


def test_the_optimizer_searched(report):
    assert report["optimizer"] == "Climber(steps=4)"
    assert report["stopped"] == "done"


def test_the_executor_did_every_job(acme, report):
    assert [report["evaluations"] + 1] == acme["backwards"].ENDED


def test_the_cost_model_priced(found, report):
    assert report["best"]["step_s"] == pytest.approx(1e-9 * estimate(found.program).bytes)


def test_the_kind_of_decision_was_offered_costed_and_taken(report, states):
    assert any(decision[0] == "acme_spread" for state in states for decision, _ in state["options"])
    assert any(decision[0] == "acme_spread" for state in states for decision in state["decisions"])
    assert {"spread<a>", "spread<b>"} & set(report["decisions"])


def test_the_named_schedule_was_where_the_search_started(acme, states):
    tried = [label for label in acme["climber"].TRIED if "AcmeHalves" in label]
    assert any("AcmeHalves(a)" in label for label in tried)
    assert any("AcmeHalves(b)" in label for label in tried)
    assert any(["acme_spread", 0, -1, "a"] in state["decisions"] for state in states)


def test_the_op_rule_is_asked(acme):
    spec = OpSpec("acme.rotate", {}, (TensorType((4, 8), "f32"),), (TensorType((4, 8), "f32"),))
    assert "acme.rotate" in known_kinds()
    assert mappings_of(spec) == (TileMapping((0,), (0,), 4),)
    assert traits_of(spec).weight == 3
