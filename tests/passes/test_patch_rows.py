"""Do rows of patches become features where there are few, and do numbers stay, whole and partitioned?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.spmd.verify_local import verify
from tests.prompt import in_turn

MESH = ap.Mesh({"a": 4, "b": 2})
RANDOM = np.random.default_rng(0)


class Patches(NamedTuple):
    """Images, a kernel, the strides and the letters of their dims."""

    images: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    letters: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC")
    padding: str | list[tuple[int, int]] = "VALID"
    groups: int = 1

    def __call__(self, x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, self.strides, self.padding, dimension_numbers=self.letters, feature_group_count=self.groups
        )


def _integers(shape: tuple[int, ...]) -> np.ndarray:
    return RANDOM.integers(-2, 3, shape).astype(np.float32)


FOLDED = {
    "patches": Patches((8, 16, 32, 3), (4, 8, 3, 8), (4, 8)),
    "features first": Patches((8, 3, 16, 32), (8, 3, 4, 8), (4, 8), ("NCHW", "OIHW", "NCHW")),
    "features in between": Patches((16, 8, 3, 32), (4, 3, 8, 8), (4, 8), ("HNCW", "HIWO", "NHWC")),
    "one feature": Patches((8, 16, 64, 1), (4, 32, 1, 8), (4, 32)),
    "windows that overlap along the other dim": Patches((8, 16, 32, 3), (4, 8, 3, 8), (2, 8)),
    "padding along the other dim": Patches((8, 14, 32, 3), (4, 8, 3, 8), (4, 8), padding=[(1, 1), (0, 0)]),
    "lines": Patches((8, 32, 3), (16, 3, 8), (16,), ("NHC", "HIO", "NHC")),
    "videos": Patches((4, 4, 8, 16, 3), (2, 4, 8, 3, 8), (2, 4, 8), ("NDHWC", "DHWIO", "NDHWC")),
}
"""One dim of space is folded into the features of the images."""

KEPT = {
    "many features": Patches((8, 16, 32, 8), (4, 8, 8, 8), (4, 8)),
    "few features even so": Patches((8, 16, 16, 3), (4, 4, 3, 8), (4, 4)),
    "windows that overlap": Patches((8, 16, 32, 3), (4, 8, 3, 8), (4, 4)),
    "windows that are apart": Patches((8, 16, 32, 3), (4, 8, 3, 8), (4, 16)),
    "padding": Patches((8, 16, 30, 3), (4, 8, 3, 8), (4, 8), padding=[(0, 0), (1, 1)]),
    "what is left over": Patches((8, 16, 34, 3), (4, 8, 3, 8), (4, 8)),
    "groups": Patches((8, 16, 32, 4), (4, 8, 2, 8), (4, 8), groups=2),
}

SCHEDULES: dict[str, list[tuple[str, str, str]]] = {
    "whole": [],
    "images": [("x", "N", "a")],
    "rows of patches": [("x", "H", "b")],
    "output features": [("w", "O", "b")],
    "images, and the kernel stored in parts": [("x", "N", "a"), ("w", "H", "a")],
    "both axes": [("x", "N", "a"), ("w", "O", "b")],
}
"""What is tiled: an argument, the letter of its dim, the axis."""

Step = Callable[[jax.Array, jax.Array], object]


def _step(patches: Patches) -> Step:
    """The convolution and the gradient of its kernel."""

    def step(x: jax.Array, w: jax.Array) -> object:
        out, gradient = jax.vjp(lambda w: patches(x, w), w)
        return out, *gradient(jnp.sign(out))

    return step


def _is_folded(patches: Patches, schedule: str) -> bool:
    """Whether all convolutions read images of another shape after import; partitioned, numbers are those of jax."""
    x, w = _integers(patches.images), _integers(patches.kernel)
    letters = dict(zip("xw", patches.letters, strict=False))
    tactics = [ap.ManualPartition({n: letters[n].index(dim)}, axis=axis) for n, dim, axis in SCHEDULES[schedule]]
    fun = _step(patches)
    step = ap.jit(fun, MESH, tactics)
    program = step.lower(x, w).program
    verify(program)
    for ours, theirs in zip(*map(jax.tree.leaves, (step(x, w), fun(jnp.asarray(x), jnp.asarray(w)))), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    specs = map(program.program.spec, range(program.program.op_count))
    shapes = {spec.operands[0].shape for spec in specs if spec.kind == "convolution"}
    assert len(shapes) == 1
    return shapes != {x.shape}


@pytest.mark.parametrize(("name", "schedule"), in_turn(FOLDED, SCHEDULES))
def test_rows_of_patches_become_features(name: str, schedule: str) -> None:
    assert _is_folded(FOLDED[name], schedule)


@pytest.mark.parametrize("name", KEPT)
def test_other_convolutions_stay(name: str) -> None:
    assert not _is_folded(KEPT[name], "images")


def test_the_convolution_and_the_gradient_read_one_array() -> None:
    patches = FOLDED["patches"]
    program = ap.jit(_step(patches), MESH, []).lower(*map(_integers, patches[:2])).program.program
    read = [program.operands_of(op)[0] for op in range(program.op_count) if program.spec(op).kind == "convolution"]
    assert len(read) == 2
    assert len(set(read)) == 1
