"""Models as users of released packages write them, down to a size that traces in seconds: nothing here was tuned for.

linen    a mixer, a vision transformer, a convolutional net, an LSTM          params, opt_state, batch
haiku    ResNet-50, a transformer
equinox  an MLP, a transformer
nnx      an MLP with dropout
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import nnx

KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)
Built = tuple[Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int) -> Any:
    """An abstract array of numbers."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> Any:
    """An abstract array of tokens or classes."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def trained(loss: Callable[..., Any], params: Any, *batch: Any) -> Built:
    """A step of Adam and its abstract arguments; `loss(params, *batch)`."""
    optimizer = optax.adam(1e-3)

    def step(params: Any, opt_state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return step, (params, jax.eval_shape(optimizer.init, params), *batch)


def entropy(logits: Any, labels: Any) -> Any:
    """Mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class Mixer(nn.Module):
    """MLPs over patches and over channels in turn."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Logits of images."""
        x = nn.Conv(768, (16, 16), strides=16)(x).reshape(x.shape[0], -1, 768)
        for _ in range(8):
            y = nn.LayerNorm()(x).swapaxes(1, 2)
            x = x + nn.Dense(y.shape[-1])(nn.gelu(nn.Dense(384)(y))).swapaxes(1, 2)
            x = x + nn.Dense(768)(nn.gelu(nn.Dense(3072)(nn.LayerNorm()(x))))
        return nn.Dense(1000)(x.mean(1))


class VisionTransformer(nn.Module):
    """Attention over patches."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Logits of images."""
        x = nn.Conv(1024, (16, 16), strides=16)(x).reshape(x.shape[0], -1, 1024)
        for _ in range(6):
            x = x + nn.MultiHeadDotProductAttention(16)(nn.LayerNorm()(x))
            x = x + nn.Dense(1024)(nn.gelu(nn.Dense(4096)(nn.LayerNorm()(x))))
        return nn.Dense(1000)(x.mean(1))


class Convolutions(nn.Module):
    """Convolutions and pooling."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Logits of images."""
        for width in (64, 128, 256, 512):
            x = nn.relu(nn.GroupNorm(32)(nn.Conv(width, (3, 3))(x)))
            x = nn.max_pool(nn.relu(nn.Conv(width, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(1000)(nn.relu(nn.Dense(4096)(x.reshape(x.shape[0], -1))))


class Recurrent(nn.Module):
    """An LSTM language model."""

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        """Logits of the next tokens."""
        x = nn.RNN(nn.OptimizedLSTMCell(2048))(nn.Embed(32000, 1024)(tokens))
        return nn.Dense(32000)(x)


def linen(model: nn.Module, x: Any, labels: Any) -> Built:
    """A training step of a linen model."""
    params = jax.eval_shape(model.init, KEY, x)
    return trained(lambda p, x, y: entropy(model.apply(p, x), y), params, x, labels)


def haiku_transformer() -> Built:
    """Tokens, attention and MLPs."""

    def forward(tokens: Any) -> Any:
        x = hk.Embed(32000, 1024)(tokens)
        for _ in range(6):
            y = hk.LayerNorm(-1, True, True)(x)
            x = x + hk.MultiHeadAttention(16, 64, w_init=hk.initializers.VarianceScaling())(y, y, y)
            x = x + hk.nets.MLP([4096, 1024])(hk.LayerNorm(-1, True, True)(x))
        return hk.Linear(32000)(x)

    model, tokens = hk.without_apply_rng(hk.transform(forward)), i32(128, 256)
    return trained(
        lambda p, x, y: entropy(model.apply(p, x), y), jax.eval_shape(model.init, KEY, tokens), tokens, tokens
    )


def haiku_resnet() -> Built:
    """ResNet-50, whose batch statistics are updated beside the parameters."""
    model = hk.without_apply_rng(hk.transform_with_state(lambda x: hk.nets.ResNet50(1000)(x, is_training=True)))
    images = f32(256, 224, 224, 3)
    params, state = jax.eval_shape(model.init, KEY, images)
    optimizer = optax.sgd(0.1, momentum=0.9)

    def step(params: Any, opt_state: Any, state: Any, images: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, new = model.apply(params, state, images)
            return entropy(logits, labels), new

        grads, state_next = jax.grad(loss, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, state_next

    return step, (params, jax.eval_shape(optimizer.init, params), state, images, i32(256))


def equinox_mlp() -> Built:
    """Rows of features."""
    model = eqx.filter_eval_shape(lambda key: eqx.nn.MLP(1024, 1024, 8192, 4, key=key), jax.random.key(0))
    params, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss(params: Any, x: Any, y: Any) -> Any:
        return ((jax.vmap(eqx.combine(params, static))(x) - y) ** 2).mean()

    return trained(loss, params, f32(8192, 1024), f32(8192, 1024))


class Block(eqx.Module):
    """Attention and a gated MLP, for one sequence."""

    attention: eqx.nn.MultiheadAttention
    gate: eqx.nn.Linear
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: Any):
        a, g, u, d = jax.random.split(key, 4)
        self.attention = eqx.nn.MultiheadAttention(16, 1024, key=a)
        self.gate, self.up = eqx.nn.Linear(1024, 4096, key=g), eqx.nn.Linear(1024, 4096, key=u)
        self.down = eqx.nn.Linear(4096, 1024, key=d)

    def __call__(self, x: Any) -> Any:
        """[s,d] -> [s,d]."""
        x = x + self.attention(x, x, x)
        return x + jax.vmap(self.down)(jax.nn.silu(jax.vmap(self.gate)(x)) * jax.vmap(self.up)(x))


def equinox_transformer() -> Built:
    """Blocks mapped over a batch of sequences."""
    make = lambda key: [Block(k) for k in jax.random.split(key, 4)]  # noqa: E731
    blocks = eqx.filter_eval_shape(make, jax.random.key(0))
    params, static = eqx.partition(blocks, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss(params: Any, x: Any, y: Any) -> Any:
        for block in eqx.combine(params, static):
            x = jax.vmap(block)(x)
        return ((x - y) ** 2).mean()

    return trained(loss, params, f32(128, 256, 1024), f32(128, 256, 1024))


def nnx_mlp() -> Built:
    """Dense layers of flax nnx."""

    def make() -> Any:
        rngs = nnx.Rngs(0)
        sizes = (2048, 8192, 2048, 8192, 2048)
        return nnx.Sequential(*(nnx.Linear(m, n, rngs=rngs) for m, n in itertools.pairwise(sizes)))

    graph, params = nnx.split(nnx.eval_shape(make))

    def loss(params: Any, x: Any, y: Any) -> Any:
        return ((jax.nn.relu(nnx.merge(graph, params)(x)) - y) ** 2).mean()

    return trained(loss, params, f32(4096, 2048), f32(4096, 2048))


IMAGES, CLASSES, TOKENS = f32(256, 224, 224, 3), i32(256), i32(128, 128)

MODELS: dict[str, tuple[Callable[[], Built], tuple[int, ...]]] = {
    "linen mixer": (lambda: linen(Mixer(), IMAGES, CLASSES), (0, 1)),
    "linen vision transformer": (lambda: linen(VisionTransformer(), IMAGES, CLASSES), (0, 1)),
    "linen convolutions": (lambda: linen(Convolutions(), f32(256, 64, 64, 3), CLASSES), (0, 1)),
    "linen lstm": (lambda: linen(Recurrent(), TOKENS, TOKENS), (0, 1)),
    "haiku resnet50": (haiku_resnet, (0, 1, 2)),
    "haiku transformer": (haiku_transformer, (0, 1)),
    "equinox mlp": (equinox_mlp, (0, 1)),
    "equinox transformer": (equinox_transformer, (0, 1)),
    "nnx mlp": (nnx_mlp, (0, 1)),
}
"""Name -> (what builds a step and its abstract arguments, which of them are donated)."""
