"""Kernels that the tests call, with the plain jax functions that they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

MESH = {"d": 2, "m": 2}


def rms_norm(x, w, rows=2, interpret=True):
    """By rows of the last dim, `rows` in a step."""

    def body(x, w, o):
        values = x[...]
        o[...] = values * jax.lax.rsqrt((values * values).mean(-1, keepdims=True) + 1e-6) * w[...]

    flat = x.reshape(-1, x.shape[-1])
    made = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(flat.shape, x.dtype),
        grid=(flat.shape[0] // rows,),
        in_specs=[pl.BlockSpec((rows, flat.shape[1]), lambda i: (i, 0)), pl.BlockSpec(w.shape, lambda i: (0,))],
        out_specs=pl.BlockSpec((rows, flat.shape[1]), lambda i: (i, 0)),
        interpret=interpret,
        name="rms_norm",
    )(flat, w)
    return made.reshape(x.shape)


def plain_norm(x, w):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


def plain_attention(q, k, v, causal=True):
    """Grouped, of [batch, heads, tokens, features]."""
    groups = q.shape[1] // k.shape[1]
    q = q.reshape(q.shape[0], k.shape[1], groups, *q.shape[2:])
    scores = jnp.einsum("bkgsd,bktd->bkgst", q, k)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    made = jnp.einsum("bkgst,bktd->bkgsd", jax.nn.softmax(scores, -1), v)
    return made.reshape(made.shape[0], -1, *made.shape[3:])


def arrays(*shapes, dtype="float32"):
    random = np.random.default_rng(0)
    return [jnp.array(0.3 * random.standard_normal(shape), dtype) for shape in shapes]


def close(found, expected, tolerance=2e-5):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        x, y = (np.asarray(a, np.float64) for a in (x, y))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * max(1e-6, float(abs(y).max())))


def kernels(lowered):
    """What stands on the calls of kernels of a program."""
    specs = lowered.traced.program.specs
    found = [s.attributes.get("mhlo.backend_config") for s in specs if s.kind == "custom_call"]
    return {each["name"]: each for each in found if each and "rule" in each}
