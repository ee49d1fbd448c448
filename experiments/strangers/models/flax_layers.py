"""Layers that flax brings, of linen and nnx, in nets that train, and optimizers of optax around an MLP."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from experiments.strangers.perceptron import layers, mlp
from experiments.strangers.step import KEY, Step, entropy, f32, i32, released, trained, trained_with_state


def _of_module(module: Any, inputs: Any, labels: Any) -> Step:
    """A linen module that makes logits, trained; with its mutable collections as state."""
    variables = jax.eval_shape(lambda key: module.init({"params": key, "dropout": key}, _zeros(inputs)), KEY)
    params = variables["params"]
    state = {name: kept for name, kept in variables.items() if name != "params"}

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
        given = {"params": params, **state}
        logits, state = module.apply(given, batch["inputs"], rngs={"dropout": key}, mutable=list(state))
        return entropy(logits, batch["labels"]), state

    batch = {"inputs": inputs, "labels": labels}
    if state:
        return trained_with_state(loss, params, state, batch)
    return trained(lambda params, batch, key: loss(params, {}, batch, key)[0], params, batch)


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


@released("flax/bidirectional-lstm", "flax")
def bidirectional() -> Step:
    """Two LSTMs over tokens, one from each end."""
    import flax.linen as nn

    class Tagger(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = nn.Embed(20_000, 512)(tokens)
            for _ in range(2):
                forward, backward = nn.RNN(nn.OptimizedLSTMCell(512)), nn.RNN(nn.OptimizedLSTMCell(512))
                x = nn.Dropout(0.2, deterministic=False)(nn.Bidirectional(forward, backward)(x))
            return nn.Dense(64)(x)

    return _of_module(Tagger(), i32(32, 128), i32(32, 128))


@released("flax/scanned-remat", "flax")
def scanned() -> Step:
    """A block in a lifted scan, computed again for its gradient."""
    import flax.linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, _: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(16, qkv_features=1024)(nn.LayerNorm()(x))
            return x + nn.Dense(1024)(nn.gelu(nn.Dense(4096)(nn.LayerNorm()(x)))), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = nn.Embed(32_000, 1024)(tokens)
            deep = nn.scan(nn.remat(Block), {"params": 0}, split_rngs={"params": True}, length=24)
            return nn.Dense(32_000)(deep()(x, None)[0])

    return _of_module(Model(), i32(16, 512), i32(16, 512))


@released("flax/spectral-norm", "flax")
def spectral_norm() -> Step:
    """A critic whose kernels are divided by what a step of power iteration says of them."""
    import flax.linen as nn

    class Critic(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            for width in (64, 128, 256):
                x = nn.leaky_relu(nn.SpectralNorm(nn.Conv(width, (4, 4), 2))(x, update_stats=True))
            return nn.WeightNorm(nn.Dense(10))(x.reshape(x.shape[0], -1))

    return _of_module(Critic(), f32(128, 64, 64, 3), i32(128))


@released("flax/fp8", "flax")
def fp8() -> Step:
    """Products in eight bits, whose scales are a state."""
    import flax.linen as nn
    from flax.linen import fp8_ops

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            for width in (4096, 4096, 1000):
                x = nn.relu(nn.Dense(width, dot_general_cls=fp8_ops.Fp8DotGeneralOp)(x))
            return x

    module, inputs, labels = Model(), f32(1024, 4096), i32(1024)
    variables = jax.eval_shape(lambda key: module.init(key, _zeros(inputs)), KEY)

    def loss(variables: Any, batch: Any, key: jax.Array) -> jax.Array:
        logits: Any = module.apply(variables, batch["inputs"])
        return entropy(logits, batch["labels"])

    return trained(loss, dict(variables), {"inputs": inputs, "labels": labels}, optax.sgd(0.1))


@released("flax/group-norm-conv", "flax")
def group_norm() -> Step:
    """Grouped, dilated and transposed convolutions with group norms."""
    import flax.linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.relu(nn.GroupNorm(8)(nn.Conv(64, (7, 7), 2)(x)))
            for _ in range(4):
                y = nn.Conv(64, (3, 3), feature_group_count=8)(x)
                x = x + nn.relu(nn.GroupNorm(8)(nn.Conv(64, (3, 3), kernel_dilation=2)(y)))
            return nn.ConvTranspose(21, (4, 4), strides=(2, 2))(x)

    return _of_module(Net(), f32(16, 128, 128, 3), i32(16, 128, 128))


@released("flax/nnx-transformer", "flax")
def nnx_transformer() -> Step:
    """Blocks of nnx with dropout, split into its graph and its arrays."""
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.before, self.between = nnx.LayerNorm(512, rngs=rngs), nnx.LayerNorm(512, rngs=rngs)
            self.attend = nnx.MultiHeadAttention(8, 512, decode=False, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)
            self.up, self.down = nnx.Linear(512, 2048, rngs=rngs), nnx.Linear(2048, 512, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            x = x + self.dropout(self.attend(self.before(x)))
            return x + self.down(nnx.gelu(self.up(self.between(x))))

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.embed, self.head = nnx.Embed(32_000, 512, rngs=rngs), nnx.Linear(512, 32_000, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(6)])

        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    made = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))
    graph, params, rest = nnx.split(made, nnx.Param, ...)

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
        module = nnx.merge(graph, params, state, copy=True)
        value = entropy(module(batch["tokens"]), batch["targets"])
        return value, nnx.state(module, nnx.Not(nnx.Param))

    batch = {"tokens": i32(16, 256), "targets": i32(16, 256)}
    return trained_with_state(loss, params, rest, batch, optax.adamw(1e-4))


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "muon": lambda: optax.contrib.muon(1e-3),
    "schedule-free": lambda: optax.contrib.schedule_free_adamw(1e-3),
    "prodigy": lambda: optax.contrib.prodigy(1.0),
    "adafactor": lambda: optax.adafactor(1e-3),
    "sam": lambda: optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.05)),
    "lbfgs": lambda: optax.scale_by_lbfgs(),
    "lion-multisteps": lambda: optax.MultiSteps(optax.lion(1e-4), 4).gradient_transformation(),
}


def _optimized(name: str) -> Step:
    """An MLP with an optimizer of optax, or of its contrib."""

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        return entropy(mlp(params, batch["x"]), batch["labels"])

    params = layers(1024, 4096, 4096, 1000)
    return trained(loss, params, {"x": f32(1024, 1024), "labels": i32(1024)}, OPTIMIZERS[name]())


for _name in OPTIMIZERS:
    released(f"optax/{_name}", "optax")(functools.partial(_optimized, _name))
