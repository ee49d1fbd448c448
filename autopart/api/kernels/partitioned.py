"""Functions that carry a rule of their own: `jax.experimental.custom_partitioning` with a `sharding_rule`.

    f.def_partition(partition, sharding_rule="... i j, j k -> ... i k")
    x[8,16,32] w[32,64] -> y[8,16,64]        ... and i and k tiled; j whole, unless it is among the reduction factors

On a device it is what its `partition` gives for arrays that are not partitioned, of the shapes that the device holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from autopart.api.kernels.twin import twin_work
from autopart.core.importer.host_calls import KernelCall
from autopart.core.importer.jaxprs import Use
from autopart.core.kernel_calls.kernel_body import Flat, KernelBody, reading
from autopart.core.kernel_calls.sharding_rule import Factors, factors_of


def partitioned_function(ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], use: Use) -> KernelCall:
    """A call of one, use.read."""
    operands, results = (cast("tuple[Any, ...]", tuple(avals)) for avals in (ctx.avals_in, ctx.avals_out))
    name = params["partition"].__name__.removesuffix("_partition").removesuffix("partition").strip("_")
    name = name or params["call"].jaxpr.debug_info.func_name
    factors, whole = _factors(ctx, params, operands, results)

    def kernel(avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        ways = factors.ways([a.shape for a in operands], [a.shape for a in avals])
        left = factors.slices([jax.ShapeDtypeStruct(r.shape, r.dtype) for r in results], ways, of_results=True)
        given, made = params["in_tree"].unflatten(map(_placed, avals)), params["out_tree"].unflatten(map(_placed, left))
        function = params["partition"](*params["static_args"], _mesh(), given, made)[1]

        return lambda *arrays: jax.tree.leaves(function(*params["in_tree"].unflatten(arrays)))

    key = (
        id(params["partition"]),
        str(params["static_args"]),
        str(operands),
        str(results),
        str(params["call"]),
        *use.read,
    )
    work = twin_work(jaxpr_as_fun(params["call"]), [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in operands])
    return KernelCall(
        KernelBody(name, operands, reading(kernel, use.read)), factors.reading(use.read), work, key, whole=whole
    )


def _mesh() -> jax.sharding.Mesh:
    """A mesh of one device, over which nothing is partitioned."""
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("autopart",))


def _placed(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=NamedSharding(_mesh(), PartitionSpec()))


def _factors(
    ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any]
) -> tuple[Factors, str]:
    """The factors that its rule has, and why there are no more."""
    rule, extra = params["sharding_rule"], {}
    if callable(rule):
        types = [[mlir.aval_to_ir_type(ctx.module_context, a) for a in avals] for avals in (operands, results)]
        rule = rule(*params["static_args"], _mesh(), *types)
        rule, extra = rule if isinstance(rule, tuple) else (rule, {})
    shapes = [[a.shape for a in avals] for avals in (operands, results)]
    if rule is None:
        nothing = [tuple(("_",) * len(s) for s in side) for side in shapes]
        return Factors(nothing[0], nothing[1], ()), "its custom_partitioning has no sharding_rule"
    text = rule.replace("…", "...") if isinstance(rule, str) else _text(rule)
    found = factors_of(text, *shapes)
    held = {**extra, **(vars(rule) if not isinstance(rule, str) else {})}
    whole, summed = held.get("need_replication_factors", ()), held.get("reduction_factors", ())
    tiled = [f for f in found.sliced if f.name not in whole]
    parts = factors_of(f"{text}; tile -; reduce {' '.join(summed) or '-'}", *shapes).sliced
    known = {f.name for f in tiled}
    return dataclasses.replace(found, sliced=(*tiled, *(f for f in parts if f.name not in known))), ""


def _text(rule: Any) -> str:
    """jax's object as text."""

    def array(dims: Sequence[Any]) -> str:
        return " ".join(f"({' '.join(d)})" if isinstance(d, tuple) else d.replace("…", "...") for d in dims)

    sides = (", ".join(map(array, side)) for side in (rule.operand_mappings, rule.result_mappings))
    return " -> ".join(sides)
