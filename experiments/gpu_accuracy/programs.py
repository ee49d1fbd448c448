"""Training steps that were written after the last rule for GPUs, of kinds that people train on them.

decoder_checkpointed    bf16, grouped queries, a gated MLP, norms on both sides, a scan of recomputed layers
contrastive             bf16, a tower of patches and one of tokens, logits over the whole batch
segmenter               convolutions down and up with what is kept between, group norms, in f32
gated_recurrence        a scan over time of gated recurrent layers, and logits of every step
reader                  bf16, queries of one sequence over another, learned positions, layer norms
routed                  bf16, one expert for each token by a one-hot product, squared relu
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training

BF16 = jnp.bfloat16
Arrays = dict[str, Any]


def _normal(key: jax.Array, *shape: int) -> jax.Array:
    return jax.random.normal(key, shape) * shape[-2] ** -0.5


def _drawn(key: jax.Array, **shapes: tuple[int, ...]) -> Arrays:
    return {
        name: _normal(k, *shape)
        for (name, shape), k in zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True)
    }


def _rms(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def _attend(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    """q [b, t, h, d]; k, v [b, s, g, d], h a multiple of g."""
    b, t, h, d = q.shape
    q = q.reshape(b, t, k.shape[2], -1, d)
    scores = jnp.einsum("btghd,bsgd->bghts", q, k, preferred_element_type=jnp.float32) * d**-0.5
    if causal:
        scores = jnp.where(jnp.tri(t, k.shape[1], dtype=bool), scores, -1e30)
    return jnp.einsum("bghts,bsgd->btghd", jax.nn.softmax(scores).astype(v.dtype), v).reshape(b, t, h * d)


def decoder_checkpointed(
    layers: int = 6, batch: int = 32, tokens: int = 1024, width: int = 1024, heads: int = 16, groups: int = 4,
    hidden: int = 4096, words: int = 16384,
) -> Training:  # fmt: skip
    size = width // heads

    def layer(x: jax.Array, w: Arrays) -> tuple[jax.Array, None]:
        w = jax.tree.map(lambda p: p.astype(BF16), w)
        h = _rms(x, w["n1"][0])
        q, k, v = ((h @ w[n]).reshape(*h.shape[:2], -1, size) for n in "qkv")
        x = x + _rms(_attend(q, k, v, True) @ w["o"], w["n2"][0])
        h = _rms(x, w["n3"][0])
        return x + _rms((jax.nn.gelu(h @ w["gate"]) * (h @ w["up"])) @ w["down"], w["n4"][0]), None

    def loss(params: Arrays, batch: Arrays) -> jax.Array:
        x = params["table"].astype(BF16)[batch["tokens"]] * width**0.5
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, params["layers"])
        logits = (x @ params["table"].astype(BF16).T).astype(jnp.float32)
        return cross_entropy(30 * jnp.tanh(logits / 30), batch["next"])

    def init(key: jax.Array) -> Arrays:
        shapes = dict(q=(width, width), k=(width, groups * size), v=(width, groups * size), o=(width, width),
                      gate=(width, hidden), up=(width, hidden), down=(hidden, width),
                      n1=(1, width), n2=(1, width), n3=(1, width), n4=(1, width))  # fmt: skip
        stacked = {name: (layers, *shape) for name, shape in shapes.items()}
        return {"table": _normal(key, words, width), "layers": _drawn(key, **stacked)}

    dims = {"layers/[qkv]": 2, "layers/gate": 2, "layers/up": 2, "layers/o": 1, "layers/down": 1}
    return training(loss, optax.adamw(1e-3), init, {"tokens": i32(batch, tokens), "next": i32(batch, tokens)}, dims)


def contrastive(
    batch: int = 512, patches: int = 196, tokens: int = 64, width: int = 512, heads: int = 8, layers: int = 4,
    words: int = 8192, pixels: int = 768,
) -> Training:  # fmt: skip
    def block(x: jax.Array, w: Arrays) -> jax.Array:
        h = _rms(x, w["n1"][0])
        q, k, v = jnp.split((h @ w["qkv"].astype(BF16)).reshape(*h.shape[:2], -1, width // heads), 3, 2)
        x = x + _attend(q, k, v, False) @ w["o"].astype(BF16)
        h = _rms(x, w["n2"][0])
        return x + jax.nn.gelu(h @ w["up"].astype(BF16)) @ w["down"].astype(BF16)

    def tower(blocks: list[Arrays], x: jax.Array) -> jax.Array:
        for w in blocks:
            x = block(x, w)
        x = x.mean(1).astype(jnp.float32)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def loss(params: Arrays, batch: Arrays) -> jax.Array:
        images = tower(params["images"], (batch["patches"].astype(BF16) @ params["patch"].astype(BF16)))
        texts = tower(params["texts"], params["table"].astype(BF16)[batch["tokens"]])
        logits = images @ texts.T * 20
        to = jnp.arange(logits.shape[0])
        return cross_entropy(logits, to) + cross_entropy(logits.T, to)

    def init(key: jax.Array) -> Arrays:
        shapes = dict(qkv=(width, 3 * width), o=(width, width), up=(width, 4 * width), down=(4 * width, width),
                      n1=(1, width), n2=(1, width))  # fmt: skip
        towers = {t: [_drawn(k, **shapes) for k in jax.random.split(key, layers)] for t in ("images", "texts")}
        return {**towers, **_drawn(key, patch=(pixels, width), table=(words, width))}

    return training(
        loss, optax.adam(1e-3), init, {"patches": f32(batch, patches, pixels), "tokens": i32(batch, tokens)},
        {"*/up": 1, "*/down": 0},
    )  # fmt: skip


def segmenter(batch: int = 64, side: int = 128, features: int = 32, depth: int = 4, classes: int = 8) -> Training:
    def convolved(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normed(x: jax.Array) -> jax.Array:
        groups = x.reshape(*x.shape[:3], 8, -1)
        mean, spread = groups.mean((1, 2, 4), keepdims=True), groups.var((1, 2, 4), keepdims=True)
        return jax.nn.silu((groups - mean) * jax.lax.rsqrt(spread + 1e-5)).reshape(x.shape)

    def loss(params: Arrays, batch: Arrays) -> jax.Array:
        x, kept = batch["image"], []
        for down in params["down"]:
            x = normed(convolved(x, down))
            kept.append(x)
            x = x[:, ::2, ::2]
        for up, beside in zip(params["up"], reversed(kept), strict=True):
            x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
            x = normed(convolved(jnp.concatenate([x, beside], -1), up))
        return cross_entropy(convolved(x, params["head"]), batch["mask"])

    def init(key: jax.Array) -> Arrays:
        sizes = [3, *(features * 2**n for n in range(depth))]
        down = [_normal(key, 3, 3, a, b) for a, b in itertools.pairwise(sizes)]
        ups = [(sizes[-1], sizes[-1]), *itertools.pairwise(sizes[:0:-1])]
        up = [_normal(key, 3, 3, a + b, b) for a, b in ups]
        return {"down": down, "up": up, "head": _normal(key, 1, 1, features, classes)}

    return training(
        loss, optax.adam(1e-3), init, {"image": f32(batch, side, side, 3), "mask": i32(batch, side, side)}
    )  # fmt: skip


def gated_recurrence(
    batch: int = 256, steps: int = 96, width: int = 1024, words: int = 4096, layers: int = 2
) -> Training:
    def cell(w: Arrays) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
        def one(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            z, r = jnp.split(jax.nn.sigmoid(x[:, : 2 * width] + h @ w["hidden"]), 2, -1)
            new = (1 - z) * h + z * jnp.tanh(x[:, 2 * width :] + (r * h) @ w["candidate"])
            return new, new

        return one

    def loss(params: Arrays, batch: Arrays) -> jax.Array:
        x = params["table"][batch["tokens"]].swapaxes(0, 1)
        for w in params["layers"]:
            _, x = jax.lax.scan(cell(w), jnp.zeros((x.shape[1], width)), x @ w["input"])
        return cross_entropy(x @ params["head"], batch["next"].T)

    def init(key: jax.Array) -> Arrays:
        shapes = dict(input=(width, 3 * width), hidden=(width, 2 * width), candidate=(width, width))
        made = [_drawn(k, **shapes) for k in jax.random.split(key, layers)]
        return {"layers": made, **_drawn(key, table=(words, width), head=(width, words))}

    return training(loss, optax.adam(1e-3), init, {"tokens": i32(batch, steps), "next": i32(batch, steps)})


def reader(
    batch: int = 64, asked: int = 256, given: int = 1024, width: int = 768, heads: int = 12, layers: int = 4,
    words: int = 8192,
) -> Training:  # fmt: skip
    def normed(x: jax.Array, w: jax.Array) -> jax.Array:
        y = x.astype(jnp.float32)
        y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
        return (y * w[0] + w[1]).astype(x.dtype)

    def loss(params: Arrays, batch: Arrays) -> jax.Array:
        table = params["table"].astype(BF16)
        x, memory = table[batch["asked"]], table[batch["given"]] + params["places"].astype(BF16)
        for w in params["layers"]:
            h = normed(x, w["n1"])
            q = (h @ w["q"].astype(BF16)).reshape(*h.shape[:2], heads, -1)
            k, v = ((memory @ w[n].astype(BF16)).reshape(*memory.shape[:2], heads, -1) for n in "kv")
            x = x + _attend(q, k, v, False) @ w["o"].astype(BF16)
            x = x + jax.nn.relu(normed(x, w["n2"]) @ w["up"].astype(BF16)) @ w["down"].astype(BF16)
        return cross_entropy((x @ table.T).astype(jnp.float32), batch["next"])

    def init(key: jax.Array) -> Arrays:
        square = (width, width)
        shapes = dict(q=square, k=square, v=square, o=square, up=(width, 4 * width), down=(4 * width, width),
                      n1=(2, width), n2=(2, width))  # fmt: skip
        made = [_drawn(k, **shapes) for k in jax.random.split(key, layers)]
        return {"layers": made, **_drawn(key, table=(words, width), places=(given, width))}

    ids = {"asked": i32(batch, asked), "given": i32(batch, given), "next": i32(batch, asked)}
    return training(loss, optax.adamw(1e-3), init, ids, {"*/[qkv]": 1, "*/up": 1, "*/o": 0, "*/down": 0})


def routed(
    batch: int = 64, tokens: int = 512, width: int = 768, experts: int = 8, hidden: int = 2048, layers: int = 3,
    words: int = 8192,
) -> Training:  # fmt: skip
    room = tokens // experts * 2

    def loss(params: Arrays, batch: Arrays) -> jax.Array:
        x = params["table"].astype(BF16)[batch["tokens"]]
        for w in params["layers"]:
            h = _rms(x, w["norm"][0])
            gate = jax.nn.softmax((h @ w["gate"].astype(BF16)).astype(jnp.float32))
            hot = jax.nn.one_hot(gate.argmax(-1), experts)
            place = (jnp.cumsum(hot, 1) * hot).sum(-1).astype(jnp.int32) - 1
            sent = (hot[..., None] * jax.nn.one_hot(place, room)[..., None, :]).astype(BF16)
            rows = jnp.einsum("btm,btec->ebcm", h, sent)
            rows = jnp.square(jax.nn.relu(jnp.einsum("ebcm,emh->ebch", rows, w["up"].astype(BF16))))
            rows = jnp.einsum("ebch,ehm->ebcm", rows, w["down"].astype(BF16))
            x = x + jnp.einsum("ebcm,btec->btm", rows, sent * gate.max(-1)[..., None, None].astype(BF16))
        return cross_entropy((x @ params["head"].astype(BF16)).astype(jnp.float32), batch["next"])

    def init(key: jax.Array) -> Arrays:
        shapes = dict(
            gate=(width, experts), up=(experts, width, hidden), down=(experts, hidden, width), norm=(1, width)
        )
        made = [_drawn(k, **shapes) for k in jax.random.split(key, layers)]
        return {"layers": made, **_drawn(key, table=(words, width), head=(width, words))}

    return training(
        loss, optax.adamw(1e-3), init, {"tokens": i32(batch, tokens), "next": i32(batch, tokens)},
        {"*/up": 2, "*/down": 1},
    )  # fmt: skip


PROGRAMS: dict[str, Callable[[], Training]] = {
    f.__name__: f for f in (decoder_checkpointed, contrastive, segmenter, gated_recurrence, reader, routed)
}
