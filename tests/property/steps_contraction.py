"""Steps that contract: products of matrices, convolutions, factorisations, Fourier transforms, gradients of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import autopart as ap
from tests.property.pool import Effect, NothingFits, step


@step(Effect.SUMS)
def dot(pool):
    x = pool.draw(2, "fh")
    try:
        y = pool.draw(2, "fh", fits=lambda v: v.ndim == 2 and v.dtype == x.dtype and v.shape[0] == x.shape[-1])
    except NothingFits:
        return jnp.einsum("...ab,...cb->...ac", x, x)
    return x @ y


@step(Effect.SUMS)
def batched_dot(pool):
    x = pool.draw(3)
    return jnp.einsum("b...ik,b...jk->b...ij", x, x + 1)


@step(Effect.SUMS)
def contract_several(pool):
    x = pool.draw(2)
    spec = pool.choose(["...ab,...ab->...a", "...ab,...ab->...", "...ab,...cb->...ca", "...ab,...ab->...b"])
    return jnp.einsum(spec, x, x - 1)


@step(Effect.SUMS)
def half_dot_summed_in_f32(pool):
    x = pool.draw(2, "h")
    return jnp.einsum("...ab,...cb->...ac", x, x, preferred_element_type=jnp.float32)


@step(Effect.SUMS)
def convolve(pool):
    x = pool.draw(3, fits=lambda v: v.ndim == 3 and v.shape[2] > 0)
    groups = pool.choose([1, x.shape[2]])
    kernel = jnp.ones((pool.choose([1, 3]), x.shape[2] // groups, 2 * groups), x.dtype)
    options = pool.choose([{}, {"rhs_dilation": (2,)}, {"lhs_dilation": (2,)}])
    return lax.conv_general_dilated(
        x, kernel, (pool.choose([1, 2]),), "SAME" if "lhs_dilation" not in options else [(1, 1)],
        dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=groups, **options,
    )  # fmt: skip


@step(Effect.SUMS)
def convolution_gradient(pool):
    x = pool.draw(3, fits=lambda v: v.ndim == 3 and 0 < v.size <= 1024)
    kernel = jnp.ones((3, x.shape[2], 2), x.dtype)
    numbers = ("NWC", "WIO", "NWC")

    def run(v, k):
        return jnp.sum(jnp.square(lax.conv_general_dilated(v, k, (1,), "SAME", dimension_numbers=numbers)))

    return jax.grad(run, argnums=int(pool.rng.integers(2)))(lax.rem(x, jnp.full_like(x, 4)), kernel)


@step(Effect.ROUNDS)
def fourier(pool):
    if pool.mesh:
        raise NothingFits  # XLA ends Python where its partitioner meets one beside parts by hand
    x = pool.draw(1, fits=lambda v: v.size > 0)
    return jnp.real(jnp.fft.fft(x)) if pool.coin() else jnp.abs(jnp.fft.rfft(x))


@step(Effect.ROUNDS)
def factorise(pool):
    x = pool.draw(2, fits=lambda v: 0 < v.shape[-1] <= 8 and 0 < v.shape[-2] <= 16)
    x = jnp.tanh(x)
    gram = jnp.einsum("...ij,...kj->...ik", x, x) / x.shape[-1] + 4 * jnp.eye(x.shape[-2])
    lower = jnp.linalg.cholesky(gram)
    return jax.scipy.linalg.solve_triangular(lower, x, lower=True) if x.ndim == 2 and pool.coin() else lower


@step(Effect.ROUNDS)
def softmax_gradient(pool):
    x = pool.draw(2, fits=lambda v: v.size > 0)
    return jax.grad(lambda v: jnp.mean(jax.nn.softmax(v @ jnp.swapaxes(v, -1, -2) * 0.1) ** 2))(jnp.tanh(x))


@step(Effect.SUMS)
def layer(pool):
    """Two products with a tag between them: what a tactic of a user most often names."""
    x = pool.draw(2, fits=lambda v: v.shape[-1] > 0)
    w = jnp.ones((x.shape[-1], 8), x.dtype)
    hidden = ap.tag(pool.tag_name(), lax.rem(x @ w, jnp.full((), 8, x.dtype)))
    return hidden @ jnp.ones((8, x.shape[-1]), x.dtype)
