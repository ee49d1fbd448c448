"""The kernels of the runs, which autopart sees from outside: what they compute, and how they may be sliced.

attention    q [batch, kv, group, tokens, width], k and v [batch, kv, tokens, width]; causal: half of the scores
grouped      rows [batch, rows, in] times one matrix [in, out] for each expert; rows are sorted by expert
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

import autopart as ap
from autopart.core.op import SUM, WHOLE
from autopart.core.ops.batching import alike


def _scores_flop(spec: Any) -> float:
    """Flop of one product over the causal half of the scores."""
    *outer, tokens, width = spec.operands[0].shape
    return math.prod(outer) * tokens * tokens * width


def _product_flop(spec: Any) -> float:
    """Flop of the product of every row with the matrix of its expert."""
    batch, rows, width = spec.operands[0].shape
    return 2 * batch * rows * width * spec.operands[1].shape[2]


@ap.register_custom_call(
    "published_attention",
    traits=ap.op_traits.Opaque(flop=lambda spec: 2 * _scores_flop(spec), matrix=True),
    batched=alike,
)
def _attention(spec: Any) -> list[ap.TileMapping]:
    """Batch and heads, and what is before them; a group of queries reads whole keys."""
    *outer, group, _, _ = spec.operands[0].shape
    return [
        *(ap.TileMapping((d,) * 3, (d, d), size) for d, size in enumerate(outer)),
        ap.TileMapping((len(outer), WHOLE, WHOLE), (len(outer),) * 2, group),
    ]


@ap.register_custom_call(
    "published_attention_gradient",
    traits=ap.op_traits.Opaque(flop=lambda spec: 5 * _scores_flop(spec), matrix=True),
    batched=alike,
)
def _attention_gradient(spec: Any) -> list[ap.TileMapping]:
    """The same; a group of queries leaves a part of the gradients of keys and values."""
    *outer, group, _, _ = spec.operands[0].shape
    n = len(outer)
    return [
        *(ap.TileMapping((d,) * 6, (d,) * 3, size) for d, size in enumerate(outer)),
        ap.TileMapping((n, WHOLE, WHOLE, n, n, n), (n, SUM, SUM), group),
    ]


@ap.register_custom_call("published_grouped", traits=ap.op_traits.Opaque(flop=_product_flop, matrix=True))
def _grouped(spec: Any) -> list[ap.TileMapping]:
    """Batch, columns, and the sum over what rows and matrices share."""
    (batch, _, width), (_, _, columns), _ = (operand.shape for operand in spec.operands)
    return [
        ap.TileMapping((0, WHOLE, 0), (0,), batch),
        ap.TileMapping((WHOLE, 2, WHOLE), (2,), columns),
        ap.TileMapping((2, 1, WHOLE), (SUM,), width),
    ]


@ap.register_custom_call("published_grouped_gradient", traits=ap.op_traits.Opaque(flop=_product_flop, matrix=True))
def _grouped_gradient(spec: Any) -> list[ap.TileMapping]:
    """Sums over the batch; rows and columns of the matrices."""
    (batch, _, width), (_, _, columns), _ = (operand.shape for operand in spec.operands)
    return [
        ap.TileMapping((0, 0, 0), (SUM,), batch),
        ap.TileMapping((2, WHOLE, WHOLE), (1,), width),
        ap.TileMapping((WHOLE, 2, WHOLE), (2,), columns),
    ]


def _like(*arrays: jax.Array) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)


def _attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    kept = jax.ShapeDtypeStruct(q.shape[:4], jnp.float32)
    out, scale = jax.ffi.ffi_call("published_attention", (*_like(q), kept))(q, k, v)
    return out, scale


@jax.custom_vjp
def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention, [batch, kv, group, tokens, width]."""
    return _attend(q, k, v)[0]


def _attend_keeping(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    out, scale = _attend(q, k, v)
    return out, (q, k, v, out, scale)


def _attend_back(kept: tuple[jax.Array, ...], flowing: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jax.ffi.ffi_call("published_attention_gradient", _like(*kept[:3]))(*kept, flowing))


attention.defvjp(_attend_keeping, _attend_back)


def _multiply(rows: jax.Array, matrices: jax.Array, sizes: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct((*rows.shape[:2], matrices.shape[2]), rows.dtype)
    return jax.ffi.ffi_call("published_grouped", shape)(rows, matrices, sizes)


@jax.custom_vjp
def grouped_product(rows: jax.Array, matrices: jax.Array, sizes: jax.Array) -> jax.Array:
    """Each row times the matrix of its expert: [batch, rows, out]."""
    return _multiply(rows, matrices, sizes)


def _multiply_back(kept: tuple[jax.Array, ...], flowing: jax.Array) -> tuple[jax.Array | None, ...]:
    rows, matrices, sizes = kept
    gradient = jax.ffi.ffi_call("published_grouped_gradient", _like(matrices)[0])(rows, flowing, sizes)
    return _multiply(flowing, matrices.swapaxes(1, 2), sizes), gradient, None


grouped_product.defvjp(lambda *operands: (_multiply(*operands), operands), _multiply_back)
