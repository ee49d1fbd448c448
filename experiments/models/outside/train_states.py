"""Models that are not the paper's, as flax users write them: a GPT, a vision transformer and an MLP-Mixer, with Adam.

step, args, schedules = gpt(batch=32)       step(state, batch) -> (state, loss), args as shapes and types
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

import autopart as ap

BP = ap.ManualPartition({"batch": 0}, axis="batch", name="BP")
FSDP = ap.ManualPartition({"state": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="FSDP")
SG = ap.SharedGathers(within=1_000_000, name="SG")
VOCAB = ap.ManualPartition({"state": {"*/embedding": 0}}, axis="batch", name="VOCAB")


def _schedules(*columns: str) -> dict[str, list[ap.Tactic]]:
    """Batch, fully sharded with a gather for each pass or for both, and Megatron on matrices with tiled columns."""
    tp = ap.ManualPartition({"state": {f"params/*/{name}/kernel": 1 for name in columns}}, axis="model", name="TP")
    return {"BP": [BP], "BP+FSDP": [BP, FSDP], "BP+FSDP+SG": [BP, FSDP, SG], "BP+TP": [BP, tp]}


ATTENTION = ("query", "key", "value")
SCHEDULES = tuple(_schedules())
LOGITS = {"VOCAB+BP+FSDP": [VOCAB, BP, FSDP], "VOCAB+BP+FSDP+SG": [VOCAB, BP, FSDP, SG]}
"""Of a language model: rows of the embedding before the batch, so that logits are tiled over the vocabulary."""


class Model(NamedTuple):
    """A training step, its arguments as shapes and types, and schedules that people would write."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    schedules: dict[str, list[ap.Tactic]]


class Mlp(nn.Module):
    """Two matrices with a gelu between."""

    hidden: int
    dtype: Any = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = nn.gelu(nn.Dense(self.hidden, dtype=self.dtype, name="up")(x))
        return nn.Dense(x.shape[-1], dtype=self.dtype, name="down")(hidden)


class Block(nn.Module):
    """A pre-norm transformer block; `dtype` is that of products and activations, None for that of the parameters."""

    heads: int
    dtype: Any = None

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        normed = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, self.dtype, name="attention")(normed, normed, mask=mask)
        return x + Mlp(4 * x.shape[-1], self.dtype, name="mlp")(nn.LayerNorm(dtype=self.dtype)(x))


class Gpt(nn.Module):
    """A decoder with learned positions and a tied embedding; `dtype` as in `Block`."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    dtype: Any = None

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embed = nn.Embed(self.vocabulary, self.width, self.dtype)
        x = embed(tokens)
        x = x + self.param("position", nn.initializers.normal(0.02), (tokens.shape[1], self.width)).astype(x.dtype)
        for _ in range(self.layers):
            x = Block(self.heads, self.dtype)(x, nn.make_causal_mask(tokens))
        return embed.attend(nn.LayerNorm(dtype=self.dtype)(x))


class Vit(nn.Module):
    """Patches of 16, a transformer, the mean."""

    layers: int
    width: int
    heads: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (16, 16), strides=(16, 16))(images)
        x = x.reshape(x.shape[0], -1, self.width)
        x = x + self.param("position", nn.initializers.normal(0.02), x.shape[1:])
        for _ in range(self.layers):
            x = Block(self.heads)(x)
        return nn.Dense(1000, name="head")(nn.LayerNorm()(x).mean(axis=1))


class Mixer(nn.Module):
    """MLPs over patches and over channels in turn."""

    layers: int
    width: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (16, 16), strides=(16, 16))(images)
        x = x.reshape(x.shape[0], -1, self.width)
        for _ in range(self.layers):
            x = x + Mlp(2 * x.shape[1])(nn.LayerNorm()(x).swapaxes(1, 2)).swapaxes(1, 2)
            x = x + Mlp(4 * self.width)(nn.LayerNorm()(x))
        return nn.Dense(1000, name="head")(nn.LayerNorm()(x).mean(axis=1))


def gpt(
    batch: int, layers: int = 1, width: int = 1024, heads: int = 16, sequence: int = 512, dtype: Any = None
) -> Model:
    """Next-token loss, in f32, over a vocabulary of 32,000 (256 at a width of less than 256); `dtype` as in `Block`."""
    vocabulary = 32_000 if width >= 256 else 256
    tokens = jax.ShapeDtypeStruct((batch, sequence), jnp.int32)

    def loss(apply: Any, params: Any, tokens: jax.Array) -> jax.Array:
        logits = apply({"params": params}, tokens)[:, :-1].astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    model = _model(Gpt(layers, width, heads, vocabulary, dtype), loss, tokens, tokens, *ATTENTION, "up")
    return model._replace(schedules=model.schedules | LOGITS)


def vit(batch: int, layers: int = 1, width: int = 768, heads: int = 12, pixels: int = 256) -> Model:
    """Classification of square images into 1,000 classes."""
    return _classifier(Vit(layers, width, heads), batch, pixels, *ATTENTION, "up")


def mixer(batch: int, layers: int = 1, width: int = 768, pixels: int = 256) -> Model:
    """The same task."""
    return _classifier(Mixer(layers, width), batch, pixels, "up")


def _classifier(model: nn.Module, batch: int, pixels: int, *columns: str) -> Model:
    images = jax.ShapeDtypeStruct((batch, pixels, pixels, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)

    def loss(apply: Any, params: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        logits = apply({"params": params}, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    return _model(model, loss, images, (images, labels), *columns)


def _model(model: nn.Module, loss: Callable[..., jax.Array], example: Any, batch: Any, *columns: str) -> Model:
    def state() -> TrainState:
        params = model.init(jax.random.key(0), jnp.zeros(example.shape, example.dtype))["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3, eps=1e-5))

    def train_step(state: TrainState, batch: Any) -> tuple[TrainState, jax.Array]:
        value, gradients = jax.value_and_grad(lambda params: loss(state.apply_fn, params, batch))(state.params)
        return state.apply_gradients(grads=gradients), value

    return Model(train_step, (jax.eval_shape(state), batch), _schedules(*columns))
