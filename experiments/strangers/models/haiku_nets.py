"""Nets of haiku, trained, with their running means as state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.step import KEY, Step, entropy, f32, i32, released, trained, trained_with_state


def _classifier(net: str) -> Step:
    import haiku as hk

    def forward(images: jax.Array) -> jax.Array:
        return getattr(hk.nets, net)(num_classes=1000)(images, is_training=True)

    transformed = hk.transform_with_state(forward)
    images = f32(64, 224, 224, 3)
    params, state = jax.eval_shape(transformed.init, KEY, images)

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        logits, state = transformed.apply(params, state, key, batch["images"])
        return entropy(logits, batch["labels"]), state

    return trained_with_state(loss, params, state, {"images": images, "labels": i32(64)})


for _net in ("ResNet50", "ResNet152", "MobileNetV1"):
    released(f"haiku/{_net}", "haiku")(functools.partial(_classifier, _net))


def _of_tokens(core: Callable[[Any, jax.Array], jax.Array]) -> Step:
    """A model of the next token: embeddings, a core, logits."""
    import haiku as hk

    def forward(tokens: jax.Array) -> jax.Array:
        return hk.Linear(10_000)(core(hk, hk.Embed(10_000, 512)(tokens)))

    transformed = hk.transform(forward)
    tokens = i32(32, 128)
    params = jax.eval_shape(transformed.init, KEY, tokens)

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        return entropy(transformed.apply(params, key, batch["tokens"]), batch["targets"])

    return trained(loss, params, {"tokens": tokens, "targets": tokens})


@released("haiku/lstm", "haiku")
def lstm() -> Step:
    """Two LSTMs, unrolled by a scan."""

    def core(hk: Any, x: jax.Array) -> jax.Array:
        cells = hk.DeepRNN([hk.LSTM(1024), hk.LSTM(1024)])
        return hk.dynamic_unroll(cells, x, cells.initial_state(x.shape[0]), time_major=False)[0]

    return _of_tokens(core)


@released("haiku/conv-lstm", "haiku")
def conv_lstm() -> Step:
    """A convolutional LSTM over frames."""
    import haiku as hk

    def forward(frames: jax.Array) -> jax.Array:
        cell = hk.Conv2DLSTM((32, 32), 32, 3)
        return hk.Conv2D(1, 1)(hk.dynamic_unroll(cell, frames, cell.initial_state(frames.shape[1]))[0][-1])

    transformed = hk.transform(forward)
    frames = f32(10, 16, 32, 32, 1)
    params = jax.eval_shape(transformed.init, KEY, frames)

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        frames = jnp.swapaxes(batch["frames"], 0, 1)
        return jnp.mean((transformed.apply(params, key, frames[:-1]) - frames[-1]) ** 2)

    return trained(loss, params, {"frames": f32(16, 11, 32, 32, 1)})


@released("haiku/transformer", "haiku")
def transformer() -> Step:
    """Blocks of attention with dropout."""

    def core(hk: Any, x: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((1, 1, x.shape[1], x.shape[1])))
        for _ in range(12):
            y = hk.LayerNorm(-1, True, True)(x)
            attended = hk.MultiHeadAttention(8, 64, model_size=512, w_init=hk.initializers.VarianceScaling())
            x = x + hk.dropout(hk.next_rng_key(), 0.1, attended(y, y, y, mask=mask))
            x = x + hk.nets.MLP([2048, 512], activation=jax.nn.gelu)(hk.LayerNorm(-1, True, True)(x))
        return x

    return _of_tokens(core)


@released("haiku/vqvae", "haiku")
def vqvae() -> Step:
    """Codes whose table is a moving average."""
    import haiku as hk

    def forward(images: jax.Array) -> jax.Array:
        x = jax.nn.relu(hk.Conv2D(128, 4, 2)(images))
        x = hk.Conv2D(64, 4, 2)(x)
        coded = hk.nets.VectorQuantizerEMA(64, 512, 0.25, 0.99)(x, is_training=True)
        x = jax.nn.relu(hk.Conv2DTranspose(128, 4, 2)(coded["quantize"]))
        return jnp.mean((hk.Conv2DTranspose(3, 4, 2)(x) - images) ** 2) + coded["loss"]

    transformed = hk.transform_with_state(forward)
    params, state = jax.eval_shape(transformed.init, KEY, f32(128, 32, 32, 3))

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        return transformed.apply(params, state, key, batch["images"])

    return trained_with_state(loss, params, state, {"images": f32(128, 32, 32, 3)})
