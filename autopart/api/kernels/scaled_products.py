"""Products of blocks with scales of their own, `jax.nn.scaled_matmul` and `scaled_dot_general`: b, m and n are sliced.

    a[b,m,k] a_scale[b,m,k/32] . b[b,n,k] b_scale[b,n,k/32] -> out[b,m,n]    slices of k leave parts, which are added up

Where cuDNN has no such product, arrays are scaled and multiplied in plain jax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from autopart.core.importer.host_calls import KernelCall
from autopart.core.importer.jaxprs import Use
from autopart.core.kernel_calls.kernel_body import KernelBody
from autopart.core.kernel_calls.sharding_rule import factors_of
from autopart.core.ops.traits import Work

_RULE = "b m k, b n k, b m k, b n k -> b m n; tile b m n; reduce k={}"


def scaled_product(ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], use: Use) -> KernelCall:
    """A call of it; its one result is read."""
    primitive, operands, (result,) = cast(Primitive, ctx.primitive), tuple(ctx.avals_in), tuple[Any, ...](ctx.avals_out)
    shapes = [a.shape for a in cast("tuple[Any, ...]", operands)]
    factors = factors_of(_RULE.format(shapes[2][2]), shapes, [result.shape])  # a block with one scale is not cut

    def twin(a: Any, b: Any, a_scale: Any, b_scale: Any) -> list[Any]:
        sides = (_scaled(x, scale) for x, scale in ((a, a_scale), (b, b_scale)))
        return [jax.numpy.einsum("bmk,bnk->bmn", *sides).astype(result.dtype)]

    body = KernelBody(
        "scaled product", operands, lambda _: lambda *x: primitive.bind(*x, **params), lambda _: twin, ("cuda",)
    )
    work = Work(2.0 * result.size * shapes[0][2], 0.0)
    return KernelCall(body, factors, work, (str(primitive), str(operands), str(params), *use.read))


def _scaled(x: Any, scale: Any) -> Any:
    return x.astype(np.float32) * jax.numpy.repeat(scale.astype(np.float32), x.shape[2] // scale.shape[2], axis=2)
