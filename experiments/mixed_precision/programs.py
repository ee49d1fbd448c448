"""Models in bf16 under what people write, and which of them rules were chosen on.

    DP        the batch over all devices
    FSDP+TP   the batch and parameters over "batch", heads and hidden features over "model"

    mcts 100  ...  what searches found (`states.py`), of some of them

Which half a model is in was decided before any of them was compiled; BERT, Swin and ResNet were looked at later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

import jax

import autopart as ap
from experiments.mixed_precision.models import convs, decoders, encoders, images
from experiments.mixed_precision.states import KEPT
from experiments.models.outside.training import Training
from experiments.models.tactics import BP
from experiments.simulator_accuracy.outside_pairs import FSDP

TOPOLOGY = "v5e:2x4"
MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e")

TUNED: dict[str, Callable[[], Training]] = {
    "gpt2": decoders.gpt2,
    "t5": decoders.t5,
    "mixture": decoders.mixture,
    "whisper": encoders.whisper,
    "vit-s": images.vit_s,
    "mixer": images.mixer,
    "convnext": convs.convnext,
    "bert": encoders.bert,
    "swin": images.swin,
    "resnet": convs.resnet,
}

HELD_OUT: dict[str, Callable[[], Training]] = {
    "llama": decoders.llama,
    "lstm": encoders.lstm,
    "vit-b": images.vit_b,
    "clip": images.clip,
    "dit": images.dit,
}

HEADS_FIRST = ("bert",)
"""Models with heads as a dim of their weights, 12 of them: by 4 and then 2 they cannot be divided."""

BP_TOO = ap.ManualPartition({"batch": 0}, axis="model", name="DP")


@dataclass(frozen=True)
class MixedPair:
    """A model in bf16 and a schedule, or a state that a search found."""

    model: str
    schedule: str
    build: Callable[[], Training]
    tuned: bool
    plan: ap.Plan | None = None

    @property
    def name(self) -> str:
        return f"{self.model} {self.schedule}"

    def lower(self) -> ap.Lowered:
        program = self.build()
        megatron = ap.ManualPartition({"params": _found(program)}, axis="model", name="TP")
        sharded = [BP, megatron, FSDP] if self.model in HEADS_FIRST else [BP, FSDP, megatron]
        tactics = self.plan if self.plan is not None else {"DP": [BP, BP_TOO], "FSDP+TP": sharded}[self.schedule]
        return ap.jit(program.step, MESH, tactics, donate_argnums=(0, 1)).lower(*program.args)


def pairs() -> Iterator[MixedPair]:
    """All of them, those tuned on first."""
    for models, tuned in ((TUNED, True), (HELD_OUT, False)):
        for model, build in models.items():
            for schedule in ("DP", "FSDP+TP"):
                yield MixedPair(model, schedule, build, tuned)
            for search, plan in KEPT.plans(model).items():
                yield MixedPair(model, search, build, tuned, plan)


def _found(program: Training) -> dict[str, int]:
    """Of the parameters that are tiled as Megatron does, those that the model has."""
    paths = [
        jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(program.args[0])
    ]
    return {glob: dim for glob, dim in program.megatron.items() if any(fnmatchcase(path, glob) for path in paths)}
