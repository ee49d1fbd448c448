"""The primitive that a call of a kernel is while jax traces and transforms a program.

    autopart_kernel[called=flash](q, k, v) -> o        under vmap: another call, of q, k, v with one more dim in front

Outside of partitioned programs it is what the kernel is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from autopart.core.importer.host_calls import KernelCall
from autopart.core.importer.jaxprs import Use
from autopart.core.kernel_calls.kernel_body import KernelBody, OfShapes, mapped_over, reading
from autopart.core.kernel_calls.sharding_rule import Factors
from autopart.core.ops.traits import Work

Aval = jax.ShapeDtypeStruct


@dataclass(frozen=True, eq=False)
class Called:
    """A kernel for operands of given shapes; equal calls of one kernel are one object.

    kernel     what it is for operands of these or other shapes
    twin       the same in plain jax; None where there is none
    factors    how it may be sliced, and why not further
    work       its flop; None where nobody knows them
    platforms  where it runs; None: wherever jax lowers it
    """

    name: str
    operands: tuple[Aval, ...]
    results: tuple[Aval, ...]
    kernel: OfShapes
    twin: OfShapes | None
    factors: Callable[[], tuple[Factors, str]]
    work: Callable[[], Work | None]
    platforms: tuple[str, ...] | None = None
    mapped: dict[Any, Called] = field(default_factory=dict[Any, "Called"], init=False, repr=False)
    """What `jax.vmap` makes of it, by which operands have the dim and its size: equal calls are one object."""

    def body(self, read: Sequence[int], with_twin: bool = True) -> KernelBody:
        """What stands in the place of a call of which these results are read."""
        twin = reading(self.twin, read) if with_twin and self.twin is not None else None
        return KernelBody(self.name, self.operands, reading(self.kernel, read), twin, self.platforms)


kernel_p = Primitive("autopart_kernel")
kernel_p.multiple_results = True


def call(called: Called, *arrays: Any) -> list[Any]:
    """The kernel on arrays."""
    return kernel_p.bind(*arrays, called=called)


kernel_p.def_abstract_eval(lambda *_, called: [ShapedArray(r.shape, r.dtype) for r in called.results])
kernel_p.def_impl(lambda *arrays, called: jax.jit(lambda *a: call(called, *a))(*arrays))
mlir.register_lowering(
    kernel_p, lambda ctx, *operands, called: called.body(range(len(called.results))).emitted(ctx, operands)
)


def read_called(ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], use: Use) -> KernelCall:
    """A call in a traced program, with the results that are use.read."""
    called: Called = params["called"]
    factors, whole = called.factors()
    return KernelCall(called.body(use.read), factors.reading(use.read), called.work(), called, whole=whole)


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, called: Called) -> tuple[list[Any], list[int]]:
    mapped = tuple(d is not None for d in dims)
    size = next(a.shape[d] for a, d, m in zip(arrays, dims, mapped, strict=True) if m)
    moved = [jax.numpy.moveaxis(a, d, 0) if m else a for a, d, m in zip(arrays, dims, mapped, strict=True)]
    if (mapped, size) not in called.mapped:
        called.mapped[mapped, size] = _batched(called, mapped, size)
    return call(called.mapped[mapped, size], *moved), [0] * len(called.results)


batching.primitive_batchers[kernel_p] = _batch


def _batched(called: Called, mapped: tuple[bool, ...], size: int) -> Called:
    """A call with one more dim in front of those operands that have it, and of all results."""

    def factors() -> tuple[Factors, str]:
        inner, whole = called.factors()
        return inner.mapped(mapped, size), whole

    def work() -> Work | None:
        once = called.work()
        return once and Work(once.matrix_flop * size, once.vector_flop * size)

    operands = tuple(Aval((size,) * m + a.shape, a.dtype) for a, m in zip(called.operands, mapped, strict=True))
    results = tuple(Aval((size, *r.shape), r.dtype) for r in called.results)
    ranks = [len(a.shape) for a in called.operands]
    twin = None if called.twin is None else mapped_over(called.twin, ranks)
    kernel = mapped_over(called.kernel, ranks)
    return Called(called.name, operands, results, kernel, twin, factors, work, called.platforms)
