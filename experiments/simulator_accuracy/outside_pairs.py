"""Pairs of programs from outside: what people write, and where search goes.

    BP, BP+FSDP, BP+MP     on programs of `MODELS`
    DP(batch,model)        on those of `OTHER_KINDS`: data parallelism over both axes
    found, on the way      `states.py`

Rules of the simulator were chosen with some of the programs in view (`tuned`); the others only check them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import autopart as ap
from experiments.models.tactics import BP
from experiments.simulator_accuracy.pairs import V3, V5E
from experiments.simulator_accuracy.states import Kept, kept_states, outside

MODELS = {
    "vit": (True, V3),
    "mixer": (True, V3),
    "gpt": (True, V3),
    "towers": (True, V5E),
    "bert": (False, V3),
    "conformer": (True, V3),
    "moe": (True, V3),
    "lstm": (False, V3),
    "resnet": (True, V5E),
    "recommender": (True, V5E),
    "convnext": (True, V5E),
    "wavenet": (False, V5E),
    "vit bf16": (True, V5E),
    "llama bf16": (False, V5E),
}
"""Whether rules were chosen on it, and where it is compiled for."""

OTHER_KINDS = {
    "world_model": (True, V5E),
    "radiance_field": (True, V5E),
    "dino": (True, V5E),
    "lora": (True, V5E),
    "ctc": (True, V5E),
    "evoformer": (True, V5E),
    "rwkv": (True, V5E),
    "sinkhorn": (True, V5E),
    "vqvae": (True, V5E),
    "seq2seq": (True, V5E),
    "set_transformer": (True, V5E),
    "retrieval": (True, V3),
    "flow": (False, V3),
    "tab_transformer": (False, V5E),
    "state_space": (True, V5E),
    "ppo": (True, V5E),
    "perceiver": (False, V5E),
    "codec": (False, V5E),
    "graph_attention": (False, V5E),
    "neural_ode": (False, V5E),
    "hypernetwork": (False, V5E),
    "retnet": (False, V5E),
    "point_net": (False, V5E),
    "diffuser": (False, V5E),
    "efficient_net": (False, V5E),
    "hyena": (False, V5E),
    "meta_learning": (False, V5E),
    "molecules": (False, V5E),
    "muzero": (False, V5E),
    "physics": (False, V5E),
    "transducer": (False, V5E),
    "gan": (False, V5E),
    "neox": (False, V5E),
    "whisper": (False, V3),
    "mobile_net": (False, V3),
    "resnext": (False, V3),
    "masked_autoencoder": (False, V5E),
    "soft_actor_critic": (False, V3),
    "alpha_zero": (False, V5E),
    "dense_net": (True, V5E),
    "performer": (False, V5E),
    "fourier_operator": (False, V5E),
    "n_beats": (False, V3),
    "word_lstm": (False, V5E),
    "batch_norm_resnet": (False, V5E),
    "transposed_unet": (False, V5E),
    "generator": (True, V3),
    "wav2vec": (False, V3),
    "deeplab": (True, V5E),
    "super_resolution": (True, V5E),
    "vae": (False, V3),
    "yolo": (False, V3),
    "diffusion_transformer": (False, V5E),
    "t5": (False, V3),
    "qwen": (False, V5E),
    "swin": (True, V3),
    "selective_scan": (False, V3),
    "conv_lstm": (True, V5E),
    "dqn": (True, V3),
    "roberta": (False, V3),
    "behaviour_sequences": (True, V3),
    "segformer": (True, V3),
    "hash_grids": (False, V5E),
    "gpt_dropout": (False, V5E),
    "wide_resnet": (True, V3),
    "volume_unet": (False, V5E),
    "soft_moe": (False, V3),
    "microbatches": (False, V5E),
    "pixel_cnn": (True, V3),
    "latent_unet": (False, V5E),
    "transformer_xl": (False, V3),
    "sliding_window": (False, V5E),
    "griffin": (True, V5E),
    "capsules": (True, V3),
    "muon_gpt": (False, V5E),
    "moco": (False, V3),
    "weather_mesh": (False, V5E),
    "crf_tagger": (False, V3),
    "energy_model": (False, V5E),
    "hifi_gan": (True, V3),
    "sam_mixer": (False, V5E),
    "deep_sets_ranker": (False, V3),
}
"""The same for models of other kinds. Flow to PPO were first looked at when all rules stood but one: slices of what is
stacked, to which the state-space model led. The sixteen from the Perceiver to the GAN were written when all rules
stood, and so were the 36 after them, twelve, eight and sixteen at a time, and the fourteen from the PixelCNN on; rules
followed from those that are tuned."""

DP = ap.Parallelism("DP(batch,model)")

FSDP = ap.ManualPartition(
    {"params": ap.FIRST_DIVISIBLE_DIM, "opt_state": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="FSDP"
)


@dataclass(frozen=True)
class OutsidePair:
    """A program from outside, a schedule or a kept state, and where it is compiled for."""

    model: str
    schedule: tuple[ap.Tactic, ...]
    on: tuple[str, ap.Mesh]
    tuned: bool

    @property
    def name(self) -> str:
        return f"{self.model} {'+'.join(t.name for t in self.schedule)} {self.on[0]}"

    @property
    def searched(self) -> bool:
        """True for a state of a search, False for what a person wrote."""
        return isinstance(self.schedule[0], Kept)

    def lower(self) -> ap.Lowered:
        program = outside(self.model)
        return ap.jit(program.step, self.on[1], list(self.schedule), donate_argnums=(0, 1)).lower(*program.args)


def outside_pairs() -> Iterator[OutsidePair]:
    """All of them, a program after the other."""
    for model, (tuned, on) in MODELS.items():
        megatron = ap.ManualPartition({"params": outside(model).megatron}, axis="model", name="MP")
        for schedule in ((BP,), (BP, FSDP), (BP, megatron), *((state,) for state in kept_states(model))):
            yield OutsidePair(model, schedule, on, tuned)
    for model, (tuned, on) in OTHER_KINDS.items():
        for schedule in ((DP,), *((state,) for state in kept_states(model))):
            yield OutsidePair(model, schedule, on, tuned)
