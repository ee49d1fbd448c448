"""Random programs that read neighbours over borders: padding in any mode, and what slides over it, or its gradient.

    BorderedProgram(7)    pad "reflect" by 1 and 2 on dims 1 and 2, tanh, a convolution of windows of 3, dilated by 2;
                          a pad "wrap" by 1 and 0, a maximum over windows of 2, stride 2; the gradient of its squares

Arrays are [batch, space.., features]. A layer leaves as many places as it read, or half of them.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MODES = ("wrap", "reflect", "edge", "symmetric", "constant", "joined")
KINDS = ("convolution", "convolution", "depthwise", "largest", "sum", "stencil")
FEATURES = 4


class Layer(NamedTuple):
    """Padding of the dims of space, by so much before and behind, and windows over them."""

    mode: str
    kind: str
    pads: tuple[tuple[int, int], ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    bent: bool

    def padded(self, x: jax.Array) -> jax.Array:
        """With its borders."""
        if self.mode != "joined":
            return jnp.pad(x, ((0, 0), *self.pads, (0, 0)), mode=self.mode)
        for dim, (low, high) in enumerate(self.pads, 1):
            ends = (lax.slice_in_dim(x, 0, n, axis=dim) for n in (low, high))
            x = jnp.concatenate([2 * next(ends), x, 1 - next(ends)], dim) if low or high else x
        return x

    def __call__(self, x: jax.Array, w: jax.Array) -> jax.Array:
        """The next array; `w` is [window.., features, features]."""
        p = self.padded(x)
        p = jnp.tanh(p) if self.bent else p
        rest = {"window_strides": self.stride, "padding": "VALID"}
        if self.kind in ("convolution", "depthwise"):
            groups = FEATURES if self.kind == "depthwise" else 1
            w, space = w[..., : FEATURES // groups, :], "DHW"[-len(self.pads) :]
            numbers = f"N{space}C", f"{space}IO", f"N{space}C"
            return lax.conv_general_dilated(
                p, w, rhs_dilation=self.dilation, dimension_numbers=numbers, feature_group_count=groups, **rest
            )
        if self.kind in ("largest", "sum"):
            by, start = (lax.max, -np.inf) if self.kind == "largest" else (lax.add, 0.0)
            sides = (((1, *n, 1)) for n in (self.window, self.stride))
            return lax.reduce_window(p, start, by, *sides, "VALID", window_dilation=(1, *self.dilation, 1))
        total = jnp.zeros((), p.dtype)
        for place in itertools.product(*(range(n) for n in self.window)):
            first = [k * d for k, d in zip(place, self.dilation, strict=True)]
            size = [self.out(n - sum(e), d) for d, (n, e) in enumerate(zip(p.shape[1:-1], self.pads, strict=True))]
            last = [a + (n - 1) * s + 1 for a, n, s in zip(first, size, self.stride, strict=True)]
            row = lax.slice(p, (0, *first, 0), (p.shape[0], *last, p.shape[-1]), (1, *self.stride, 1))
            total = total + (1 + sum(place)) * row
        return total

    def out(self, size: int, dim: int) -> int:
        """Places that are left of so many."""
        return size // self.stride[dim]


class BorderedProgram:
    """A program of one or two layers, and where its array is tiled, from a seed."""

    def __init__(self, seed: int):
        rng = np.random.default_rng([seed, 2])
        self.space = int(rng.integers(1, 3))
        self.gradient = bool(rng.integers(2))
        self.layers = [_layer(rng, self.space, self.gradient) for _ in range(rng.integers(1, 3))]
        self.axes = int(rng.integers(1, self.space + 1))
        self.first = int(rng.integers(1, self.space + 2 - self.axes))

    def __str__(self) -> str:
        what = "; ".join(map(str, self.layers))
        return f"{what}; gradient {self.gradient}; axes {self.axes} from dim {self.first}"

    def fun(self, x: jax.Array, w: list[jax.Array]) -> Any:
        """The result, or the gradients of the sum of its squares."""

        def run(x: jax.Array, w: list[jax.Array]) -> jax.Array:
            for layer, each in zip(self.layers, w, strict=True):
                x = layer(x, each)
            return x

        return jax.grad(lambda x, w: jnp.sum(run(x, w) ** 2), (0, 1))(x, w) if self.gradient else run(x, w)

    def shapes(self, size: int) -> tuple[jax.ShapeDtypeStruct, list[jax.ShapeDtypeStruct]]:
        """Arguments of so many places along each dim of space."""
        of = [(2, *(size,) * self.space, FEATURES), *((*m.window, FEATURES, FEATURES) for m in self.layers)]
        x, *w = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in of)
        return x, w

    def border_bytes(self, size: int) -> float:
        """Bytes of all borders of an array of that size, once."""
        x, _ = self.shapes(size)
        places = sum(max((n - 1) * d for n, d in zip(m.window, m.dilation, strict=True)) for m in self.layers)
        return 4 * x.size / size * places * self.space


def _layer(rng: np.random.Generator, space: int, gradient: bool) -> Layer:
    mode, kind = str(rng.choice(MODES)), str(rng.choice(KINDS))
    holes = kind != "largest" or not gradient  # jax has no gradient of a maximum over windows with holes
    dims = [bool(rng.integers(4)) for _ in range(space)]
    dims[int(rng.integers(space))] = True
    window = tuple(int(rng.integers(2, 5)) if d else 1 for d in dims)
    stride = tuple(int(rng.integers(3)) // 2 + 1 if d else 1 for d in dims)
    dilation = tuple(int(rng.integers(4)) // 3 + 1 if d and holes else 1 for d in dims)
    pads = list[tuple[int, int]]()
    for n, s, d in zip(window, stride, dilation, strict=True):
        total = max((n - 1) * d + 1 - int(rng.integers(1, s + 1)), 0)
        low = int(rng.integers(total + 1)) if rng.integers(2) else total // 2
        pads.append((low, total - low))
    return Layer(mode, kind, tuple(pads), window, stride, dilation, bool(rng.integers(2)))
