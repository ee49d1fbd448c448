"""Convolutions of given images of few features, with the gradient of the kernel: those that the rule was fitted on, and
drawn ones.

Case(8, 224, 16, 16, features=768)     8 images of 224 x 224 x 3 in patches of 16 x 16, as a vision transformer has them
Case(8, 224, 7, 2, features=64)        the first convolution of a ResNet
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16}
TOPOLOGIES = ("v3:2x2", "v5e:2x2")


@dataclass(frozen=True)
class Case:
    """One convolution of images that are given in f32, and computed in `dtype`, on one device."""

    images: int
    places: int
    window: int
    stride: int
    colours: int = 3
    features: int = 768
    dtype: str = "f32"
    parts: str = "both"
    topology: str = "v3:2x2"

    @property
    def name(self) -> str:
        given = f"{self.images} of {self.places}x{self.places}x{self.colours}"
        what = f"{self.window} by {self.stride} to {self.features}"
        return f"{given}, {what}, {self.dtype}, {self.parts}, {self.topology}"

    @property
    def kernel_elements(self) -> int:
        return self.window**2 * self.colours * self.features

    def program(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function, and the shapes of its arguments: images, the kernel, and what its gradient is computed of."""
        images = jax.ShapeDtypeStruct((self.images, self.places, self.places, self.colours), jnp.float32)
        kernel = jax.ShapeDtypeStruct((self.window, self.window, self.colours, self.features), jnp.float32)
        left = jax.eval_shape(self.convolved, images, kernel)

        def gradient(x: jax.Array, w: jax.Array, d: jax.Array) -> jax.Array:
            return jax.vjp(lambda w: self.convolved(x, w), w)[1](d)[0]

        def both(x: jax.Array, w: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
            y, back = jax.vjp(lambda w: self.convolved(x, w), w)
            return y, back(d)[0]

        match self.parts:
            case "forward":
                return self.convolved, (images, kernel)
            case "gradient":
                return gradient, (images, kernel, left)
            case _:
                return both, (images, kernel, left)

    def convolved(self, x: jax.Array, w: jax.Array) -> jax.Array:
        """Patches are not padded, windows that overlap are."""
        padding = "VALID" if self.window == self.stride else "SAME"
        x, w = x.astype(DTYPES[self.dtype]), w.astype(DTYPES[self.dtype])
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (self.stride,) * 2, padding, dimension_numbers=numbers)


def fitted() -> Iterator[Case]:
    """What the rule was found and fitted on."""
    for topology in TOPOLOGIES:
        for case in _fitted():
            if topology != "v5e:2x2" or quickly_compiled(case):
                yield replace(case, topology=topology)


def _fitted() -> Iterator[Case]:
    base, small = Case(4, 256, 16, 16), Case(16, 128, 16, 16)
    yield from (replace(base, images=n) for n in (1, 2, 4, 8, 16, 32, 64))
    yield from (replace(base, places=n) for n in (64, 128, 224))
    yield from (replace(base, window=n, stride=n) for n in (4, 8, 32))
    yield from (replace(base, colours=n) for n in (1, 4))
    yield from (replace(base, features=n) for n in (96, 384))
    yield from (replace(base, images=n, parts=part) for n in (4, 16) for part in ("forward", "gradient"))
    yield from (replace(base, images=n, dtype="bf16") for n in (2, 4, 8, 16, 64))
    yield from (replace(base, images=n, places=224) for n in (8, 16, 32, 64, 128))
    yield from (Case(n, 32, 4, 4, features=192) for n in (8, 64, 128, 256))
    yield from (replace(base, images=16, window=n, stride=n) for n in (4, 8, 32))
    yield from (replace(small, images=n) for n in (8, 16, 32, 64, 128))
    yield from (replace(small, images=64, features=n) for n in (128, 384))
    yield from (replace(small, images=64, window=n, stride=n) for n in (8, 32))
    yield from (replace(small, images=n, dtype="bf16") for n in (8, 16, 64))
    yield from (replace(small, colours=n) for n in (1, 4))
    yield from (replace(small, features=n) for n in (96, 384))
    yield from (Case(n, 224, 7, 2, features=64, dtype=dtype) for n in (8, 32) for dtype in DTYPES)
    yield from (Case(n, 32, 3, 1, features=64) for n in (16, 64, 128))
    yield from (Case(n, 224, 4, 4, features=96) for n in (8, 32))
    yield from (Case(n, 64, 8, 8, features=256) for n in (8, 16, 32, 64))
    yield from (Case(16, 224, 14, 14), Case(32, 224, 32, 32), replace(small, window=4, stride=4))


def quickly_compiled(case: Case) -> bool:
    """False for 3 to 7 images of which each is cut: the compiler for v5e takes minutes for one."""
    return not 2 < case.images < 8 or case.places < 128


PATCHES = [(n, n) for n in (4, 8, 12, 14, 16, 20, 32)]
WINDOWS = [(7, 2), (3, 1), (3, 2), (5, 1)]
PLACES = (28, 32, 48, 64, 96, 128, 160, 224)
IMAGES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
WIDTHS, FIRST_WIDTHS = (32, 48, 64, 128, 192, 256, 512, 640, 1024), (16, 32, 64, 96)
MOST_GIVEN, MOST_LEFT = 1.3e7, 4e7
"""Elements of the images, and of the result."""


def held_out() -> Iterator[Case]:
    """What no constant was chosen on: drawn at random."""
    rng, found = random.Random(5), 0
    while found < 60:
        patches = rng.random() < 0.7
        window, stride = rng.choice(PATCHES if patches else WINDOWS)
        places = window * rng.randint(2, 20) if patches else rng.choice(PLACES)
        images, colours = rng.choice(IMAGES), rng.choice((1, 3, 3, 3, 4))
        features, dtype = rng.choice(WIDTHS if patches else FIRST_WIDTHS), rng.choice(("f32", "f32", "bf16"))
        case = Case(images, places, window, stride, colours, features, dtype, topology=rng.choice(TOPOLOGIES))
        left = images * (places // stride) ** 2 * features
        small = images * places**2 * colours <= MOST_GIVEN and left <= MOST_LEFT
        if 32 <= places <= 320 and small and quickly_compiled(case):
            found += 1
            yield case
