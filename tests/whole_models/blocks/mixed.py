"""What else stands in models: mixing, norms over a batch, numbers of fewer bits, sorting, solving."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.whole_models.blocks.registered import Get, More, block, layer_norm


@block
def batch_norm(get: Get, x: jax.Array, more: More) -> jax.Array:
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * get("s", (x.shape[-1],)) + get("b", (x.shape[-1],))


@block
def dropped(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Dropout, and a whole path that is dropped for some examples."""
    keep = jax.random.bernoulli(more.key, 0.8, x.shape)
    path = jax.random.uniform(jax.random.fold_in(more.key, 1), (x.shape[0], 1, 1)) < 0.7
    return x + jnp.where(keep, x @ get("w", (x.shape[-1],) * 2), 0) * path.astype(x.dtype)


@block
def mixer(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Products over places, then over features, by transposes."""
    t, d = x.shape[1:]
    y = layer_norm(get, x).swapaxes(1, 2)
    y = x + (jax.nn.gelu(y @ get("t1", (t, 2 * t))) @ get("t2", (2 * t, t))).swapaxes(1, 2)
    return y + jax.nn.gelu(y @ get("d1", (d, d)))


@block
def fourier(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Fourier transforms over features and places (FNet), and a filter there."""
    return x + jnp.fft.fft2(x.astype(jnp.float32)).real.astype(x.dtype) * 0.1 * get("s", (x.shape[-1],))


@block
def shifted(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Each place mixed with the one before it: padded, rolled, joined (RWKV)."""
    d = x.shape[-1]
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, : x.shape[1]]
    mix = jax.nn.sigmoid(get("mix", (d,)))
    return x * mix + before * (1 - mix) + jnp.roll(x, 1, 1) * 0.1 @ get("w", (d, d))


@block
def quantised(get: Get, x: jax.Array, more: More) -> jax.Array:
    """The nearest of some vectors, straight through (VQ)."""
    d = x.shape[-1]
    book = get("book", (8, d))
    far = (x**2).sum(-1, keepdims=True) - 2 * x @ book.T + (book**2).sum(-1)
    return x + lax.stop_gradient(jnp.take(book, far.argmin(-1), axis=0) - x) * 0.5


@block
def top_places(get: Get, x: jax.Array, more: More) -> jax.Array:
    """The best places go through a layer, and back where they were."""
    b, t, d = x.shape
    k = max(t // 2, 1)
    score, place = lax.top_k((x @ get("r", (d,))), k)
    chosen = jnp.take_along_axis(x, place[..., None], 1)
    done = jnp.tanh(chosen @ get("w", (d, d))) * jax.nn.sigmoid(score)[..., None]
    return x.at[jnp.arange(b)[:, None], place].add(done)


@block
def low_rank(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A frozen matrix and a product of two thin ones (LoRA)."""
    d = x.shape[-1]
    return x + x @ lax.stop_gradient(get("w", (d, d))) + 2.0 * ((x @ get("a", (d, 2))) @ get("b", (2, d)))


@block
def whitened(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A small covariance, its Cholesky factor, and a triangular solve."""
    few = min(x.shape[-1], 4)
    y = x[..., :few].reshape(-1, few)
    cov = y.T @ y / max(len(y), 1) + jnp.eye(few, dtype=x.dtype)
    solved = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(cov), y.T, lower=True).T
    return x.at[..., :few].set(solved.reshape(*x.shape[:2], few)) * get("s", (x.shape[-1],))


@block
def solved(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A least squares of few features by QR, and a linear system."""
    few = min(x.shape[-1], 3)
    y = x[..., :few]
    gram = jnp.einsum("bti,btj->bij", y, y) + jnp.eye(few, dtype=x.dtype)
    q, r = jnp.linalg.qr(gram)
    back = jnp.linalg.solve(r @ q + jnp.eye(few, dtype=x.dtype), y.swapaxes(1, 2)).swapaxes(1, 2)
    return x.at[..., :few].set(back) * get("s", (x.shape[-1],))


@block
def squashed(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Nothing but elementwise ops and one scale."""
    return jnp.tanh(x * get("s", (x.shape[-1],))) * 1.5 - 0.25
