"""Steps that autopart emits otherwise than they were traced, as users write them, on one device.

table      rows looked up in a table, by one look-up or two, under each optimizer
kernel     the kernel of a transposed convolution
examples   a convolution in front of transformer blocks, of few examples
groups     a convolution in groups between two products, as a ResNeXt has them
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adagrad": optax.adagrad(1e-2),
    "rmsprop": optax.rmsprop(1e-2),
    "adam": optax.adam(1e-3),
    "lion": optax.lion(1e-3),
    "lamb": optax.lamb(1e-3),
    "adafactor": optax.adafactor(1e-2),
}
TOPOLOGIES = ("v3:2x2", "v5e:2x2")
Step = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """`step(params, state, *batch)` of a group, whose sizes and optimizer are `of`."""

    group: str
    of: tuple[Any, ...]
    topology: str

    @property
    def name(self) -> str:
        return f"{self.group} {' '.join(map(str, self.of))}, {self.topology}"

    def program(self) -> Step:
        """The step, and the shapes of its arguments."""
        return {"table": _table, "kernel": _kernel, "examples": _examples, "groups": _groups}[self.group](*self.of)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _updating(loss: Callable[..., jax.Array], optimizer: str, params: Any, *batch: Any) -> Step:
    rule = OPTIMIZERS[optimizer]

    def step(params: Any, state: Any, *batch: Any) -> tuple[Any, Any]:
        updates, state = rule.update(jax.grad(loss)(params, *batch), state, params)
        return optax.apply_updates(params, updates), state

    return step, (params, jax.eval_shape(rule.init, params), *batch)


def _table(rows: int, width: int, optimizer: str, look_ups: int) -> Step:
    def loss(table: jax.Array, at: jax.Array, also: jax.Array, w: jax.Array) -> jax.Array:
        found = jnp.take(table, at, axis=0, mode="clip") @ w
        if look_ups == 2:
            found *= jnp.take(table, also, axis=0, mode="clip").sum(1) @ w
        return jnp.mean(found**2)

    return _updating(loss, optimizer, f32(rows, width), i32(8192), i32(8192, 4), f32(width, 64))


def _kernel(side: int, features: int, made: int, window: int, optimizer: str) -> Step:
    def loss(w: jax.Array, x: jax.Array, wanted: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jnp.mean((jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=numbers) - wanted) ** 2)

    images, left = f32(16, side, side, features), f32(16, 2 * side, 2 * side, made)
    return _updating(loss, optimizer, f32(window, window, features, made), images, left)


def _examples(examples: int, length: int, width: int, layers: int) -> Step:
    """Waves, of which a convolution makes places, and blocks with a norm and a perceptron."""
    params = {
        "conv": f32(3, 80, width),
        "blocks": [{"up": f32(width, 4 * width), "down": f32(4 * width, width)} for _ in range(layers)],
    }

    def loss(params: Any, waves: jax.Array) -> jax.Array:
        numbers = ("NHC", "HIO", "NHC")
        x = jax.nn.gelu(jax.lax.conv_general_dilated(waves, params["conv"], (2,), "SAME", dimension_numbers=numbers))
        for block in params["blocks"]:
            y = x - x.mean(-1, keepdims=True)
            y = y * jax.lax.rsqrt((y**2).mean(-1, keepdims=True) + 1e-6)
            x = x + jax.nn.gelu(y @ block["up"]) @ block["down"]
        return jnp.mean(x**2)

    return _updating(loss, "adam", params, f32(examples, 2 * length, 80))


def _groups(images: int, side: int, groups: int, reads: int, makes: int, window: int, stride: int, dtype: str) -> Step:
    """A block: as many features as all groups read, the groups, and as many as they make."""
    shapes = {"in": (groups * reads,) * 2, "w": (window, window, reads, groups * makes), "out": (groups * makes,) * 2}

    def loss(params: Any, x: jax.Array) -> jax.Array:
        y = jax.nn.relu(jax.nn.relu(x @ params["in"]))
        y = jax.nn.relu(_convolved(y, params["w"], stride, groups)) @ params["out"]
        return jnp.mean(y.astype(jnp.float32) ** 2)

    params = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}
    return _updating(loss, "sgd", params, jax.ShapeDtypeStruct((images, side, side, groups * reads), dtype))


def _convolved(x: jax.Array, w: jax.Array, stride: int, groups: int) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    strides = stride, stride
    return jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups)


IN_GROUPS = [
    (4, 28, 32, 4, 4), (16, 28, 32, 4, 4), (64, 28, 32, 4, 4), (16, 14, 32, 8, 8), (16, 14, 32, 16, 16),
    (16, 14, 2, 64, 64), (16, 14, 4, 64, 64), (16, 28, 64, 2, 2), (1, 28, 32, 4, 4), (2, 28, 16, 16, 16),
    (128, 14, 32, 4, 4), (128, 14, 8, 32, 32), (256, 14, 8, 8, 8), (16, 14, 2, 192, 192), (16, 14, 6, 24, 24),
    (16, 14, 64, 1, 2), (16, 14, 4, 128, 128), (16, 56, 2, 32, 32), (8, 28, 10, 24, 24), (64, 14, 16, 16, 16),
    (32, 14, 8, 32, 32), (8, 14, 15, 24, 24), (32, 14, 14, 24, 24), (16, 14, 3, 64, 64), (4, 14, 32, 32, 32),
    (64, 7, 32, 32, 32), (16, 14, 14, 40, 40), (16, 7, 34, 40, 40), (16, 14, 30, 24, 24), (16, 14, 20, 16, 16),
    (16, 14, 4, 192, 192), (4, 14, 4, 96, 96), (16, 28, 2, 24, 48),
]  # fmt: skip
"""Images, places a side, groups, and the features that one reads and makes: what the rule was chosen on."""


def chosen() -> Iterator[Case]:
    """What the orders were found on, and their neighbours."""
    for topology in TOPOLOGIES:
        tables = [
            (200_000, width, name, 1) for width in (16, 64, 96) for name in ("sgd", "momentum", "adagrad", "adam")
        ]
        tables += [(200_000, 32, name, 1) for name in OPTIMIZERS]
        tables += [(200_000, 64, "adagrad", 2), (200_000, 128, "adagrad", 1), (1_000_000, 32, "adagrad", 1)]
        yield from (Case("table", of, topology) for of in tables)
        kernels = [
            (4, 512, 256, 4),
            (4, 256, 512, 4),
            (4, 256, 256, 4),
            (16, 128, 64, 4),
            (8, 256, 128, 2),
            (8, 96, 64, 2),
        ]
        yield from (Case("kernel", (*of, "adam"), topology) for of in kernels)
        yield from (Case("examples", (n, 512, 512, 2), topology) for n in (1, 2, 4, 7, 8, 16))
        yield from (Case("groups", (*of, 3, 1, "float32"), topology) for of in IN_GROUPS)
        yield Case("groups", (16, 28, 32, 4, 4, 3, 1, "bfloat16"), topology)
        yield Case("groups", (16, 28, 32, 8, 8, 3, 2, "float32"), topology)


def drawn() -> Iterator[Case]:
    """What nobody chose."""
    rng = random.Random(3)
    for _ in range(30):
        topology, optimizer = rng.choice(TOPOLOGIES), rng.choice(list(OPTIMIZERS))
        match rng.choice(("table", "table", "kernel", "examples")):
            case "table":
                of = (
                    rng.choice((3_000, 40_000, 150_000)),
                    rng.choice((8, 24, 48, 72, 80, 112, 160)),
                    optimizer,
                    rng.choice((1, 2)),
                )
                yield Case("table", of, topology)
            case "kernel":
                features, made = (rng.choice((32, 64, 96, 128, 192, 256, 384)) for _ in range(2))
                yield Case(
                    "kernel", (rng.choice((4, 7, 8)), features, made, rng.choice((2, 3, 4, 5)), optimizer), topology
                )
            case _:
                of = (
                    rng.choice((2, 3, 5, 6)),
                    rng.choice((96, 256, 400)),
                    rng.choice((192, 256, 384)),
                    rng.choice((1, 3)),
                )
                yield Case("examples", of, topology)
    yield from _drawn_groups(random.Random(4))


def _drawn_groups(rng: random.Random) -> Iterator[Case]:
    for _ in range(24):
        groups, reads = rng.choice((2, 3, 4, 8, 12, 16, 32, 64)), rng.choice((2, 4, 8, 12, 16, 24, 32, 48, 64, 96))
        if groups * reads > 1024:
            groups = 4
        makes, images = reads * rng.choice((1, 1, 2)), rng.choice((1, 3, 8, 12, 24, 32, 64, 128))
        of = (images, rng.choice((7, 14, 20, 28)), groups, reads, makes, rng.choice((1, 3, 5)), rng.choice((1, 1, 2)))
        yield Case("groups", (*of, rng.choice(("float32", "bfloat16"))), rng.choice(TOPOLOGIES))
