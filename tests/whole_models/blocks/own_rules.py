"""Functions with rules of their own: gradients, callbacks, errors from the host."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir

from tests.whole_models.blocks.registered import Get, More, block


@jax.custom_vjp
def _clipped(x: jax.Array) -> jax.Array:
    return x


_clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@block
def clipped_gradients(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A gradient of its own, and a layer that is computed again."""
    w = get("w", (x.shape[-1],) * 2)
    return x + _clipped(jax.checkpoint(lambda v: jnp.sin(v @ w))(x))


@block
def checked(get: Get, x: jax.Array, more: More) -> jax.Array:
    """An error from the host where something is wrong, which jax writes while it lowers."""
    return eqx.error_if(x * get("s", (x.shape[-1],)), jnp.isnan(x).any(), "not a number")


def _watched(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda total: None, x.sum())
    return x * 1


_watched_p = Primitive("watched")
_watched_p.def_impl(_watched)
_watched_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(_watched_p, mlir.lower_fun(_watched, multiple_results=False))


@jax.custom_jvp
def _bound(x: jax.Array) -> jax.Array:
    return _watched_p.bind(x)


_bound.defjvp(lambda x, t: (_bound(*x), *t))


@block
def watched(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A callback that no equation shows: a library's own primitive writes it while it is lowered."""
    return _bound(x) * get("s", (x.shape[-1],))
