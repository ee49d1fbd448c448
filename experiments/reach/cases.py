"""The programs of `programs.py`, their sizes and the schedules under which they are asked about.

CASES      as the simulator is asked, and with smaller meshes XLA on host devices
COMPILED   with as few layers as show what happens, as the TPU compiler is asked
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import autopart as ap
from experiments.reach.programs import (
    accumulated,
    bert,
    convolved,
    decoded,
    denoised,
    fused,
    hand_written,
    masked,
    merged,
    next_token,
    pooled_images,
    pooled_tokens,
    predicted,
    predicted_in_tiles,
    recurrent,
    routed,
    sampled,
    without_last,
)

MESH = ap.Mesh({"batch": 4, "model": 8}, device="tpu_v3")
GPUS = ap.Mesh({"batch": 4, "model": 8}, device="h100")
WIDTH, HIDDEN, VOCABULARY = 2048, 8192, 32000


@dataclass(frozen=True)
class Case:
    """A function, its abstract arguments, and the schedule; a function, where an older package could not make it.

    by_partitioner  of jax's mesh: the function as XLA's partitioner is given it, where that has to be told more
    """

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    schedule: tuple[ap.Tactic, ...] | Callable[[], tuple[ap.Tactic, ...]]
    mesh: ap.Mesh = MESH
    by_partitioner: Callable[[jax.sharding.Mesh], Callable[..., Any]] | None = None

    def for_partitioner(self, mesh: jax.sharding.Mesh) -> Callable[..., Any]:
        """The function for XLA's partitioner."""
        return self.fun if self.by_partitioner is None else self.by_partitioner(mesh)

    @property
    def tactics(self) -> list[ap.Tactic]:
        """The schedule."""
        return list(self.schedule() if callable(self.schedule) else self.schedule)

    @property
    def is_searched(self) -> bool:
        """True if a search decides, by estimates for the case's own mesh."""
        return any(isinstance(tactic, ap.AutomaticPartition) for tactic in self.tactics)


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _levels(channels: int, image: int) -> dict[str, Any]:
    """Parameters of `denoised` for images of `image` channels; three times as wide halfway."""

    def layer(before: int, after: int) -> dict[str, Any]:
        return {"first": _f32(3, 3, before, after), "second": _f32(3, 3, after, after)}

    wide = [channels, 2 * channels, 4 * channels]
    return {
        "down": [layer(a, b) for a, b in zip([image, *wide[:-1]], wide, strict=True)],
        "middle": layer(wide[-1], 2 * wide[-1]),
        "up": [layer(a + b, b) for a, b in ((8 * channels, wide[2]), (wide[2], wide[1]), (wide[1], wide[0]))],
        "last": _f32(3, 3, channels, image),
    }


LAYER = {"up": _f32(WIDTH, HIDDEN), "down": _f32(HIDDEN, WIDTH)}
BP = ap.ManualPartition({"x": 0, "y": 0}, axis="batch", name="BP")
TOKENS = jax.ShapeDtypeStruct((32, 1024), jnp.int32)
GPT2 = ({"table": _f32(50257, 768), "layers": [{"up": _f32(768, 3072), "down": _f32(3072, 768)}] * 12}, TOKENS, TOKENS)
TOKENS_OF_GPT2 = ({"embedding": _f32(50257, WIDTH), "mix": _f32(WIDTH, WIDTH)}, _f32(64, WIDTH), _f32(16, 64, 40))
MEGATRON = (BP, ap.ManualPartition({"params": {"*up": 1}}, axis="model", name="MP"))
LANGUAGE = (
    {
        "table": _f32(VOCABULARY, 1024),
        "head": _f32(1024, VOCABULARY),
        "layers": [{"up": _f32(1024, 4096), "down": _f32(4096, 1024)}] * 2,
    },
    jax.ShapeDtypeStruct((16, 2048), jnp.int32),
)
SEQUENCES = (
    ap.ManualPartition({"tokens": 0}, axis="batch", name="BP"),
    ap.ManualPartition({"tokens": 1}, axis="model", name="SP"),
)
KEY = jax.ShapeDtypeStruct((4,), jnp.uint32)
ENCODER = {name: _f32(1024, 16, 64) for name in ("query", "key", "value")} | {
    "out": _f32(16, 64, 1024), "up": _f32(1024, 4096), "down": _f32(4096, 1024)
}  # fmt: skip
BERT = ({"layers": [ENCODER] * 2}, *[_f32(32, 512, 1024)] * 2, KEY)
HEADS = ap.ManualPartition({"params": {"*/query": 1, "*/up": 1}}, axis="model", name="MP")
CASES = (
    Case(
        "accumulated gradients",
        accumulated,
        ({"layers": [LAYER] * 4}, _f32(4096, WIDTH), _f32(4096, WIDTH)),
        (BP, ap.ManualPartition({"params": {"*up": 1}}, axis="model", name="MP")),
    ),
    Case(
        "recurrent weights",
        recurrent,
        ({"in": _f32(WIDTH, 4 * WIDTH), "on": _f32(WIDTH, 4 * WIDTH)}, _f32(512, 64, WIDTH)),
        (ap.ManualPartition({"x": 0}, axis="batch", name="BP"),),
    ),
    Case(
        "merged tokens",
        merged,
        ({"gate": _f32(WIDTH, 2), "up": _f32(2, WIDTH, HIDDEN), "down": _f32(2, HIDDEN, WIDTH)}, _f32(32, 1024, WIDTH)),
        (
            ap.ManualPartition({"x": 0}, axis="batch", name="BP"),
            ap.ManualPartition({"x": 1}, axis="model", name="SP"),
        ),
    ),
    Case(
        "greedy decoding",
        decoded,
        ({"embedding": _f32(VOCABULARY, WIDTH), "mix": _f32(WIDTH, WIDTH)}, _f32(64, WIDTH)),
        (
            ap.ManualPartition({"state": 0}, axis="batch", name="BP"),
            ap.ManualPartition({"params": {"embedding": 0}}, axis="model", name="EMB"),
        ),
    ),
    Case(
        "fused projections",
        fused,
        (
            {
                "qkv": _f32(WIDTH, 3 * WIDTH),
                "out": _f32(WIDTH, WIDTH),
                "up": _f32(WIDTH, 2 * HIDDEN),
                "down": _f32(HIDDEN, WIDTH),
            },
            *[_f32(16, 1024, WIDTH)] * 2,
        ),
        (BP, ap.ManualPartition({"params": {"qkv": 1, "up": 1}}, axis="model", name="MP")),
    ),
    Case(
        "short convolutions",
        convolved,
        (
            {"layers": [{"in": _f32(512, 1024), "filter": _f32(4, 1, 1024), "out": _f32(1024, 512)}] * 4},
            *[_f32(4, 16384, 512)] * 2,
        ),
        (BP, ap.ManualPartition({"x": 1, "y": 1}, axis="model", name="SP")),
    ),
    Case(
        "U-Net in space",
        denoised,
        (_levels(64, 4), *[_f32(1, 512, 512, 4)] * 2),
        (
            ap.ManualPartition({"x": 1, "y": 1}, axis="batch", name="ROWS"),
            ap.ManualPartition({"x": 2, "y": 2}, axis="model", name="COLUMNS"),
        ),
    ),
    Case("whole vocabulary", predicted, GPT2, MEGATRON),
    Case(
        "padded vocabulary",
        predicted,
        GPT2,
        lambda: (
            *MEGATRON,
            ap.ManualPartition({"params": {"table": 0}}, axis="model", uneven="pad", name="VOCABULARY"),
        ),
        by_partitioner=predicted_in_tiles,
    ),
    Case("searched tokens", sampled, TOKENS_OF_GPT2, (ap.AutomaticPartition(["batch", "model"]),)),
    Case(
        "searched padded tokens",
        sampled,
        TOKENS_OF_GPT2,
        lambda: (ap.AutomaticPartition(["batch", "model"], uneven="pad"),),
    ),
    Case(
        "sampled decoding",
        sampled,
        ({"embedding": _f32(VOCABULARY, WIDTH), "mix": _f32(WIDTH, WIDTH)}, _f32(64, WIDTH), _f32(16, 64, 40)),
        (
            ap.ManualPartition({"state": 0}, axis="batch", name="BP"),
            ap.ManualPartition({"params": {"embedding": 0}}, axis="model", name="EMB"),
        ),
    ),
    Case(
        "routed tokens",
        routed,
        ({"gate": _f32(512, 16), "up": _f32(512, 2048), "down": _f32(2048, 512)}, _f32(65536, 512)),
        (ap.ManualPartition({"x": 0}, axis=("batch", "model"), name="BP"),),
    ),
    Case(
        "drawn masks",
        masked,
        ({"layers": [LAYER] * 4}, _f32(4096, WIDTH), _f32(4096, WIDTH), KEY),
        (BP, ap.ManualPartition({"params": {"*up": 1}}, axis="model", name="MP")),
        GPUS,
    ),
    Case(
        "hand-written loss",
        hand_written,
        (
            {**LAYER, "head": _f32(WIDTH, 50304)},
            _f32(8192, WIDTH),
            jax.ShapeDtypeStruct((8192,), jnp.int32),
        ),
        (BP, ap.ManualPartition({"params": {"*up": 1, "head": 1}}, axis="model", name="MP")),
    ),
    Case("BERT with dropout", bert, BERT, (BP, HEADS), GPUS),
    Case("next token", next_token, LANGUAGE, SEQUENCES),
    Case("inputs without the last", without_last, LANGUAGE, SEQUENCES),
    Case(
        "pooled images",
        pooled_images,
        ({"stem": _f32(7, 7, 3, 64), "next": _f32(3, 3, 64, 64)}, _f32(4, 1024, 1024, 3)),
        (
            ap.ManualPartition({"x": 1}, axis="batch", name="ROWS"),
            ap.ManualPartition({"x": 2}, axis="model", name="COLUMNS"),
        ),
    ),
    Case(
        "pooled tokens",
        pooled_tokens,
        ({"layers": [LAYER] * 2, "head": _f32(WIDTH, 1000)}, _f32(32, 1024, WIDTH)),
        (
            ap.ManualPartition({"x": 0}, axis="batch", name="BP"),
            ap.ManualPartition({"x": 1}, axis="model", name="SP"),
        ),
    ),
)

TOPOLOGY = "v3:4x4"
"""What the TPU compiler compiles for: 32 cores, as many as `MESH` has."""


def _shallow(case: Case) -> Case:
    """With at most two layers, so that the compiler is done in a minute or two; all for TPUs."""

    def short(leaf: Any) -> Any:
        return {**leaf, "layers": leaf["layers"][:2]} if isinstance(leaf, dict) and "layers" in leaf else leaf

    return replace(case, args=tuple(short(arg) for arg in case.args), mesh=MESH)


ASKED = (
    "whole vocabulary", "padded vocabulary", "U-Net in space", "recurrent weights", "accumulated gradients",
    "hand-written loss", "BERT with dropout", "merged tokens",
)  # fmt: skip
COMPILED = tuple(_shallow(case) for case in CASES if case.name in ASKED)
