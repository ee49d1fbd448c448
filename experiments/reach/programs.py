"""Programs as their authors write them; under the schedules of `cases.py` their tiles meet a reshape, a loop, a window.

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
hand-written loss       logp[jnp.arange(B), y], batch parallel, at 50,304 tokens
BERT with dropout       two layers of it, with keys of `rbg`, Megatron
next token              logits[:, :-1] against tokens[:, 1:], the sequence tiled too
inputs without the last tokens[:, :-1] go in, tokens[:, 1:] are to come out
pooled images           the beginning of a ResNet, its 3 x 3 max pool of stride 2, tiled in space
pooled tokens           a classifier that reads the first token, the sequence tiled
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec


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


def predicted(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """One step for blocks between an embedding and its transpose."""

    def loss(params: dict[str, Any]) -> jax.Array:
        h = params["table"][x]
        for layer in params["layers"]:
            h = _block(layer, h)
        scores = jax.nn.log_softmax(h @ params["table"].T)
        return -jnp.mean(jnp.take_along_axis(scores, y[..., None], -1))

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def predicted_in_tiles(mesh: jax.sharding.Mesh) -> Any:
    """`predicted` for XLA's partitioner, which pads no vocabulary itself: padded and constrained by its author."""

    def step(params: dict[str, Any], x: jax.Array, y: jax.Array) -> dict[str, Any]:
        tokens = params["table"].shape[0]

        def loss(params: dict[str, Any]) -> jax.Array:
            h = params["table"][x]
            for layer in params["layers"]:
                h = _block(layer, h)
            tiled = jnp.pad(params["table"], ((0, -tokens % mesh.shape["model"]), (0, 0)))
            tiled = lax.with_sharding_constraint(tiled, NamedSharding(mesh, PartitionSpec("model")))
            scores = h @ tiled.T
            scores = jax.nn.log_softmax(jnp.where(jnp.arange(scores.shape[-1]) < tokens, scores, -jnp.inf))
            return -jnp.mean(jnp.take_along_axis(scores, y[..., None], -1))

        return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))

    return step


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


def hand_written(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """One step for a classifier whose author picks the labels' scores by hand, x[batch, width]."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        scores = jax.nn.log_softmax(_block(params, x) @ params["head"])
        return -jnp.mean(scores[jnp.arange(x.shape[0]), y])

    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, jax.grad(loss)(params))


def bert(params: dict[str, Any], x: jax.Array, y: jax.Array, key: jax.Array) -> dict[str, Any]:
    """One step for the encoder of BERT, x[batch, time, width], with dropout in attention and behind each block."""

    def norm(x: jax.Array) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    def loss(params: dict[str, Any]) -> jax.Array:
        keys = iter(jax.random.split(jax.random.wrap_key_data(key, impl="rbg"), 3 * len(params["layers"])))

        def dropped(x: jax.Array) -> jax.Array:
            return jnp.where(jax.random.bernoulli(next(keys), 0.9, x.shape), x / 0.9, 0)

        h = x
        for layer in params["layers"]:
            q, k, v = (jnp.einsum("btd,dhe->bthe", h, layer[name]) for name in ("query", "key", "value"))
            weights = dropped(jax.nn.softmax(jnp.einsum("bqhe,bkhe->bhqk", q, k) / 8))
            mixed = jnp.einsum("bhqk,bkhe,hed->bqd", weights, v, layer["out"])
            h = norm(h + dropped(mixed))
            h = norm(h + dropped(jax.nn.gelu(h @ layer["up"]) @ layer["down"]))
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
