"""Gradients of the inputs of convolutions with strides: those that the rule was found on, and drawn ones.

Case(8, (32, 32), 64, 64, (3, 3), (2, 2))     of 8 images of 16 x 16 x 64 to 32 x 32 x 64, windows of 3 x 3
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

TOPOLOGIES = ("v3:2x2", "v5e:2x2")


@dataclass(frozen=True)
class Case:
    """One gradient on one device; `features` are of the images, `left` of what the convolution makes of them."""

    images: int
    space: tuple[int, ...]
    features: int
    left: int
    window: tuple[int, ...]
    strides: tuple[int, ...]
    topology: str = "v3:2x2"

    @property
    def name(self) -> str:
        space, window, strides = ("x".join(map(str, n)) for n in (self.space, self.window, self.strides))
        return f"{self.images} of {space}x{self.features}, {window} by {strides} to {self.left}, {self.topology}"

    def program(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function, and the shapes of its arguments: the gradient of the result, and the kernel."""
        images = jax.ShapeDtypeStruct((self.images, *self.space, self.features), jnp.float32)
        kernel = jax.ShapeDtypeStruct((*self.window, self.features, self.left), jnp.float32)

        def gradient(dy: jax.Array, w: jax.Array) -> jax.Array:
            return jax.linear_transpose(lambda x: self.convolved(x, w), images)(dy)[0]

        return gradient, (jax.eval_shape(self.convolved, images, kernel), kernel)

    def convolved(self, x: jax.Array, w: jax.Array) -> jax.Array:
        space = "DHW"[3 - len(self.space) :]
        numbers = (f"N{space}C", f"{space}IO", f"N{space}C")
        return jax.lax.conv_general_dilated(x, w, self.strides, "SAME", dimension_numbers=numbers)


def fitted() -> Iterator[Case]:
    """What the rule was found on."""
    for topology in TOPOLOGIES:
        yield from (replace(case, topology=topology) for case in _fitted())


def _fitted() -> Iterator[Case]:
    base = Case(8, (32, 32), 64, 64, (3, 3), (2, 2))
    yield from (replace(base, images=n) for n in (1, 2, 4, 8, 16, 32, 64, 128, 256))
    yield from (replace(base, features=n) for n in (16, 32, 96, 128, 160, 192, 256))
    yield from (replace(base, left=n) for n in (16, 32, 96, 128, 192, 256))
    yield from (replace(base, space=(n, n)) for n in (8, 16, 48, 64))
    yield from (replace(base, features=n, left=n) for n in (16, 32, 96, 128, 160, 256))
    yield from (replace(base, window=(n, n)) for n in (2, 4, 5, 7, 8))
    squares = ((3, 3), (3, 4), (4, 4), (5, 4), (7, 4), (8, 4), (8, 8), (5, 5))
    yield from (replace(base, window=(n, n), strides=(s, s)) for n, s in squares)
    eight = replace(base, window=(8, 8))
    strides = ((2, 1), (1, 2), (3, 1), (1, 3), (3, 3), (4, 1), (4, 2), (2, 4), (8, 1), (1, 8))
    yield from (replace(eight, strides=s) for s in (*strides, (5, 5), (6, 6), (7, 7), (8, 4), (16, 16)))
    yield from (Case(8, (1024,), 64, 64, (8,), (s,)) for s in (2, 3, 4, 8))
    yield Case(8, (16, 16, 16), 64, 64, (4, 4, 4), (2, 2, 2))
    yield from (Case(n, (32, 32), 128, 256, (3, 3), (2, 2)) for n in (1, 8, 64))
    yield from (Case(n, (32, 32), 32, 32, (8, 8), (8, 8)) for n in (1, 8, 64))
    yield from (Case(n, (8, 8), 160, 256, (3, 3), (2, 2)) for n in (1, 8, 64))


def held_out() -> Iterator[Case]:
    """What no constant was chosen on: drawn at random."""
    rng = random.Random(7)
    for _ in range(60):
        side, window = rng.choice((8, 14, 16, 28, 32, 56, 64)), rng.choice((2, 3, 3, 4, 5, 7))
        stride = rng.choice((2, 2, 2, 3, 4))
        images = rng.choice((1, 2, 4, 8, 16, 32, 64, 128) if side <= 32 else (1, 2, 4, 8, 16))
        features, left = (rng.choice((24, 32, 48, 64, 80, 96, 128, 192, 256, 320)) for _ in range(2))
        space = (side - side % stride,) * 2
        topology = rng.choice(TOPOLOGIES)
        yield Case(images, space, features, left, (window,) * 2, (stride,) * 2, topology)
