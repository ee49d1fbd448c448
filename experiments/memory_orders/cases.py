"""Steps whose gradients or images XLA lays out otherwise than what they go on to, as users write them, on one device.

table      rows looked up in a table, by one look-up or two, under each optimizer
kernel     the kernel of a transposed convolution
examples   a convolution in front of transformer blocks, of few examples
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
        return {"table": _table, "kernel": _kernel, "examples": _examples}[self.group](*self.of)


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
