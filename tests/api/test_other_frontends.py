"""Is a model that was written in another framework partitioned, and does it compute what it computes there?

tests/data/torch/encoder.mlir    a PyTorch encoder with multi-head attention, exported by torch.export and torchax
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autopart as ap

DATA = Path(__file__).parents[1] / "data/torch"
LAYER = {
    "in_proj_weight": (96, 32), "in_proj_bias": (96,), "out_proj_weight": (32, 32), "out_proj_bias": (32,),
    "linear1_weight": (64, 32), "linear1_bias": (64,), "linear2_weight": (32, 64), "linear2_bias": (32,),
    "norm1_weight": (32,), "norm1_bias": (32,), "norm2_weight": (32,), "norm2_bias": (32,),
}  # fmt: skip
SHAPES = {
    "embed": (64, 32),
    **{f"blocks/{n}/{name}": shape for n in range(2) for name, shape in LAYER.items()},
    "norm_weight": (32,),
    "norm_bias": (32,),
}
MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"tokens": 0}, axis="batch", name="BP")
MP = ap.ManualPartition({"blocks/*/linear1_*": 0, "blocks/*/out_proj_weight": 1}, axis="model", name="MP")
VOCABULARY = ap.ManualPartition({"embed": 0}, axis="model", name="vocabulary")


def arguments() -> list[np.ndarray]:
    """The parameters and tokens with which PyTorch made the logits."""
    rng = np.random.default_rng(0)
    parameters = [rng.normal(size=shape).astype("f4") * np.float32(0.2) for shape in SHAPES.values()]
    return [*parameters, rng.integers(0, 64, (8, 6)).astype("i4")]


def torch_encoder() -> ap.LoadedProgram:
    return ap.load(DATA / "encoder.mlir", argument_names=[*SHAPES, "tokens"])


@pytest.mark.parametrize("schedule", [[], [BP], [BP, MP], [BP, MP, VOCABULARY]], ids=len)
def test_a_model_of_pytorch_computes_on_eight_devices_what_pytorch_computes(schedule):
    step = ap.jit(torch_encoder(), MESH, schedule)
    [logits] = step(*arguments())
    np.testing.assert_allclose(logits, np.load(DATA / "encoder_logits.npy"), rtol=1e-4, atol=1e-4)


def test_megatron_of_a_pytorch_model_has_megatrons_sums_and_says_what_is_gathered():
    """Its attention merges [tokens, batch] into rows, of which the batch is no stretch."""
    low = ap.jit(torch_encoder(), MESH, [BP, MP]).lower()
    assert low.program.collectives()["all_reduce"] == 4
    assert {row.kind for row in low.metadata.gathered} == {"reshape"}


def test_a_search_finds_what_is_no_worse_than_by_hand():
    mesh = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
    found = [ap.AutomaticPartition(["batch", "model"], budget=ap.Budget(20))]
    step_s = [ap.jit(torch_encoder(), mesh, s).lower().estimate.step_s for s in (found, [BP], [BP, MP], [])]
    assert step_s[0] == min(step_s)
