"""Steps that read or write at indices: constant or computed, in range, negative, out of range, one or many."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autopart as ap
from tests.property.pool import Effect, Pool, step

OPERATIONS = ("set", "add", "multiply", "max", "min", "get")
MODES = (None, "clip", "drop", "fill")


def index(pool: Pool, size: int) -> jax.Array | int:
    """A number about `size`: mostly in range, at times negative or beyond it; a constant or a computed one."""
    constant = int(
        pool.choose([pool.rng.integers(size or 1), pool.rng.integers(size or 1), -1, -size - 1, size, size + 2])
    )
    if pool.coin():
        return constant
    computed = jnp.sum(pool.draw(kinds="i")) % 3
    return jnp.asarray(constant + computed - 1, jnp.int32)


def made_here(pool: Pool, x: jax.Array) -> jax.Array:
    """`x` as the program computes it itself, so that a tactic can tile it inside: sorted, tagged, or both."""
    made = pool.choose([lambda v: v, lambda v: jnp.sort(v, axis=0), lambda v: jnp.sort(v, axis=0), jnp.negative])(x)
    return ap.tag(pool.tag_name(), made) if pool.rng.integers(4) else made


def at_one(pool: Pool, x: jax.Array, where, updates) -> jax.Array:
    operation, mode = pool.choose(OPERATIONS), pool.choose(MODES)
    if operation == "get":
        return x.at[where].get(mode=mode, fill_value=3) if mode == "fill" else x.at[where].get(mode=mode)
    mode = "drop" if mode == "fill" else mode
    return getattr(x.at[where], operation)(updates, mode=mode)


@step(Effect.COMPUTES, weight=5)
def one_index(pool):
    """A scatter or gather of one row."""
    x = made_here(pool, pool.draw(1, "fhi", fits=lambda v: v.shape[0] > 0))
    where = index(pool, x.shape[0])
    row = lax.full(x.shape[1:], 7, x.dtype) if pool.coin() else x[0]
    return at_one(pool, x, where, row)


@step(Effect.COMPUTES, weight=2)
def one_element(pool):
    """A scatter or gather of one element of a matrix."""
    x = made_here(pool, pool.draw(2, "fi", fits=lambda v: v.size > 0))
    return at_one(pool, x, (index(pool, x.shape[0]), index(pool, x.shape[1])), 7)


@step(Effect.COMPUTES, weight=2)
def one_index_of_inner_dim(pool):
    x = made_here(pool, pool.draw(2, "fi", fits=lambda v: v.size > 0))
    return at_one(pool, x, (slice(None), index(pool, x.shape[1])), 5)


@step(Effect.COMPUTES)
def several_indices(pool):
    """A scatter or gather of a few rows, some equal (for operations whose order does not matter)."""
    x = made_here(pool, pool.draw(1, "fi", fits=lambda v: v.shape[0] > 0))
    indices = jnp.asarray(pool.rng.integers(-1, x.shape[0] + 1, (int(pool.rng.integers(1, 5)),)))
    operation = pool.choose(["add", "max", "min", "get"])
    if operation == "get":
        return x.at[indices].get(mode="fill", fill_value=3)
    return getattr(x.at[indices], operation)(jnp.ones((len(indices), *x.shape[1:]), x.dtype))


@step(Effect.MOVES)
def take(pool):
    x = pool.draw(1, "fhi", fits=lambda v: v.size > 0)
    at = pool.axis(x)
    indices = jnp.asarray(pool.rng.integers(0, x.shape[at] + 1, (4,)))
    return jnp.take(x, indices, axis=at, mode="clip" if pool.coin() else "fill", fill_value=0)


@step(Effect.MOVES)
def take_by_values(pool):
    table = pool.draw(1, "fi", fits=lambda v: v.shape[0] > 0)
    indices = pool.draw(1, "i", fits=lambda v: 0 < v.size <= 16)
    return table[jnp.abs(indices) % table.shape[0]]


@step(Effect.MOVES)
def take_along(pool):
    x = pool.draw(1, exact=True, fits=lambda v: v.size > 0)
    at = pool.axis(x)
    return jnp.take_along_axis(x, jnp.argsort(x, axis=at), axis=at)


@step(Effect.MOVES)
def pick_per_row(pool):
    """One element of each row, as a loss picks the label's logit."""
    x = pool.draw(2, "fi", fits=lambda v: v.size > 0)
    labels = jnp.asarray(pool.rng.integers(0, x.shape[1], x.shape[:1]))
    return x[jnp.arange(x.shape[0]), labels]


@step(Effect.COMPUTES, weight=2)
def at_each_row(pool):
    """Writes or reads where the rows' own positions, or others beside them, are indices."""
    x = pool.draw(2, "fi", fits=lambda v: v.size > 0)
    rows = jnp.arange(x.shape[0]) + int(pool.choose([0, 0, 0, 1, -1]))
    labels = jnp.asarray(pool.rng.integers(-1, x.shape[1] + 1, x.shape[:1]))
    where = (rows, labels)
    if pool.coin():
        x, where = (x.T, (labels, rows)) if pool.coin() else (jnp.stack([x, -x]), (1, rows, labels))
    return at_one(pool, x, where, 7)


@step(Effect.SUMS)
def scatter_add(pool):
    x = pool.draw(1, fits=lambda v: v.shape[0] > 0)
    indices = jnp.asarray(pool.rng.integers(0, x.shape[0], (4,)))
    return x.at[indices].add(jnp.ones((4, *x.shape[1:]), x.dtype) * jnp.sum(x[:1]))


@step(Effect.MOVES, weight=2)
def dynamic_slice(pool):
    x = made_here(pool, pool.draw(1, "fhi", fits=lambda v: v.size > 0))
    at = pool.axis(x)
    size = pool.choose([1, max(1, x.shape[at] // 2), x.shape[at]])
    return lax.dynamic_slice_in_dim(x, index(pool, x.shape[at]), size, axis=at)


@step(Effect.MOVES, weight=2)
def dynamic_update_slice(pool):
    x = made_here(pool, pool.draw(1, "fhi", fits=lambda v: v.size > 0))
    at = pool.axis(x)
    part = lax.slice_in_dim(jnp.flip(x, at), 0, pool.choose([1, max(1, x.shape[at] // 2)]), axis=at)
    return lax.dynamic_update_slice_in_dim(x, part, index(pool, x.shape[at]), axis=at)


@step(Effect.MOVES)
def dynamic_slice_of_several_dims(pool):
    x = made_here(pool, pool.draw(2, "fi", fits=lambda v: v.size > 0))
    starts = [index(pool, n) for n in x.shape]
    sizes = [int(pool.rng.integers(1, n + 1)) for n in x.shape]
    if pool.coin():
        return lax.dynamic_slice(x, starts, sizes)
    return lax.dynamic_update_slice(x, jnp.zeros(sizes, x.dtype), starts)


@step(Effect.COMPUTES, weight=2)
def one_index_per_row(pool):
    """A batched scatter of one index, by vmap."""
    x = made_here(pool, pool.draw(2, "f", fits=lambda v: v.size > 0))
    labels = jnp.asarray(pool.rng.integers(-1, x.shape[1] + 1, x.shape[:1]))
    operation = pool.choose(["set", "add"])
    return jax.vmap(lambda row, at: getattr(row.at[at], operation)(np.float32(3)))(x, labels)


@step(Effect.COMPUTES, weight=2)
def rows_at_known_places(pool):
    """Rows that are repeated, interleaved, in blocks, around the end or past it; or the gradient of that."""
    x = made_here(pool, pool.draw(1, "fi", fits=lambda v: v.shape[0] >= 4))
    n = x.shape[0]
    each, around = np.arange(n), np.roll(np.arange(n), pool.choose([1, n // 2]))
    known = [np.arange(2 * n) // 2, each[::-1], each ^ 1, around, each[::2], np.tile(each, 2), each + 1]
    rows = pool.choose([*known, pool.rng.permutation(n), np.zeros(n, int)])
    where = jnp.asarray(rows, jnp.int32) if pool.coin() else rows.astype(np.int32)
    if pool.coin() and jnp.issubdtype(x.dtype, jnp.floating):
        weight = lax.broadcasted_iota(x.dtype, (len(rows), *x.shape[1:]), 0)
        return jax.grad(lambda x: jnp.sum(jnp.take(x, where, axis=0, mode="clip") * weight))(x)
    return jnp.take(x, where, axis=0, mode="clip")
