"""Does a schedule written by hand move what an expert would move, and compute the same? A row for each kind of program.

name      function, arguments (tiny, real), what is tiled, (most bytes at the real size, kinds that may move them)
compute   of the real size, at most so many times the unpartitioned program's by n
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import autopart as ap

N = 8
RANDOM = np.random.default_rng(0)


class Row(NamedTuple):
    """A program; `tiny` and `real` are shapes of its arguments, integers below the second entry where there is one."""

    fun: Callable[..., Any]
    tiny: tuple[Any, ...]
    real: tuple[Any, ...]
    tiles: dict[str, int]
    most_bytes: float
    kinds: tuple[str, ...]
    compute: float = 0.0


def mlp(w, x):
    return jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])


def loss(w, x):
    return jnp.mean((mlp(w, x) - x) ** 2)


def updated(w, x):
    return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w, x))


def shuffled(w, rows, seed):
    """PPO: epochs of minibatches of shuffled rows."""

    def epoch(w, key):
        x = rows[jax.random.permutation(key, rows.shape[0])].reshape(4, -1, rows.shape[1])
        return jax.lax.scan(lambda w, x: (updated(w, x), None), w, x)[0], None

    return jax.lax.scan(epoch, w, jax.random.split(jax.random.key(seed), 2))[0]


def replayed(w, buffer, seed):
    return updated(w, buffer[jax.random.randint(jax.random.key(seed), (buffer.shape[0] // 4,), 0, buffer.shape[0])])


def resampled(w, rows, seed):
    return mlp(w, jnp.take(rows, jax.random.choice(jax.random.key(seed), rows.shape[0], (rows.shape[0],)), axis=0)).sum(
        0
    )


def forces(r, m):
    def energy(r):
        d = r[:, None] - r[None]
        q = (d**2).sum(-1) + 0.1
        return (m[:, None] * m[None] / q).sum()

    return -jax.grad(energy)(r)


def nearest(x):
    return jax.lax.top_k(-((x[:, None] - x[None]) ** 2).sum(-1), 3)


def bags(table, ids):
    return jnp.tanh(jnp.take(table, ids, axis=0).sum(1))


def scaled(table, ids, mask):
    return jnp.tanh((table[ids] * mask[..., None]).sum(1))


def orthogonal(x):
    x = x / jnp.linalg.norm(x, axis=(-2, -1), keepdims=True)
    for _ in range(3):
        s = x @ jnp.swapaxes(x, -1, -2)
        x = 2 * x + (s @ s - 1.5 * s) @ x
    return x


def covariance(x):
    return (x - x.mean()).T @ (x - x.mean())


def resized(x):
    return jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2]), "bilinear")


def cubic_gradient(x):
    half = (x.shape[0], x.shape[1] // 2, x.shape[2] // 2)
    return jax.grad(lambda x: (jax.image.resize(x, half, "cubic") ** 2).sum())(x)


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def whole(most: int, *dims: int) -> tuple[int, jax.ShapeDtypeStruct]:
    return most, jax.ShapeDtypeStruct(dims, jnp.int32)


W, LARGE = (shape(8, 16), shape(16, 8)), (shape(1024, 8192), shape(8192, 1024))
SEED = whole(9)
MB = 1e6
REDUCED = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "all_permute")
TABLE = {
    "shuffled minibatches": Row(
        shuffled, (W, shape(64, 8), SEED), (LARGE, shape(2**17, 1024), SEED), {"rows": 0}, 1750 * MB, REDUCED, 1.1
    ),
    "a replay buffer": Row(
        replayed, (W, shape(128, 8), SEED), (LARGE, shape(2**19, 1024), SEED), {"buffer": 0}, 680 * MB, REDUCED, 1.1
    ),
    "a bootstrap": Row(
        resampled, (W, shape(64, 8), SEED), (LARGE, shape(2**17, 1024), SEED), {"rows": 0}, 540 * MB, REDUCED, 1.1
    ),
    "all pairs": Row(
        forces, (shape(16, 3), shape(16)), (shape(8192, 3), shape(8192)), {"r": 0, "m": 0}, 0.5 * MB,
        ("all_gather", "reduce_scatter"), 1.1,
    ),
    "nearest neighbours": Row(nearest, (shape(16, 4),), (shape(4096, 64),), {"x": 0}, 1.1 * MB, ("all_gather",), 1.1),
    "bags of a divided table": Row(
        bags, (shape(64, 8), whole(64, 16, 3)), (shape(10**6, 128), whole(10**6, 65536, 8)), {"table": 0, "ids": 0},
        40 * MB, ("all_gather", "reduce_scatter"),
    ),
    "bags with a tiled mask": Row(
        scaled, (shape(64, 8), whole(64, 16, 3), shape(16, 3)),
        (shape(10**6, 128), whole(10**6, 65536, 8), shape(65536, 8)), {"table": 0, "ids": 0, "mask": 0}, 42 * MB,
        ("all_gather", "reduce_scatter"),
    ),
    "a sort": Row(
        lambda x: jnp.sort(x, axis=0), (shape(16, 24),), (shape(8192, 8192),), {"x": 0}, 34 * MB, ("all_to_all",)
    ),
    "transforms of both dims": Row(
        lambda x: jnp.abs(jnp.fft.fft(jnp.fft.fft(x, axis=1), axis=0)), (shape(16, 24),), (shape(4096, 4096),),
        {"x": 0}, 17 * MB, ("all_to_all",),
    ),
    "factors of matrices": Row(
        lambda x: jnp.linalg.cholesky(x @ jnp.swapaxes(x, -1, -2) + 9 * jnp.eye(x.shape[-1])), (shape(8, 8, 8),),
        (shape(32, 1024, 1024),), {"x": 1}, 17 * MB, ("all_to_all",),
    ),
    "Newton-Schulz": Row(
        orthogonal, (shape(8, 8, 16),), (shape(32, 2048, 2048),), {"x": 1}, 700 * MB, ("all_to_all", "all_reduce")
    ),
    "a matrix by itself": Row(
        covariance, (shape(32, 16),), (shape(65536, 1024),), {"x": 1}, 270 * MB, ("all_gather", "all_reduce")
    ),
    "twice as large": Row(
        resized, (shape(2, 256, 16),), (shape(64, 1024, 1024),), {"x": 1}, 1 * MB, ("all_permute",)
    ),
    "half, and its gradient": Row(
        cubic_gradient, (shape(2, 512, 32),), (shape(64, 1024, 1024),), {"x": 1}, 7 * MB, ("all_permute",)
    ),
}  # fmt: skip


def made(of: Any) -> Any:
    if isinstance(of, tuple) and isinstance(of[0], int):
        return RANDOM.integers(0, of[0], of[1].shape).astype(np.int32)
    if isinstance(of, tuple):
        return tuple(map(made, of))
    return RANDOM.normal(size=of.shape).astype(np.float32)


def abstract(of: Any) -> Any:
    if isinstance(of, tuple):
        return of[1] if isinstance(of[0], int) else tuple(map(abstract, of))
    return of


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_numbers_are_those_of_one_device(row: Row):
    arguments = tuple(map(made, row.tiny))
    step = ap.jit(row.fun, ap.Mesh({"d": N}, device="tpu_v3"), [ap.ManualPartition(row.tiles, "d")])
    for want, got in zip(jax.tree.leaves(jax.jit(row.fun)(*arguments)), jax.tree.leaves(step(*arguments)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * float(np.abs(want).max()))


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_what_moves_is_what_an_expert_would_move(row: Row):
    arguments, mesh = tuple(map(abstract, row.real)), ap.Mesh({"d": N}, device="tpu_v3")
    estimate = ap.jit(row.fun, mesh, [ap.ManualPartition(row.tiles, "d")]).lower(*arguments).estimate
    moved = {kind: total.bytes for kind, total in estimate.collectives.items() if total.count}
    assert moved.keys() <= set(row.kinds)
    assert sum(moved.values()) <= row.most_bytes
    if row.compute:
        alone = ap.jit(row.fun, mesh, []).lower(*arguments).estimate
        assert estimate.compute_s <= row.compute * alone.compute_s / N


def test_a_look_up_of_tokens_before_divided_products_stays_a_sum():
    def decoder(table, w, tokens):
        x = jnp.tanh(table[tokens])
        return jax.nn.log_softmax(jnp.tanh(x @ w) @ w.T @ table.T)

    shapes = shape(32768, 1024), shape(1024, 4096), whole(1, 8, 1024)[1]
    schedule = [ap.ManualPartition({"table": 0, "w": 1}, "d")]
    low = ap.jit(decoder, ap.Mesh({"d": N}, device="tpu_v3"), schedule).lower(*shapes)
    assert [tactic.name for tactic in low.metadata.tactics] == ["ManualPartition[d]"]
    assert not low.estimate.collectives["reduce_scatter"].count


def test_axes_stand_inside_in_the_order_in_which_they_are_given():
    def fun(w, x):
        return w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

    for order in (("a", "b"), ("b", "a")):
        step = ap.jit(fun, ap.Mesh({"a": 4, "b": 2}), in_shardings=(P(order), P(order)), out_shardings=P(order))
        assert not step.lower(shape(64, 64), shape(128, 64)).program.collectives()["all_permute"]
