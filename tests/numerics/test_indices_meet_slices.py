"""Do ops that take indices compute the same wherever a slice stands before or behind them?

    x -> sort -> tile -> x.at[i].set(v)                   the tile is cut inside the program, and read by the op
    x -> sort -> dynamic_slice(i) -> whole -> tile        the op's result is cut

Every index position, also out of range and negative, of every kind of op, is one output of one program; values are
whole numbers, so results are equal bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from tests.prompt import slow

ROWS, COLUMNS = 8, 16
X = np.random.default_rng(0).permutation(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype("f4") - 40
FEW = (-20, -1, 1, 5, 16, 40)
ALL = (-20, -17, -16, -9, -8, -7, -4, -2, -1, *range(0, 18), 40)

Kind = Callable[[jax.Array, jax.Array, int], jax.Array]


def _at(x: jax.Array, i: jax.Array, dim: int):
    return x.at[i] if dim == 0 else x.at[:, i]


def _scattered(method: str, count: int, **mode) -> Kind:
    def kind(x, i, dim):
        where = i if count == 1 else jnp.stack([i, i + 3])
        return getattr(_at(x, where, dim), method)(np.float32(7), **mode)

    return kind


def _starts(i: jax.Array, dim: int) -> list:
    return [i if d == dim else 0 for d in range(2)]


def _window(dim: int, size: int) -> list[int]:
    return [size if d == dim else n for d, n in enumerate((ROWS, COLUMNS))]


def _sliced(size: int) -> Kind:
    return lambda x, i, dim: lax.dynamic_slice(x, _starts(i, dim), _window(dim, size))


def _updated(size: int) -> Kind:
    return lambda x, i, dim: lax.dynamic_update_slice(x, jnp.full(_window(dim, size), np.float32(9)), _starts(i, dim))


def _gathered(size: int) -> Kind:
    def kind(x, i, dim):
        return jax.vmap(lambda j: lax.dynamic_slice(x, _starts(j, dim), _window(dim, size)))(i[None])[0]

    return kind


def _blocks_scattered(size: int) -> Kind:
    def kind(x, i, dim):
        updates = jnp.full((1, *_window(dim, size)), np.float32(5))
        indices = jnp.stack(_starts(i, dim))[None]
        return lax.scatter_add(
            x,
            indices,
            updates,
            lax.ScatterDimensionNumbers((1, 2), (), (0, 1)),
            mode=lax.GatherScatterMode.FILL_OR_DROP,
        )

    return kind


KINDS: dict[str, Kind] = {
    "scatter set 1": _scattered("set", 1),
    "scatter add 1": _scattered("add", 1),
    "scatter max 1": _scattered("max", 1),
    "scatter mul 1": _scattered("mul", 1),
    "scatter set 1 clipped": _scattered("set", 1, mode="clip"),
    "scatter set 2": _scattered("set", 2),
    "scatter add 2": _scattered("add", 2),
    "scatter block": _blocks_scattered(4),
    "gather 1": lambda x, i, dim: _at(x, i[None], dim).get(mode="clip"),
    "gather 1 filled": lambda x, i, dim: _at(x, i[None], dim).get(mode="fill", fill_value=3),
    "gather 2": lambda x, i, dim: _at(x, jnp.stack([i, i + 3]), dim).get(mode="clip"),
    "gather block": _gathered(4),
    "dynamic slice 1": _sliced(1),
    "dynamic slice 4": _sliced(4),
    "update 1": _updated(1),
    "update 4": _updated(4),
    "slice of slice": lambda x, i, dim: lax.dynamic_slice(
        lax.dynamic_slice(x, _starts(i, dim), _window(dim, 6)) * 2, _starts(i - 5, dim), _window(dim, 4)
    ),
}

WHERE = {
    "argument": lambda d: [ap.ManualPartition({"x": d}, axis="a")],
    "inside": lambda d: [ap.ManualPartition({"x": ap.REPLICATED, "before": d}, axis="a")],
    "result": lambda d: [ap.ManualPartition({"x": ap.REPLICATED, "before": ap.REPLICATED, "outputs": d}, axis="a")],
    "behind": lambda d: [ap.ManualPartition({"x": ap.REPLICATED, "behind": ap.REPLICATED, "outputs": d}, axis="a")],
    "both": lambda d: [
        ap.ManualPartition({"x": ap.REPLICATED, "before": d, "behind": ap.REPLICATED, "outputs": d}, axis="a")
    ],
}

QUICK = ("both",)


def program(positions: tuple[int, ...], indexed: int, divides: Callable[[tuple[int, ...]], bool]) -> Callable:
    """All kinds at all positions along dim `indexed`, those of one output shape that a tile divides."""

    def run(x, base):
        before = ap.tag("before", jnp.sort(x, axis=0))
        found = {}
        for (name, kind), position in itertools.product(KINDS.items(), positions):
            index = jnp.int32(position) if position % 2 else base + position
            result = kind(before, index, indexed)
            if divides(result.shape):
                found[f"{name} at {position}"] = ap.tag("behind", result) * 2
        return found

    return run


def check(where: str, devices: int, tiled: int, indexed: int, positions: tuple[int, ...], level: int) -> None:
    """Compares every output of the program on `devices` devices, compiled at an optimisation level, with plain jax."""
    fun = program(positions, indexed, lambda shape: shape[tiled] % devices == 0)
    step = ap.jit(fun, ap.Mesh({"a": devices}), WHERE[where](tiled)).lower(X, np.int32(0))
    run = step.compile(compiler_options={"xla_backend_optimization_level": level})
    expected = jax.tree.leaves_with_path(jax.jit(fun)(X, np.int32(0)))
    found = jax.tree.leaves(run(X, np.int32(0)))
    wrong = [path[0].key for (path, a), b in zip(expected, found, strict=True) if not np.array_equal(a, b)]
    assert not wrong, f"{len(wrong)} of {len(expected)} differ: {wrong[:40]}"


@pytest.mark.parametrize("level", [pytest.param(0, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("where", [pytest.param(w, marks=[] if w in QUICK else [pytest.mark.slow]) for w in WHERE])
def test_ops_with_indices_equal_plain_jax_wherever_a_tile_is_cut(where: str, level: int):
    check(where, 2, tiled=0, indexed=0, positions=FEW, level=level)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("indexed", [0, 1])
@pytest.mark.parametrize("tiled", [0, 1])
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("where", WHERE)
def test_every_index_position_equals_plain_jax(where: str, devices: int, tiled: int, indexed: int, level: int):
    check(where, devices, tiled, indexed, ALL, level)


ROW = X.reshape(-1)[:16].reshape(1, 16)

NOTHING_TO_COMBINE: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sort of one row": lambda x: jnp.sort(x, axis=0),
    "sum of one row": lambda x: jnp.sum(x, axis=0, keepdims=True),
    "maximum of one row": lambda x: jnp.max(x, axis=0)[None],
    "cumulative sum of one row": lambda x: lax.cumsum(x, axis=0),
    "windows of one element": lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 1), (1, 1), "VALID"),
    "product with one row": lambda x: jnp.dot(jnp.full((1, 1), 3, x.dtype), x, precision="highest"),
    "outer product": lambda x: jnp.einsum("ka,kb->ab", jnp.full((1, 1), 2, x.dtype), x, precision="highest"),
    "convolution of one element": lambda x: lax.conv(x[:, None], jnp.full((1, 1, 1), 2, x.dtype), (1,), "VALID")[:, 0],
    "one row of a concatenation": lambda x: jnp.concatenate([x], axis=0),
    "transform of one element": lambda x: jnp.real(jnp.fft.fft(x, axis=0)),
    "loop that runs once": lambda x: lax.fori_loop(0, 1, lambda i, y: y * 2, x),
}


@pytest.mark.parametrize("level", [pytest.param(0, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("devices", [2, slow(4)])
def test_what_has_nothing_to_combine_does_not_hide_a_slice(devices: int, level: int):
    def fun(x):
        found = {}
        for (between, op), position in itertools.product(NOTHING_TO_COMBINE.items(), (0, 3, 9, 15)):
            y = op(x)
            part = y[:, :1] * 0 + 7
            found[f"set {position} after {between}"] = y.at[:, position].set(100) * 2
            found[f"max {position} after {between}"] = y.at[:, position].max(50) * 2
            found[f"update {position} after {between}"] = lax.dynamic_update_slice(y, part, (0, position)) * 2
        return found

    schedule = [ap.ManualPartition({"x": ap.REPLICATED, "outputs": 1}, axis="a")]
    step = ap.jit(fun, ap.Mesh({"a": devices}), schedule).lower(ROW)
    run = step.compile(compiler_options={"xla_backend_optimization_level": level})
    expected, found = jax.tree.leaves_with_path(jax.jit(fun)(ROW)), jax.tree.leaves(run(ROW))
    assert [path[0].key for (path, a), b in zip(expected, found, strict=True) if not np.array_equal(a, b)] == []
