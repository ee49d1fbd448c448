"""Do ops whose tiles read pieces of other tiles give the numbers of the whole, on eight devices and in sequence?

Chains of slices, pads, concatenations, reversals, pooling and convolutions that nobody wrote, drawn from a seed, along
a dim that one axis or two tile; values are whole numbers, so results are equal bit for bit. Gradients of their squares.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.spmd.verify_local import verify
from tests.prompt import only

MESHES = {
    "one axis": ({"a": 8}, (("a", 1),)),
    "two axes on one dim": ({"a": 2, "b": 4}, (("b", 1), ("a", 1))),
    "a batch beside": ({"a": 2, "b": 4}, (("a", 0), ("b", 1))),
}
SIZE = 48
X = np.random.default_rng(0).integers(-4, 5, (8, SIZE, 2)).astype(np.float32)
Op = Callable[[jax.Array, np.random.Generator], jax.Array]


def _part(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    size = x.shape[1] // 2 if x.shape[1] > SIZE else max(24, x.shape[1] // 2)
    start = int(rng.integers(0, x.shape[1] - size + 1))
    return x[:, start : start + size]


def _thinned(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    return x[:, int(rng.integers(0, 2)) : x.shape[1] : 2] if x.shape[1] >= SIZE else x


def _padded(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    low = int(rng.integers(-9, 10))
    return lax.pad(x, np.float32(rng.choice([0, 2])), ((0, 0, 0), (low, -low, 0), (0, 0, 0)))


def _spread(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    low = int(rng.integers(0, 2))
    return lax.pad(x, np.float32(0), ((0, 0, 0), (low, 1 - low, 1), (0, 0, 0))) if x.shape[1] < SIZE else x


def _joined(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    return jnp.concatenate([x, 2 * x] if rng.integers(2) else [x, x[:, : x.shape[1] // 2], -x], axis=1)


def _turned(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    return x[:, ::-1]


def _pooled(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    start, by = [(0.0, lax.add), (-np.inf, lax.max)][int(rng.integers(2))]
    return lax.reduce_window(x, np.float32(start), by, (1, int(rng.choice([2, 3, 5])), 1), (1, 1, 1), "SAME")


def _convolved(x: jax.Array, rng: np.random.Generator) -> jax.Array:
    kernel = rng.integers(-1, 2, (int(rng.choice([2, 3, 4])), 2, 2)).astype(np.float32)
    dilation = int(rng.integers(1, 3))
    strides = (int(rng.integers(1, 3)) if x.shape[1] >= SIZE else 1,)
    return lax.conv_general_dilated(
        x, kernel, strides, "SAME", rhs_dilation=(dilation,), dimension_numbers=("NWC", "WIO", "NWC")
    )


OPS: tuple[Op, ...] = (_part, _thinned, _padded, _spread, _joined, _turned, _pooled, _convolved)


def chain(seed: int, ops: tuple[Op, ...] = OPS, length: int = 3) -> Callable[[jax.Array], jax.Array]:
    """A function of x[batch, size, 2]: some of the ops one after the other."""

    def fun(x: jax.Array) -> jax.Array:
        rng = np.random.default_rng(seed)
        x = x + 1
        for number in rng.integers(0, len(ops), length):
            x = ops[number](x, rng) * 1.0
        return x

    return fun


def several(seeds: range, grad: bool = False) -> Callable[[jax.Array], list[jax.Array]]:
    """Chains of one program, or the gradients of linear ones."""
    linear = tuple(op for op in OPS if op is not _pooled)

    def fun(x: jax.Array) -> list[jax.Array]:
        if not grad:
            return [chain(seed)(x) for seed in seeds]
        chains = [chain(seed, linear, 2) for seed in seeds]
        return [jax.grad(lambda x, one=one: jnp.sum(one(x) ** 2))(x) for one in chains]

    return fun


def same_everywhere(fun: Callable[[jax.Array], list[jax.Array]], mesh: str) -> ap.Lowered:
    """Checks a program on a mesh against plain jax; the lowered program."""
    sizes, tiles = MESHES[mesh]
    schedule = [ap.ManualPartition({"x": dim}, axis=axis) for axis, dim in tiles]
    step = ap.jit(fun, ap.Mesh(sizes), schedule)
    low = step.lower(X)
    verify(low.program)
    expected = fun(jnp.asarray(X))
    for one, other in zip(step(X), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return low


@pytest.mark.parametrize("mesh", only(["two axes on one dim"], MESHES))
def test_chains_that_nobody_wrote_are_equal_on_eight_devices(mesh: str):
    low = same_everywhere(several(range(8)), mesh)
    assert low.program.collectives()["all_permute"] > 8


@pytest.mark.parametrize("mesh", only(["a batch beside"], MESHES))
def test_gradients_of_chains_are_equal(mesh: str):
    low = same_everywhere(several(range(100, 105), grad=True), mesh)
    assert low.program.collectives()["all_permute"] > 8


def test_loops_run_in_sequence_give_the_same_numbers():
    fun = several(range(8))
    low = ap.jit(fun, ap.Mesh({"a": 2, "b": 2}), [ap.ManualPartition({"x": 1}, axis=a) for a in "ab"]).lower(X)
    for one, other in zip(low.interpret(X), fun(jnp.asarray(X)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("batch", range(10))
def test_many_chains_are_equal(batch: int, mesh: str):
    same_everywhere(several(range(200 + 10 * batch, 210 + 10 * batch)), mesh)
    same_everywhere(several(range(200 + 10 * batch, 206 + 10 * batch), grad=True), mesh)


POOLS = {
    "as jax pads": ((1, 3, 1), (1, 2, 1), "SAME"),
    "padded before": ((1, 3, 1), (1, 2, 1), ((0, 0), (1, 0), (0, 0))),
    "around": ((1, 3, 1), (1, 1, 1), "SAME"),
    "wide, of rows and features": ((1, 5, 2), (1, 3, 1), ((0, 0), (1, 1), (1, 0))),
}


@pytest.mark.parametrize("pool", [p if p == "as jax pads" else pytest.param(p, marks=pytest.mark.slow) for p in POOLS])
def test_gradients_of_overlapping_pools_read_what_their_windows_do(pool):
    def fun(x: jax.Array) -> jax.Array:
        return jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -np.inf, lax.max, *POOLS[pool]) ** 2))(x + 1)

    sizes, tiles = MESHES["two axes on one dim"]
    step = ap.jit(fun, ap.Mesh(sizes), [ap.ManualPartition({"x": d}, axis=a) for a, d in tiles])
    low = step.lower(X)
    assert not low.metadata.gathered
    np.testing.assert_array_equal(step(X), jax.jit(fun)(X))
    np.testing.assert_array_equal(low.interpret(X), jax.jit(fun)(X))


def test_a_small_part_of_a_tiled_dim_is_summed_over_devices():
    def fun(x: jax.Array) -> tuple[jax.Array, ...]:
        return x[:, 0] * 2, x[:, -1] > 0, x[:, 5:8] + 1, x[2:3, 40:41, :1]

    sizes, tiles = MESHES["a batch beside"]
    step = ap.jit(fun, ap.Mesh(sizes), [ap.ManualPartition({"x": d}, axis=a) for a, d in tiles])
    assert set(step.lower(X).program.collectives()) == {"all_reduce"}
    for got, want in zip(step(X), fun(jnp.asarray(X)), strict=True):
        np.testing.assert_array_equal(got, want)
