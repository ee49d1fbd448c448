"""Host callbacks and kernels of a program that jax lowers, and calls into Python that no program may bring along.

jax.debug.print(...)                     collected, and written as a call of @autopart_host_callback
pl.pallas_call(...)                      collected, and written as a call of @autopart_kernel
jax.debug.print(..., ordered=True)       refused with its source line
@xla_ffi_python_cpu_callback in a file   refused: its index belongs to an executable of another process
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import mlir

from autopart.base.errors import ProgramError
from autopart.core.doors.host_callbacks import TARGET, TARGETS, Body, HostCallback, body_index, placeholder
from autopart.core.doors.jax_private import (
    debug_callback_p,
    debug_print_p,
    io_callback_p,
    ordered_effects,
    pure_callback_p,
    scan_impl,
    scan_p,
)
from autopart.core.importer.jaxprs import Use, Uses, equations
from autopart.core.importer.locations import describe_location
from autopart.core.kernel_calls.call_config import KERNEL
from autopart.core.kernel_calls.kernel_body import KernelBody
from autopart.core.kernel_calls.sharding_rule import Factors
from autopart.core.ops.traits import Work

_PRIMITIVES = (debug_callback_p, debug_print_p, pure_callback_p, io_callback_p)

_FOREIGN = re.compile(r"python_(cpu|gpu)_callback|python_callback|^CustomSPMDPartitioning$|^InspectSharding$")
"""Targets whose configuration is a pointer or an index that means something in one process or executable only."""


class KernelCall(NamedTuple):
    """A call of a kernel, read: its body, how it may be sliced, its flop, and by what calls are equal."""

    body: KernelBody
    factors: Factors
    work: Work | None
    key: Hashable
    effect: bool = False
    whole: str = ""
    """Why it is not sliced further."""
    more: tuple[np.ndarray, ...] = ()
    """Constants that it reads behind its operands."""
    products: Mapping[tuple[int, int], float] = MappingProxyType({})
    """Flop of its products, by columns of the result and elements that are summed."""


ReadKernel = Callable[[mlir.LoweringRuleContext, Mapping[str, Any], Use], KernelCall]
"""Reads a call of a kernel, which is used so."""

Kernels = Mapping[str, ReadKernel]
"""By the name of the primitive that jax traces."""


def lowered(traced: Any, platform: str, kernels: Kernels, unrolls: bool = True) -> tuple[Any, list[Body]]:
    """(what a `jax.stages.Traced` lowers to for a platform, its callbacks and kernels by index).

    Without `unrolls`, each scan is a loop of as many turns as it has rows, whatever its `unroll` says.

    jax finds what it has lowered before where there is none. One that an equation is shows in the jaxpr; one
    that comes from the lowering rule of another primitive (`lineax.linear_solve`) shows when jax lowers it.
    """
    used = {equation.primitive for equation in equations(traced.jaxpr)}
    called = {primitive: kernels[primitive.name] for primitive in used if primitive.name in kernels}
    rolls: Any = () if unrolls or scan_p not in used else ((scan_p, _LOOP),)
    if not called and not rolls and used.isdisjoint(_PRIMITIVES):
        plain = _without_callbacks(traced, platform)
        if plain is not None:
            return plain, []
    collector = _Collector(called, Uses(traced.jaxpr, called))
    rules: Any = (*collector.rules, *rolls)
    parameters = mlir.LoweringParameters(override_lowering_rules=rules)
    return traced.lower(lowering_platforms=(platform,), _private_parameters=parameters), collector.bodies


_LOOP = mlir.lower_fun(lambda *operands, **params: scan_impl(*operands, **params | {"unroll": 1}))
"""The lowering rule of a scan that is not unrolled."""


def _without_callbacks(traced: Any, platform: str) -> Any:
    """As jax lowers it; None where it calls the host, or where jax refuses, as it may a call for another platform."""
    try:
        found = traced.lower(lowering_platforms=(platform,))
    except ValueError:
        return None
    made = found._lowering.compile_args
    return None if made["host_callbacks"] or made["keepalive"] else found


class _Collector:
    """The callbacks and kernels of one lowering, by index, and the lowering rules that collect them."""

    def __init__(self, kernels: Mapping[Primitive, ReadKernel], uses: Uses) -> None:
        self._kernels, self._uses, self._known = kernels, uses, dict[Hashable, int]()
        self.bodies: list[Body] = []

    @property
    def rules(self) -> Any:
        """What stands in the place of jax's own rules."""
        kernels = ((primitive, self._kernel(primitive)) for primitive in self._kernels)
        return (*((primitive, self._rule(primitive)) for primitive in _PRIMITIVES), *kernels)

    def _rule(self, primitive: Primitive) -> Callable[..., Sequence[ir.Value]]:
        def lower(ctx: mlir.LoweringRuleContext, *operands: ir.Value, **params: Any) -> Sequence[ir.Value]:
            callback = HostCallback(primitive, params, tuple(ctx.avals_in), tuple(ctx.avals_out))
            if any(map(ordered_effects.contains, callback.effects)):
                raise _refused("an ordered host callback", "its order is kept by a token, which no mesh axis can tile")
            self.bodies.append(callback)
            effect = primitive is not pure_callback_p
            return placeholder(TARGET, {"index": len(self.bodies) - 1}, operands, _result_types(ctx), effect)

        return lower

    def _kernel(self, primitive: Primitive) -> Callable[..., Sequence[ir.Value]]:
        def lower(ctx: mlir.LoweringRuleContext, *operands: ir.Value, **params: Any) -> Sequence[ir.Value]:
            use = self._uses.of(params, len(operands), len(ctx.avals_out))
            call, read = self._kernels[primitive](ctx, params, use), use.read
            if call.key not in self._known:
                self._known[call.key] = len(self.bodies)
                self.bodies.append(call.body)
            matrix, vector = (-1, -1) if call.work is None else map(round, call.work)
            config = {
                "index": self._known[call.key], "name": call.body.name, "rule": str(call.factors),
                "matrix_flop": matrix, "vector_flop": vector, "whole": call.whole,
                "products": " ".join(f"{n}x{k}:{round(flop)}" for (n, k), flop in call.products.items()),
            }  # fmt: skip
            types = _result_types(ctx)
            given = (*operands, *map(_constant, call.more))
            made = iter(placeholder(KERNEL, config, given, [types[r] for r in read], call.effect))
            return [next(made) if r in read else _zeros(aval) for r, aval in enumerate(ctx.avals_out)]

        return lower


def _zeros(aval: Any) -> ir.Value:
    """What stands for a result that nobody reads."""
    return _constant(np.broadcast_to(np.zeros((), aval.dtype), aval.shape))


def _constant(array: np.ndarray) -> ir.Value:
    return mlir.ir_tree_registry.flatten(mlir.ir_constant(array))[0][0]


def _result_types(ctx: mlir.LoweringRuleContext) -> list[ir.Type]:
    types = [mlir.aval_to_ir_type(ctx.module_context, aval) for aval in ctx.avals_out]
    return mlir.ir_tree_registry.flatten(types)[0]


def check_calls(calls: Iterable[tuple[str, ir.Operation]], bodies: int) -> None:
    """Raises `ProgramError` for a call into a Python process that is not one of the first `bodies` ones."""
    for target, op in calls:
        if _FOREIGN.search(target) or (target in TARGETS and body_index(op) >= bodies):
            with op.location:
                raise _refused(
                    f"a call of @{target}",
                    "what it calls lives in the process that wrote the module, and nowhere else",
                )


def _refused(what: str, why: str) -> ProgramError:
    where = describe_location(cast(ir.Location, ir.Location.current)) or "no source line"
    return ProgramError(
        f"{what} cannot be partitioned ({where})",
        why=why,
        hint="jax.debug.print, jax.debug.callback, jax.pure_callback or io_callback, with ordered=False, in a function",
    )
