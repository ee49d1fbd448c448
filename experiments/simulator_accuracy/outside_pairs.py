"""Pairs of programs from outside: what people write, and where search goes.

BP, BP+FSDP, BP+MP     on programs of `MODELS`
DP(batch,model)        on those of `OTHER_KINDS`: data parallelism over both axes
found, on the way      `states.py`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import autopart as ap
from experiments.models.tactics import BP
from experiments.simulator_accuracy.decode_pairs import DECODE_PAIRS, DecodePair
from experiments.simulator_accuracy.pairs import PAIRS, V3, V5E, Pair
from experiments.simulator_accuracy.states import KEPT, outside

MODELS = {
    "vit": V3,
    "mixer": V3,
    "gpt": V3,
    "towers": V5E,
    "bert": V3,
    "conformer": V3,
    "moe": V3,
    "lstm": V3,
    "resnet": V5E,
    "recommender": V5E,
    "convnext": V5E,
    "wavenet": V5E,
    "vit bf16": V5E,
    "llama bf16": V5E,
}
"""Where each is compiled for."""

OTHER_KINDS = {
    "world_model": V5E,
    "radiance_field": V5E,
    "dino": V5E,
    "lora": V5E,
    "ctc": V5E,
    "evoformer": V5E,
    "rwkv": V5E,
    "sinkhorn": V5E,
    "vqvae": V5E,
    "seq2seq": V5E,
    "set_transformer": V5E,
    "retrieval": V3,
    "flow": V3,
    "tab_transformer": V5E,
    "state_space": V5E,
    "ppo": V5E,
    "perceiver": V5E,
    "codec": V5E,
    "graph_attention": V5E,
    "neural_ode": V5E,
    "hypernetwork": V5E,
    "retnet": V5E,
    "point_net": V5E,
    "diffuser": V5E,
    "efficient_net": V5E,
    "hyena": V5E,
    "meta_learning": V5E,
    "molecules": V5E,
    "muzero": V5E,
    "physics": V5E,
    "transducer": V5E,
    "gan": V5E,
    "neox": V5E,
    "whisper": V3,
    "mobile_net": V3,
    "resnext": V3,
    "masked_autoencoder": V5E,
    "soft_actor_critic": V3,
    "alpha_zero": V5E,
    "dense_net": V5E,
    "performer": V5E,
    "fourier_operator": V5E,
    "n_beats": V3,
    "word_lstm": V5E,
    "batch_norm_resnet": V5E,
    "transposed_unet": V5E,
    "generator": V3,
    "wav2vec": V3,
    "deeplab": V5E,
    "super_resolution": V5E,
    "vae": V3,
    "yolo": V3,
    "diffusion_transformer": V5E,
    "t5": V3,
    "qwen": V5E,
    "swin": V3,
    "selective_scan": V3,
    "conv_lstm": V5E,
    "dqn": V3,
    "roberta": V3,
    "behaviour_sequences": V3,
    "segformer": V3,
    "hash_grids": V5E,
    "gpt_dropout": V5E,
    "wide_resnet": V3,
    "volume_unet": V5E,
    "soft_moe": V3,
    "microbatches": V5E,
    "pixel_cnn": V3,
    "latent_unet": V5E,
    "transformer_xl": V3,
    "sliding_window": V5E,
    "griffin": V5E,
    "capsules": V3,
    "muon_gpt": V5E,
    "moco": V3,
    "weather_mesh": V5E,
    "crf_tagger": V3,
    "energy_model": V5E,
    "hifi_gan": V3,
    "sam_mixer": V5E,
    "deep_sets_ranker": V3,
}
"""The same for models of other kinds."""

DP = ap.Parallelism("DP(batch,model)")

FSDP = ap.ManualPartition(
    {"params": ap.FIRST_DIVISIBLE_DIM, "opt_state": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="FSDP"
)


@dataclass(frozen=True)
class OutsidePair:
    """A program from outside, a schedule or the plan of a search, and where it is compiled for."""

    model: str
    schedule: Sequence[ap.Tactic]
    on: tuple[str, ap.Mesh]
    search: str = ""
    """Which search found the plan; empty for what a person wrote."""

    @property
    def name(self) -> str:
        return f"{self.model} {self.search or '+'.join(t.name for t in self.schedule)} {self.on[0]}"

    def lower(self) -> ap.Lowered:
        program = outside(self.model)
        return ap.jit(program.step, self.on[1], self.schedule, donate_argnums=(0, 1)).lower(*program.args)


def all_pairs() -> Iterator[Pair | DecodePair | OutsidePair]:
    """Those of the papers' models, decode steps, and those from outside."""
    yield from (*PAIRS, *DECODE_PAIRS)
    yield from outside_pairs()


def outside_pairs() -> Iterator[OutsidePair]:
    """All of them, a program after the other."""
    for model, on in (MODELS | OTHER_KINDS).items():
        for schedule in _written(model):
            yield OutsidePair(model, schedule, on)
        for search, plan in KEPT.plans(model).items():
            yield OutsidePair(model, plan, on, search)


def _written(model: str) -> Iterator[list[ap.Tactic]]:
    """What people write."""
    if model not in MODELS:
        yield [DP]
    else:
        yield from ([BP], [BP, FSDP])
        yield [BP, ap.ManualPartition({"params": outside(model).megatron}, axis="model", name="MP")]
