"""Host callbacks of a program that jax lowers, and calls into Python that no program may bring along.

jax.debug.print(...)                     collected, and written as a call of @autopart_host_callback
jax.debug.print(..., ordered=True)       refused with its source line
@xla_ffi_python_cpu_callback in a file   refused: its index belongs to an executable of another process
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import mlir

from autopart.core.errors import ProgramError
from autopart.core.host_callbacks import TARGET, HostCallback, callback_index, placeholder
from autopart.core.importer.jaxprs import equations
from autopart.core.importer.locations import describe_location
from autopart.core.jax_private import debug_callback_p, debug_print_p, io_callback_p, ordered_effects, pure_callback_p

_PRIMITIVES = (debug_callback_p, debug_print_p, pure_callback_p, io_callback_p)

_FOREIGN = re.compile(r"python_(cpu|gpu)_callback|python_callback|^CustomSPMDPartitioning$|^InspectSharding$")
"""Targets whose configuration is a pointer or an index that means something in one process or executable only."""


def lowered(traced: Any, platform: str) -> tuple[Any, list[HostCallback]]:
    """(what a `jax.stages.Traced` lowers to for a platform, its callbacks by index).

    jax finds what it has lowered before where there is no callback. One that an equation is shows in the jaxpr; one
    that comes from the lowering rule of another primitive (`lineax.linear_solve`) shows when jax lowers it.
    """
    if not _calls_host(traced.jaxpr):
        plain = _without_callbacks(traced, platform)
        if plain is not None:
            return plain, []
    collector = _Collector()
    parameters = mlir.LoweringParameters(override_lowering_rules=collector.rules)
    return traced.lower(lowering_platforms=(platform,), _private_parameters=parameters), collector.callbacks


def _without_callbacks(traced: Any, platform: str) -> Any:
    """As jax lowers it; None where it calls the host, or where jax refuses, as it may a call for another platform."""
    try:
        found = traced.lower(lowering_platforms=(platform,))
    except ValueError:
        return None
    made = found._lowering.compile_args
    return None if made["host_callbacks"] or made["keepalive"] else found


class _Collector:
    """The callbacks of one lowering, by index, and the lowering rules that collect them."""

    def __init__(self) -> None:
        self.callbacks: list[HostCallback] = []

    @property
    def rules(self) -> Any:
        """What stands in the place of jax's own rules."""
        return tuple((primitive, self._rule(primitive)) for primitive in _PRIMITIVES)

    def _rule(self, primitive: Primitive) -> Callable[..., Sequence[ir.Value]]:
        def lower(ctx: mlir.LoweringRuleContext, *operands: ir.Value, **params: Any) -> Sequence[ir.Value]:
            callback = HostCallback(primitive, params, tuple(ctx.avals_in), tuple(ctx.avals_out))
            if any(map(ordered_effects.contains, callback.effects)):
                raise _refused("an ordered host callback", "its order is kept by a token, which no mesh axis can tile")
            self.callbacks.append(callback)
            types = [mlir.aval_to_ir_type(ctx.module_context, aval) for aval in ctx.avals_out]
            flat = mlir.ir_tree_registry.flatten(types)[0]
            return placeholder(len(self.callbacks) - 1, operands, flat, primitive is not pure_callback_p)

        return lower


def _calls_host(jaxpr: Any) -> bool:
    """True if the jaxpr, or one inside it, has a callback."""
    return any(equation.primitive in _PRIMITIVES for equation in equations(jaxpr))


def check_calls(calls: Iterable[tuple[str, ir.Operation]], callbacks: int) -> None:
    """Raises `ProgramError` for a call into a Python process that is not one of the first `callbacks` ones."""
    for target, op in calls:
        if _FOREIGN.search(target) or (target == TARGET and callback_index(op) >= callbacks):
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
