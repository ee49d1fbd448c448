"""Small programs with convolutions of few images: those that the rule was fitted on, and drawn ones.

Case(batch=4, size=(32, 32), kind="silu", back=True)     gradients of three convolutions of 3 x 3, a silu after each

kind   plain, relu, silu; residual: x + silu(y), stem: the same after a first convolution; norm: over images and
       space, then relu; group: over space and groups of features, then silu; depthwise: a window for each feature
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

GROUPS = 16
DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16}


@dataclass(frozen=True)
class Case:
    """Some convolutions in turn, on one device."""

    batch: int
    size: tuple[int, ...] = (32, 32)
    features: int = 128
    window: int = 3
    stride: int = 1
    dilation: int = 1
    dtype: str = "f32"
    convs: int = 3
    kind: str = "plain"
    back: bool = False
    topology: str = "v5e:2x4"
    features_in: int = 0

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.size))
        parts = [
            f"{self.batch} of {size}x{self.features_in or self.features}",
            f"{self.convs} of {self.window}" + (f" to {self.features}" if self.features_in else ""),
            f"stride {self.stride}" if self.stride > 1 else "",
            f"dilation {self.dilation}" if self.dilation > 1 else "",
            self.dtype,
            self.kind,
            "gradients" if self.back else "",
            self.topology,
        ]
        return ", ".join(part for part in parts if part)

    def program(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function, and the shapes of its arguments: images, and a list of weights."""
        dtype, rank, given = DTYPES[self.dtype], len(self.size), self.features_in or self.features
        reads = [given] + [self.features] * (self.convs - 1)
        window = (self.window,) * rank
        weights = [
            jax.ShapeDtypeStruct((*window, 1 if self.kind == "depthwise" else n, self.features), dtype) for n in reads
        ]
        images = jax.ShapeDtypeStruct((self.batch, *self.size, given), dtype)

        def forward(x: jax.Array, weights: list[jax.Array]) -> jax.Array:
            for i, w in enumerate(weights):
                groups = self.features if self.kind == "depthwise" else 1
                y = after(self.kind, conv(x, w, self.stride, self.dilation, groups))
                x = x + y if self.kind == "residual" or (self.kind == "stem" and i) else y
            return x

        def gradients(x: jax.Array, weights: list[jax.Array]) -> Any:
            return jax.grad(lambda w: (forward(x, w).astype(jnp.float32) ** 2).sum())(weights)

        return gradients if self.back else forward, (images, weights)


def conv(x: jax.Array, w: jax.Array, stride: int = 1, dilation: int = 1, groups: int = 1) -> jax.Array:
    """A convolution along all dims of space, padded to keep its size."""
    rank = x.ndim - 2
    space = "DHW"[-rank:]
    return jax.lax.conv_general_dilated(
        x, w, (stride,) * rank, "SAME", rhs_dilation=(dilation,) * rank, feature_group_count=groups,
        dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
    )  # fmt: skip


def after(kind: str, y: jax.Array) -> jax.Array:
    """What follows each convolution."""
    match kind:
        case "relu":
            return jax.nn.relu(y)
        case "silu" | "residual" | "stem":
            return jax.nn.silu(y)
        case "norm":
            return jax.nn.relu(normal(y, tuple(range(y.ndim - 1))))
        case "group":
            grouped = y.reshape(*y.shape[:-1], GROUPS, -1)
            return jax.nn.silu(normal(grouped, (*range(1, y.ndim - 1), y.ndim)).reshape(y.shape))
        case _:
            return y


def normal(y: jax.Array, dims: tuple[int, ...]) -> jax.Array:
    """Mean 0 and variance 1 over some dims."""
    centred = y - y.mean(dims, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(dims, keepdims=True) + 1e-5)


def fitted() -> Iterator[Case]:
    """What the rule was found and fitted on, and as many images as are not cut."""
    yield from (Case(b, convs=4) for b in (1, 2, 3, 4, 6, 7, 8, 16))
    yield from (Case(b, (s, s), convs=n) for s in (16, 64, 128) for b in (2, 4, 8) for n in (1, 3))
    yield from (Case(b, (16, 16), convs=4, kind="residual") for b in (1, 4, 8))
    for back in (False, True):
        yield from (Case(b, kind=k, back=back) for k in ("plain", "silu", "norm", "group", "residual") for b in (4, 8))
        yield Case(4, kind="stem", back=back)
    yield from (Case(4, features=f) for f in (32, 64, 512))
    yield from (Case(4, window=w) for w in (1, 5, 7))
    yield from (Case(4, (64, 64), convs=n, stride=2) for n in (1, 2))
    yield from (Case(4, (s, s)) for s in (7, 14, 28, 56))
    yield from (Case(4, s) for s in ((32,), (1024,), (16, 16, 16), (32, 64), (64, 32)))
    yield from (Case(4, (s, s), 64, 7, 2, convs=1, features_in=3) for s in (64, 128))
    yield from (Case(b, convs=2, kind="silu", back=True) for b in (1, 2, 3, 7))
    yield from (Case(2, (s, s), convs=2, kind="silu", back=True) for s in (14, 16, 28, 64))
    yield from (Case(2, features=f, convs=2, kind="silu", back=True) for f in (64, 256, 512))
    yield from (Case(4, window=w, convs=2, kind="silu", back=True) for w in (1, 5))
    yield from (
        Case(4, dilation=2), Case(4, dtype="bf16"), Case(4, dtype="bf16", convs=2, kind="silu", back=True),
        Case(4, (64, 64), stride=2, convs=2, kind="silu", back=True), Case(4, (1024,), kind="silu", back=True),
        Case(4, (16, 16, 16), convs=2, kind="silu", back=True), Case(4, (64, 64), window=7, convs=2, kind="silu"),
        Case(4, convs=2, kind="depthwise"), Case(4, (64, 64), window=7, convs=2, kind="depthwise"),
        Case(4, (56, 56), window=7, convs=2, kind="depthwise", back=True),
        Case(2, (128, 128), convs=2, kind="norm", back=True), Case(1, (56, 56), convs=2, kind="norm", back=True),
        Case(2, (20, 20), kind="norm"), Case(6, (48, 48), convs=2, kind="residual"),
        Case(3, (100, 60), convs=2, kind="relu"), Case(1, (256, 256), 32, convs=2, kind="relu"),
        Case(5, (24, 24), 320, kind="group"), Case(2, convs=2, kind="group", back=True),
        Case(2, (128, 128), 64, convs=2, kind="relu"), Case(2, (128, 128), 32, convs=2, kind="relu"),
        Case(4, (64, 64), 16, convs=2, kind="relu"), Case(4, (64, 64), 64, convs=2, kind="silu", back=True),
    )  # fmt: skip
    yield from drawn(44, seed=7)


def held_out() -> Iterator[Case]:
    """What no constant was chosen on."""
    return drawn(25, seed=8)


SIZES = {1: (64, 2000), 2: (9, 130), 3: (8, 24)}
"""Least and most places along a dim, by how many dims of space there are."""

ELEMENTS = (2e4, 3.2e6)
"""Least and most elements of the images: fewer are launches alone, more take the compiler minutes."""


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Programs drawn at random, of 1 to 7 images."""
    rng, found = random.Random(seed), 0
    while found < count:
        rank = rng.choice([2] * 8 + [1, 3])
        square, size = rng.randint(*SIZES[rank]), tuple(rng.randint(*SIZES[rank]) for _ in range(rank))
        stride, dilation = rng.choice([1, 1, 1, 1, 2]), rng.choice([1, 1, 1, 1, 1, 2])
        case = Case(
            batch=rng.randint(1, 7),
            size=(square,) * rank if rng.random() < 0.6 else size,
            features=rng.choice([16, 32, 48, 64, 96, 128, 192, 256]),
            window=rng.choice([3, 3, 3, 3, 5, 7, 1]),
            stride=stride,
            dilation=1 if stride > 1 else dilation,
            dtype=rng.choice(["f32", "f32", "bf16"]),
            convs=rng.randint(1, 2 if stride > 1 else 3),
            kind=rng.choice(["plain", "silu", "relu", "norm", "group"] + ["residual", "stem"] * (stride == 1)),
            back=rng.random() < 0.55,
        )
        if ELEMENTS[0] <= case.batch * math.prod(case.size) * case.features <= ELEMENTS[1]:
            found += 1
            yield case
