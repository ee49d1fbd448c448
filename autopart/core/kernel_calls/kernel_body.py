"""What stands in the place of a kernel's call, once it is known what one device holds.

    autopart_kernel(q f32[1,2,512,64], ...) 0, lowered for tpu      the kernel, traced anew for these shapes
                                              , lowered for cpu     its twin, if jax cannot lower the kernel there

A kernel is traced as the user would trace it: with 64-bit types only if they were on when the program was traced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.mlir import ir
from jax.interpreters import mlir

from autopart.base.errors import CallError
from autopart.core.op_spec_import import tensor_type

Flat = Callable[..., Sequence[Any]]
"""A function of arrays that leaves a list of arrays."""

OfShapes = Callable[[Sequence[jax.ShapeDtypeStruct]], Flat]
"""For the arrays that a device holds, what it computes of them."""


def mapped_over(of_shapes: OfShapes, ranks: Sequence[int]) -> OfShapes:
    """The same for operands some of which have one more dim in front than these ranks."""

    def of(avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        more = [len(a.shape) > rank for a, rank in zip(avals, ranks, strict=True)]
        each = [jax.ShapeDtypeStruct(a.shape[m:], a.dtype) for a, m in zip(avals, more, strict=True)]
        function = of_shapes(each)
        return jax.vmap(function, tuple(0 if m else None for m in more)) if any(more) else function

    return of


def reading(of_shapes: OfShapes, results: Sequence[int]) -> OfShapes:
    """The same, with some of the results."""

    def of(avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        function = of_shapes(avals)

        def run(*arrays: Any) -> list[Any]:
            made = function(*arrays)
            return [made[r] for r in results]

        return run

    return of


@dataclass(frozen=True, eq=False)
class KernelBody:
    """A kernel as it was called.

    kernel   what it is for arrays of other shapes
    twin     the same in plain jax, for platforms that cannot run it; None where there is none
    platforms  those that can; None: all for which jax lowers it
    """

    name: str
    operands: tuple[Any, ...]
    kernel: OfShapes
    twin: OfShapes | None = None
    platforms: tuple[str, ...] | None = None
    x64: bool = field(default_factory=lambda: bool(jax.config.jax_enable_x64))  # pyright: ignore
    effects: frozenset[Any] = frozenset()
    _known: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)

    def lower(self, ctx: mlir.LoweringRuleContext, call: ir.Operation) -> Sequence[ir.Value]:
        """The kernel on what one device holds, at the insertion point."""
        return self.emitted(ctx, list(call.operands))

    def emitted(self, ctx: mlir.LoweringRuleContext, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The same, of operands."""
        shapes = tuple(tensor_type(v.type).shape for v in operands)
        platforms = tuple(ctx.module_context.platforms)
        if (shapes, platforms) not in self._known:
            with ThreadPoolExecutor(1) as outside:  # what is traced around this, such as axes by name, is not there
                found = outside.submit(self.runnable, self.local_avals(shapes), platforms)
            self._known[shapes, platforms] = found.result()
        function, avals_in, avals_out = self._known[shapes, platforms]
        inner = ctx.replace(primitive=None, avals_in=avals_in, avals_out=avals_out, tokens_out=None)
        with jax.enable_x64(self.x64), self._in_context():
            lowered = mlir.lower_fun(function)(inner, *operands)
        return list(mlir.ir_tree_registry.flatten(lowered)[0])

    def _in_context(self) -> contextlib.AbstractContextManager[Any]:
        """The mesh in context where it was traced, inside a `shard_map` over some axes of the mesh."""
        meshes = (getattr(getattr(a, "sharding", None), "mesh", None) for a in self.operands)
        mesh = next((mesh for mesh in meshes if mesh is not None and not mesh.empty), None)
        return contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh)

    def local_avals(self, shapes: Sequence[tuple[int, ...]]) -> list[jax.ShapeDtypeStruct]:
        """Its operands, of other shapes."""
        return [jax.ShapeDtypeStruct(s, aval.dtype) for s, aval in zip(shapes, self.operands, strict=True)]

    def runnable(
        self, avals: Sequence[jax.ShapeDtypeStruct], platforms: tuple[str, ...], alone: bool = False
    ) -> tuple[Any, Any, Any]:
        """(function, abstract values of its operands, and of its results) that jax lowers for all of `platforms`.

        `alone`: it is no part of a program for many devices, and may call the host in order.
        """
        with jax.enable_x64(self.x64), self._in_context():
            ranks = [len(a.shape) for a in self.operands]
            function = jax.jit(mapped_over(self.kernel, ranks)(avals))
            traced = function.trace(*avals)
            refused = self._refused(traced, platforms, alone)
            if refused and self.twin is None:
                raise CallError(
                    f"the kernel {self.name} cannot run on {' or '.join(platforms)}",
                    why=refused,
                    hint="ap.kernel(fn, like=a plain jax function): it runs where the kernel cannot",
                )
            if refused and self.twin is not None:
                function = jax.jit(mapped_over(self.twin, ranks)(avals))
                traced = function.trace(*avals)
        return function, [ShapedArray(a.shape, a.dtype) for a in avals], list(traced.jaxpr.out_avals)

    def is_said_to_run_on(self, *platforms: str | None) -> bool:
        """False where `platforms` leaves one of these out."""
        return self.platforms is None or set(platforms) <= set(self.platforms)

    def _refused(self, traced: jax.stages.Traced, platforms: tuple[str, ...], alone: bool) -> str:
        """Why the kernel runs on none of the platforms; empty where it does."""
        if not self.is_said_to_run_on(*platforms):
            return f"it is said to run on {' and '.join(self.platforms or ())}"
        try:
            lowered: Any = traced.lower(lowering_platforms=platforms)
        except (NotImplementedError, RuntimeError, ValueError) as error:
            return str(error).partition("\n")[0]
        ordered = not alone and lowered._lowering.compile_args.get("ordered_effects")
        return "it calls the host in order, as Pallas does to interpret semaphores and copies" if ordered else ""
