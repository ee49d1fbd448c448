"""Ops that XLA does not run on the CPU, replaced by what jax itself computes in their place.

%r = chlo.ragged_dot(%lhs, %rhs, %sizes)    ->    %r = call @ragged_dot_0(%lhs, %rhs, %sizes)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from autopart.core.attributes import decode
from autopart.core.doors.jax_internals import func, ir, numpy_dtype
from autopart.core.op_spec_import import summary, tensor_type

_fresh = itertools.count()


def _ragged_dot(op: ir.Operation) -> Callable:
    n = decode(op.attributes["ragged_dot_dimension_numbers"])
    numbers = lax.RaggedDotDimensionNumbers(
        (
            (n["lhs_contracting_dimensions"], n["rhs_contracting_dimensions"]),
            (n["lhs_batching_dimensions"], n["rhs_batching_dimensions"]),
        ),
        n["lhs_ragged_dimensions"],
        n["rhs_group_dimensions"],
    )
    return lambda lhs, rhs, sizes: lax.ragged_dot_general(lhs, rhs, sizes, numbers)


def _first_operand(op: ir.Operation) -> Callable:
    return lambda x: x


def _qr(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    reflectors, taus = jnp.linalg.qr(a, mode="raw")
    return reflectors.mT, taus


def _scan(op: ir.Operation) -> Callable:
    dim, down = (
        decode(op.attributes["dimension"]),
        "is_reverse" in op.attributes and decode(op.attributes["is_reverse"]),
    )
    cumulative, combine = {
        "add": (lax.cumsum, lax.add), "max": (lax.cummax, lax.max), "min": (lax.cummin, lax.min)
    }[summary(op.regions[0])]  # fmt: skip

    def scan(x: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        left = combine(cumulative(x, dim, reverse=down), jnp.broadcast_to(jnp.expand_dims(start, dim), x.shape))
        return left, lax.index_in_dim(left, 0 if down else -1, dim, keepdims=False)

    return scan


_STAND_INS = {
    "chlo.scan": _scan,
    "chlo.ragged_dot": _ragged_dot,
    "stablehlo.collective_broadcast": _first_operand,
    "Eigh": lambda op: lax.linalg.eigh,
    "Qr": lambda op: _qr,
    "ProductOfElementaryHouseholderReflectors": lambda op: lax.linalg.householder_product,
    "autopart_kernel": lambda op: jnp.matmul,
    "LuDecomposition": lambda op: lax.linalg.lu,
}
"""By the op's name; of custom calls by target."""


def _name(op: ir.Operation) -> str:
    return decode(op.attributes["call_target_name"]) if op.name == "stablehlo.custom_call" else op.name


def replace_what_cpu_lacks(module: ir.Module) -> None:
    """Replaces such ops of the module's main function, in place."""
    main = list(module.body.operations)[-1]
    for view in list(main.regions[0].blocks[0].operations):
        op = view.operation
        if _name(op) in _STAND_INS:
            _replace(module, op, _STAND_INS[_name(op)](op))


def _replace(module: ir.Module, op: ir.Operation, function: Callable) -> None:
    types = [tensor_type(v.type) for v in op.operands]
    text = jax.jit(function).lower(*(jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype)) for t in types)).as_text()
    number = next(_fresh)
    text = re.sub(r"(?<!custom_call )@", f"@stand_in_{number}_", text).replace("public ", "private ")
    parsed = ir.Module.parse(text)
    for function_op in list(parsed.body.operations):
        with ir.InsertionPoint.at_block_begin(module.body):
            function_op.operation.clone()
    with ir.InsertionPoint(op):
        call = func.CallOp(
            [r.type for r in op.results], ir.FlatSymbolRefAttr.get(f"stand_in_{number}_main"), list(op.operands)
        )
    for old, new in zip(op.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
