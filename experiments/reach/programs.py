"""Programs as their authors write them, each with a schedule whose tiles meet an op that has no mapping for them.

accumulated gradients   x.reshape(8, -1, ...) and a scan over microbatches, batch parallel
recurrent weights       an LSTM over 64 steps, batch parallel
merged tokens           [B, S, D] -> [B*S, D] before a block of experts, the sequence tiled too
greedy decoding         argmax over a tiled vocabulary
fused projections       queries, keys and values of one matmul, and a gated block of one, split after it
short convolutions      a causal convolution of four tokens, the sequence tiled
U-Net in space          512 x 512 pixels, batch 1, tiled along both
whole vocabulary        GPT-2's 50,257 tokens, Megatron in the blocks
padded vocabulary       the same, the vocabulary tiled by a tactic that pads it
searched tokens         sampled decoding of 50,257 tokens, found by a search
searched padded tokens  the same, by a search that may pad
sampled decoding        one of the 40 likeliest tokens of a tiled vocabulary
routed tokens           places in the queues of experts, by a cumulative sum over tiled tokens
drawn masks             dropout by keys of `rbg`, on GPUs
next token              logits[:, :-1] against tokens[:, 1:], the sequence tiled too
inputs without the last tokens[:, :-1] go in, tokens[:, 1:] are to come out
pooled images           the beginning of a ResNet, its 3 x 3 max pool of stride 2, tiled in space
pooled tokens           a classifier that reads the first token, the sequence tiled
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 8}, device="tpu_v3")
GPUS = ap.Mesh({"batch": 4, "model": 8}, device="h100")
WIDTH, HIDDEN, VOCABULARY = 2048, 8192, 32000


@dataclass(frozen=True)
class Case:
    """A function, its abstract arguments, and the schedule; a function, where an older package could not make it."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    schedule: tuple[ap.Tactic, ...] | Callable[[], tuple[ap.Tactic, ...]]
    mesh: ap.Mesh = MESH

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


def _block(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def _loss(params: dict[str, Any], x: jax.Array, y: jax.Array) -> jax.Array:
    for layer in params["layers"]:
        x = _block(layer, x)
    return jnp.mean((x - y) ** 2)


def accumulated(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """One step of gradient descent, its gradients added up over eight microbatches."""

    def add(total: Any, rows: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, jax.grad(_loss)(params, *rows)), None

    split = [v.reshape(8, -1, *v.shape[1:]) for v in (x, y)]
    total = lax.scan(add, jax.tree.map(jnp.zeros_like, params), split)[0]
    return jax.tree.map(lambda w, g: w - 1e-3 / 8 * g, params, total)


def recurrent(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    """One step for an LSTM that reads x[batch, time, width]."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        def cell(state: Any, now: jax.Array) -> tuple[Any, None]:
            h, c = state
            i, f, g, o = jnp.split(now @ params["in"] + h @ params["on"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((x.shape[0], params["on"].shape[0]))
        return jnp.sum(lax.scan(cell, (zeros, zeros), x.swapaxes(0, 1))[0][0])

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def merged(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Tokens in one row, through two experts by a gate, and back."""
    rows = x.reshape(-1, x.shape[-1])
    gate = jax.nn.softmax(rows @ params["gate"])
    mixed = jnp.einsum("te,etd->td", gate, jax.nn.gelu(jnp.einsum("td,edf->etf", rows, params["up"])) @ params["down"])
    return x + mixed.reshape(x.shape)


def decoded(params: dict[str, jax.Array], state: jax.Array) -> jax.Array:
    """Sixteen tokens, each the likeliest after the last."""

    def next_token(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        token = jnp.argmax(state @ params["embedding"].T, axis=-1)
        return jnp.tanh(state @ params["mix"] + params["embedding"][token]), token

    return lax.scan(next_token, state, None, length=16)[1]


def _image_conv(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def fused(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """One step for attention and a gated block, x[batch, time, width], each with one matmul for what it projects."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        q, k, v = (t.reshape(*t.shape[:2], 16, -1) for t in jnp.split(x @ params["qkv"], 3, axis=-1))
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), axis=-1)
        h = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ params["out"]
        up, gate = jnp.split(h @ params["up"], 2, axis=-1)
        return jnp.mean((h + (up * jax.nn.silu(gate)) @ params["down"] - y) ** 2)

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def convolved(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """One step for blocks of a causal convolution over four tokens, each channel its own, and a gated product."""

    def block(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        before = jnp.pad(x @ layer["in"], ((0, 0), (3, 0), (0, 0)))
        mixed = lax.conv_general_dilated(
            before, layer["filter"], (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=before.shape[-1],
        )  # fmt: skip
        return x + jax.nn.silu(mixed) @ layer["out"]

    def loss(params: dict[str, Any]) -> jax.Array:
        h = x
        for layer in params["layers"]:
            h = block(layer, h)
        return jnp.mean((h - y) ** 2)

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def denoised(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """One step for a U-Net of four levels on images [batch, height, width, channels]."""

    def block(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        h = jax.nn.silu(_image_conv(x, layer["first"]))
        h = (h - h.mean((1, 2), keepdims=True)) * lax.rsqrt(h.var((1, 2), keepdims=True) + 1e-5)
        return jax.nn.silu(_image_conv(h, layer["second"]))

    def loss(params: dict[str, Any]) -> jax.Array:
        h, kept = x, []
        for layer in params["down"]:
            h = block(layer, h)
            kept.append(h)
            h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = block(params["middle"], h)
        for layer, skip in zip(params["up"], reversed(kept), strict=True):
            h = jnp.repeat(jnp.repeat(h, 2, axis=1), 2, axis=2)
            h = block(layer, jnp.concatenate([h, skip], axis=-1))
        return jnp.mean((_image_conv(h, params["last"]) - y) ** 2)

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


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


def predicted(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """One step for blocks between an embedding and its transpose."""

    def loss(params: dict[str, Any]) -> jax.Array:
        h = params["table"][x]
        for layer in params["layers"]:
            h = _block(layer, h)
        scores = jax.nn.log_softmax(h @ params["table"].T)
        return -jnp.mean(jnp.take_along_axis(scores, y[..., None], -1))

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def sampled(params: dict[str, jax.Array], state: jax.Array, noise: jax.Array) -> jax.Array:
    """Sixteen tokens, each one of the 40 likeliest after the last."""

    def next_token(state: jax.Array, drawn: jax.Array) -> tuple[jax.Array, jax.Array]:
        scores, tokens = lax.top_k(state @ params["embedding"].T, 40)
        token = jnp.take_along_axis(tokens, jnp.argmax(scores + drawn, -1)[:, None], -1)[:, 0]
        return jnp.tanh(state @ params["mix"] + params["embedding"][token]), token

    return lax.scan(next_token, state, noise)[1]


def routed(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Each token's expert and its place in that expert's queue, by which it is kept or not."""
    chosen = jax.nn.one_hot(jnp.argmax(x @ params["gate"], -1), 16, dtype=jnp.int32)
    place = jnp.sum(jnp.cumsum(chosen, 0) * chosen, -1)
    return jnp.where((place < 4096)[:, None], jax.nn.gelu(x @ params["up"]) @ params["down"], x)


def masked(params: dict[str, Any], x: jax.Array, y: jax.Array, key: jax.Array) -> dict[str, Any]:
    """One step with dropout behind each block."""

    def loss(params: dict[str, Any]) -> jax.Array:
        h = x
        for number, layer in enumerate(params["layers"]):
            own = jax.random.fold_in(jax.random.wrap_key_data(key, impl="rbg"), number)
            h = _block(layer, h) * jax.random.bernoulli(own, 0.9, h.shape)
        return jnp.mean((h - y) ** 2)

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def next_token(params: dict[str, Any], tokens: jax.Array) -> dict[str, Any]:
    """One step for the loss of the next token, cut off what the model says."""

    def loss(params: dict[str, Any]) -> jax.Array:
        scores = jax.nn.log_softmax(_scores(params, tokens)[:, :-1])
        return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], -1))

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def without_last(params: dict[str, Any], tokens: jax.Array) -> dict[str, Any]:
    """The same, cut off what the model is given."""

    def loss(params: dict[str, Any]) -> jax.Array:
        scores = jax.nn.log_softmax(_scores(params, tokens[:, :-1]))
        return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], -1))

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def _scores(params: dict[str, Any], tokens: jax.Array) -> jax.Array:
    h = params["table"][tokens]
    for layer in params["layers"]:
        h = _block(layer, h)
    return h @ params["head"]


def pooled_images(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    """One step for two convolutions with a max pool between them, as a ResNet begins."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        h = jax.nn.relu(_image_conv(x, params["stem"]))
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.mean(_image_conv(h, params["next"]) ** 2)

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def pooled_tokens(params: dict[str, Any], x: jax.Array) -> dict[str, Any]:
    """One step for blocks and a classifier of the first token, x[batch, time, width]."""

    def loss(params: dict[str, Any]) -> jax.Array:
        h = x
        for layer in params["layers"]:
            h = _block(layer, h)
        return jnp.mean((h[:, 0] @ params["head"]) ** 2)

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


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
        ({"layers": [LAYER] * 4}, _f32(4096, WIDTH), _f32(4096, WIDTH), jax.ShapeDtypeStruct((4,), jnp.uint32)),
        (BP, ap.ManualPartition({"params": {"*up": 1}}, axis="model", name="MP")),
        GPUS,
    ),
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
