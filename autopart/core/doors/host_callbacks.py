"""Python functions that a program calls on the host, carried through partitioning.

    jax.debug.print("loss {}", s)                  what the user wrote
    custom_call @autopart_host_callback(%s) 0      in the unpartitioned and in the device-local module; callback 0
    if device == 0 { the Python callback }         in what XLA compiles, registered with that executable

jax writes a callback as an index into a list that belongs to one executable. The device-local module becomes another
executable, so a callback is kept as the primitive that was bound, and bound anew where that module is lowered.

A callback reads its operands whole and runs once, on device 0 of the mesh, as under plain sharded `jax.jit`. What it
returns is sent to every device. Ordered callbacks need a token that runs through the program; they are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import mlir

from autopart.core.kernel_calls.call_config import CONFIG, KERNEL

TARGET = "autopart_host_callback"
"""Target of the custom call that stands for a callback; its `mhlo.backend_config` holds the callback's index."""

TARGETS = frozenset({TARGET, KERNEL})
"""Targets of calls that stand for a body: a callback, or a kernel (`core/kernel_calls/`)."""


@dataclass(frozen=True)
class HostCallback:
    """A callback as it was bound: `primitive.bind(*operands, **params)`."""

    primitive: Primitive
    params: dict[str, Any]
    operand_avals: tuple[Any, ...]
    result_avals: tuple[Any, ...]

    @property
    def effects(self) -> frozenset[Any]:
        """jax's effects of the callback: none for a pure one."""
        return frozenset(self.primitive.abstract_eval(*self.operand_avals, **self.params)[1])

    def run_once(self, axes: tuple[str, ...], *operands: Any) -> list[Any]:
        """Runs it on the first device of the mesh `axes`, inside shard_map; every device gets its results."""

        def run() -> list[Any]:
            placement = {k: v for k, v in (("sharding", None), ("partitioned", False)) if k in self.params}
            return list(self.primitive.bind(*operands, **{**self.params, **placement}))

        def wait() -> list[Any]:
            return [jax.numpy.zeros(aval.shape, aval.dtype) for aval in self.result_avals]

        results = jax.lax.cond(jax.lax.axis_index(axes) == 0, run, wait)
        return [_from_first(result, axes) for result in results]

    def lower(self, ctx: mlir.LoweringRuleContext, call: ir.Operation) -> Sequence[ir.Value]:
        """What stands in the place of a call of it, at the insertion point."""
        axes = tuple(cast(Any, ctx.module_context.axis_context).mesh.axis_names)
        inner = ctx.replace(primitive=None, avals_in=self.operand_avals, avals_out=self.result_avals, tokens_out=None)
        return _flat(mlir.lower_fun(lambda *operands: self.run_once(axes, *operands))(inner, *call.operands))


class Body(Protocol):
    """What a program calls by its index in a list that the process keeps: a function on the host, or a kernel."""

    @property
    def effects(self) -> frozenset[Any]:
        """jax's effects of it."""
        ...

    def lower(self, ctx: mlir.LoweringRuleContext, call: ir.Operation) -> Sequence[ir.Value]:
        """What stands in the place of a call of it, at the insertion point."""
        ...


def _from_first(x: Any, axes: tuple[str, ...]) -> Any:
    """The first device's `x` on every device, bit by bit; the others hold zeros."""
    if jax.numpy.iscomplexobj(x):
        return jax.lax.complex(_from_first(x.real, axes), _from_first(x.imag, axes))
    if x.dtype == bool:
        return jax.lax.psum(x.astype(np.uint8), axes).astype(bool)
    info = jax.numpy.finfo if jax.numpy.issubdtype(x.dtype, np.floating) else jax.numpy.iinfo
    bits = jax.lax.bitcast_convert_type(x, jax.numpy.dtype(f"uint{info(x.dtype).bits}"))
    summed = jax.lax.psum(bits if info(x.dtype).bits >= 8 else bits.astype(np.uint8), axes)
    return jax.lax.bitcast_convert_type(summed.astype(bits.dtype), x.dtype)


def placeholder(
    target: str, config: Mapping[str, int | str], operands: Sequence[ir.Value], types: Sequence[ir.Type], effect: bool
) -> list[ir.Value]:
    """The call of `target` that stands for the body number `config["index"]`, at the insertion point."""
    i64 = ir.IntegerType.get_signless(64)
    entries: dict[str, ir.Attribute] = {}
    entries |= {
        k: ir.StringAttr.get(v) if isinstance(v, str) else ir.IntegerAttr.get(i64, v) for k, v in config.items()
    }
    attributes: dict[str, ir.Attribute] = {
        "call_target_name": ir.StringAttr.get(target),
        "has_side_effect": ir.BoolAttr.get(effect),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        CONFIG: ir.DictAttr.get(entries),
    }
    call = ir.Operation.create("stablehlo.custom_call", list(types), list(operands), attributes)
    return list(call.results)


def emit_bodies(ctx: mlir.LoweringRuleContext, function: ir.Operation, bodies: Sequence[Body]) -> None:
    """Puts bodies in place of the calls that stand for them in `function`, registered with `ctx`'s module."""
    for call in [op for op in operations(function) if _is_placeholder(op)]:
        with ir.InsertionPoint(call), call.location:
            results = bodies[body_index(call)].lower(ctx, call)
        for old, new in zip(call.results, results, strict=True):
            old.replace_all_uses_with(new)
        call.erase()


def _flat(values: Any) -> list[ir.Value]:
    return list(mlir.ir_tree_registry.flatten(values)[0])


def operations(op: ir.Operation) -> Iterator[ir.Operation]:
    """Every op inside an op, in the order of the text."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def _is_placeholder(op: ir.Operation) -> bool:
    return op.name == "stablehlo.custom_call" and str(op.attributes["call_target_name"]).strip('"') in TARGETS


def body_index(op: ir.Operation) -> int:
    """The number of the body that a call stands for; one that no process has where it does not say."""
    if CONFIG not in op.attributes or not isinstance(op.attributes[CONFIG], ir.DictAttr):
        return sys.maxsize
    return int(cast(Any, ir.DictAttr(op.attributes[CONFIG])["index"]).value)
