"""The two directions of a kernel's gradient, each a kernel: what its own `custom_vjp` does forward and backward.

    forward    q, k, v              -> o, lse           lse: what the rule keeps that is no operand
    backward   q, k, v, o, lse, do  -> dq, dk, dv

What is kept is traced for whole operands and for slices of each factor. A dim that is smaller for slices is the
factor's; a factor is none of the gradient's where what is kept has no such dim, since a slice may then keep something
else. Where a factor slices an operand it slices the operand's gradient, and where it does not, the gradient is the sum
over slices. So the backward direction needs no rule of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.core import Tracer

from autopart.api.kernels.kernel_primitive import Aval, Called, call
from autopart.api.kernels.twin import twin_work
from autopart.base.errors import ProgramError
from autopart.core.importer.jaxprs import Origin, equations, origins
from autopart.core.kernel_calls.kernel_body import Flat
from autopart.core.kernel_calls.sharding_rule import NONE, Factor, Factors
from autopart.core.op import SUM
from autopart.core.ops.traits import Work


def differentiated(called: Called, gradient: str) -> Callable[..., Any]:
    """A kernel as a function of arrays that has a gradient: its own, or its twin's."""
    function = jax.custom_vjp(functools.partial(call, called))
    if gradient == "twin":
        assert called.twin is not None
        like = called.twin(called.operands)
        function.defvjp(lambda *arrays: (call(called, *arrays), arrays), functools.partial(_twin_gradient, like))
        return function
    both = Directions(called)

    def forward(*arrays: Any) -> tuple[Any, Any]:
        made = call(both.forward, *arrays)
        return made[: len(called.results)], both.pick(arrays, made)

    def backward(kept: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        cotangents = [g for g, result in zip(given, called.results, strict=True) if is_float(result)]
        made = iter(call(both.backward, *kept, *cotangents))
        return tuple(next(made) if is_float(a) else None for a in called.operands)

    function.defvjp(forward, backward)
    return function


def with_gradient(like: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a `custom_vjp` that keeps its operands alone."""
    function = jax.custom_vjp(like)
    function.defvjp(lambda *x: (like(*x), x), lambda x, given: jax.vjp(like, *x)[1](given))
    return function


def is_float(aval: Any) -> bool:
    """True for what a gradient flows through."""
    return jax.numpy.issubdtype(aval.dtype, np.inexact)


def has_own_gradient(called: Called) -> bool:
    """Whether there is a `custom_vjp` in a kernel."""
    jaxpr = jax.make_jaxpr(called.kernel(called.operands))(*called.operands)
    return any(e.primitive.name.startswith("custom_vjp_call") for e in equations(jaxpr))


def _twin_gradient(like: Flat, arrays: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """What flows to each operand, by the twin; None for those that are no floats."""
    flows = [k for k, a in enumerate(arrays) if is_float(a)]

    def of_floats(*floats: Any) -> list[Any]:
        mixed = dict(zip(flows, floats, strict=True))
        return [r for r in like(*(mixed.get(k, a) for k, a in enumerate(arrays))) if is_float(r)]

    back = jax.vjp(of_floats, *(arrays[k] for k in flows))[1]
    found = dict(zip(flows, back([g for g in given if g.dtype != jax.dtypes.float0]), strict=True))
    return tuple(found.get(k) for k in range(len(arrays)))


class Kept(NamedTuple):
    """What a forward pass keeps, leaf by leaf of the function that goes back.

    tree     of the leaves
    leaves   what each leaf is: its place in `read`, None for what is computed again of operands that are kept
    read     what is kept of arrays: ("operand", number) or ("result", number), each once
    extra    abstract values of the results behind those of the kernel itself
    """

    tree: Any
    leaves: list[int | None]
    read: list[tuple[str, int]]
    extra: list[Aval]


class Directions:
    """The forward and the backward kernel of a function with a `custom_vjp`."""

    def __init__(self, called: Called):
        self._called, self._traced = called, dict[tuple[Any, ...], Kept]()

    def pick(self, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """What is kept, of the operands and results of the forward direction."""
        return [operands[k] if which == "operand" else results[k] for which, k in self._kept.read]

    @cached_property
    def _kept(self) -> Kept:
        return self._kept_of(self._called.operands)

    @cached_property
    def forward(self) -> Called:
        """Leaves what the kernel leaves, and what it keeps."""
        called, count = self._called, len(self._called.results)
        if not has_own_gradient(called):
            raise ProgramError(
                f"the kernel {called.name} has no gradient of its own",
                why="there is no jax.custom_vjp in it",
                hint='a jax.custom_vjp around it, or ap.kernel(..., gradient="twin"), that of the plain jax function',
            )

        def kernel(avals: Sequence[Aval]) -> Flat:
            kept, shapes = self._kept_of(avals), self._split(avals)

            def run(*arrays: Any) -> list[Any]:
                made, leaves, _ = self._run(*arrays)
                values = {kept.read[n]: x for n, x in zip(kept.leaves, leaves, strict=True) if n is not None}
                return [*made, *(values["result", count + n].reshape(s.shape) for n, s in enumerate(shapes))]

            return run

        def twin(avals: Sequence[Aval]) -> Flat:
            """It keeps nothing but operands; zeros stand for the rest."""
            like, extra = called.twin, self._split(avals)
            assert like is not None
            return lambda *x: [*like(avals)(*x), *(jax.numpy.zeros(a.shape, a.dtype) for a in extra)]

        def factors() -> tuple[Factors, str]:
            own, extra = self._factors
            return dataclasses.replace(own, results=(*own.results, *extra)), called.factors()[1]

        results = (*called.results, *self._split(called.operands))
        return dataclasses.replace(
            called, results=results, kernel=kernel, twin=twin if self._keeps_operands else None, factors=factors
        )

    @cached_property
    def backward(self) -> Called:
        """Takes what is kept and what flows back to results; leaves what flows back to operands."""
        called, read = self._called, self._kept.read
        flowing = [r for r in called.results if is_float(r)]

        def kernel(avals: Sequence[Aval]) -> Flat:
            own = self._factors[0]
            ways = factors()[0].ways([a.shape for a in operands], [a.shape for a in avals])
            slices, shapes = own.slices(called.operands, ways), own.slices(called.results, ways, of_results=True)
            kept = self._kept_of(slices)

            def given(place: int, x: Any) -> Any:
                which, k = kept.read[place]
                own_extra = which == "result" and k >= len(called.results)
                return x.reshape(kept.extra[k - len(called.results)].shape) if own_extra else x

            def run(*arrays: Any) -> list[Any]:
                at = {k: arrays[n] for n, (which, k) in enumerate(read) if which == "operand"}
                whole = (at.get(k, jax.numpy.zeros(a.shape, a.dtype)) for k, a in enumerate(slices))
                others = self._run(*whole)[1] if None in kept.leaves else ()  # of which the compiler keeps what is read
                leaves = [others[i] if n is None else given(n, arrays[n]) for i, n in enumerate(kept.leaves)]
                back = jax.tree.unflatten(kept.tree, leaves)(_flows(arrays[len(read) :], shapes))
                return [g for g, a in zip(back, called.operands, strict=True) if is_float(a)]

            return run

        def twin(avals: Sequence[Aval]) -> Flat:
            assert called.twin is not None
            like = called.twin(called.operands)

            def run(*arrays: Any) -> list[Any]:
                whole = [arrays[read.index(("operand", k))] for k in range(len(called.operands))]
                found = _twin_gradient(like, whole, _flows(arrays[len(read) :], called.results))
                return [g for g in found if g is not None]

            return run

        def factors() -> tuple[Factors, str]:
            own, extra = self._factors
            given = (names for names, r in zip(own.results, called.results, strict=True) if is_float(r))
            left = tuple(n for n, a in zip(own.operands, called.operands, strict=True) if is_float(a))
            names = (*self.pick(own.operands, (*own.results, *extra)), *given)
            return Factors(names, left, tuple(Factor(f.name, f.ways, SUM) for f in own.sliced)), called.factors()[1]

        def work() -> Work | None:
            once, count = called.work(), len(called.operands)
            if called.twin is None or once is None:
                return once and Work(2 * once.matrix_flop, 2 * once.vector_flop)  # two products for each
            like = called.twin(called.operands)

            def gradient(*x: Any) -> list[Any]:
                return [g for g in _twin_gradient(like, x[:count], _flows(x[count:], called.results)) if g is not None]

            return twin_work(gradient, [*called.operands, *flowing])

        operands = (*self.pick(called.operands, (*called.results, *self._split(called.operands))), *flowing)
        results = tuple(filter(is_float, called.operands))
        has_twin = twin if self._keeps_operands else None
        name = f"{called.name} backward"
        return Called(name, operands, results, kernel, has_twin, factors, functools.cache(work), called.platforms)

    @property
    def _keeps_operands(self) -> bool:
        """Whether there is a twin, and all operands are kept, as it needs them."""
        kept = (("operand", k) in self._kept.read for k in range(len(self._called.operands)))
        return self._called.twin is not None and all(kept)

    def _run(self, *arrays: Any) -> tuple[list[Any], list[Any], Any]:
        """(results, leaves of the function that goes back, their tree)."""
        made, back = jax.vjp(self._called.kernel(self._called.operands), *arrays)
        return list(made), *jax.tree.flatten(back)

    def _kept_of(self, avals: Sequence[Aval]) -> Kept:
        """What is kept of operands of these shapes."""
        key = tuple(a.shape for a in avals)
        if key not in self._traced:
            self._traced[key] = self._trace(avals)
        return self._traced[key]

    def _trace(self, avals: Sequence[Aval]) -> Kept:
        found: list[Any] = []

        def all_arrays(*arrays: Any) -> list[Any]:
            made, *found[:] = self._run(*arrays)
            return [*made, *(x for x in found[0] if isinstance(x, Tracer))]

        jaxpr = jax.make_jaxpr(all_arrays)(*avals).jaxpr
        count, (leaves, tree) = len(self._called.results), found
        number = {v: n for n, v in reversed(list(enumerate(jaxpr.outvars[:count])))}
        traced = iter(zip(jaxpr.outvars[count:], origins(jaxpr)[count:], strict=True))
        kept = Kept(tree, [], [], [])
        for leaf in leaves:
            variable, origin = cast(
                "tuple[Any, Origin]", next(traced) if isinstance(leaf, Tracer) else (None, Origin())
            )
            if origin.cheaply and not origin.is_argument and variable not in number:
                kept.leaves.append(None)
                again = [("operand", k) for k in sorted(origin.arguments)]
                kept.read.extend(what for what in again if what not in kept.read)
                continue
            if not origin.is_argument and variable not in number:
                number[variable] = count + len(kept.extra)
                kept.extra.append(Aval(variable.aval.shape, variable.aval.dtype))
            what = ("operand", min(origin.arguments)) if origin.is_argument else ("result", number[variable])
            kept.read.extend([] if what in kept.read else [what])
            kept.leaves.append(kept.read.index(what))
        return kept

    @cached_property
    def _factors(self) -> tuple[Factors, list[tuple[str, ...]]]:
        """(the factors of the kernel that are its gradient's too, names of the dims of what is kept besides)."""
        own, _ = self._called.factors()
        flowing = [names for names, r in zip(own.results, self._called.results, strict=True) if is_float(r)]
        sums = [f for f in own.sliced if f.code in (None, SUM) or all(f.name in names for names in flowing)]
        sliced = [f for f in sums if self._is_kept(f, own)]
        names = [tuple(n for dim in dims for n in dim or [NONE]) for dims in self._dims]
        return own.only(sliced), names

    @cached_property
    def _dims(self) -> list[list[list[str]]]:
        """Of what is kept besides, names of factors by array and dim, major first."""
        return [[[] for _ in a.shape] for a in self._kept.extra]

    def _split(self, avals: Sequence[Aval]) -> list[Aval]:
        """What is kept besides, of operands of these shapes, with a dim for each factor."""
        names = self._factors[0].operands
        sizes = {n: size for a, dims in zip(avals, names, strict=True) for size, n in zip(a.shape, dims, strict=False)}
        found: list[Aval] = []
        for kept, dims in zip(self._kept_of(avals).extra, self._dims, strict=True):
            shape: list[int] = []
            for size, of in zip(kept.shape, dims, strict=True):
                major = [sizes[n] for n in of[:-1]]
                shape += [*major, size // math.prod(major)]
            found.append(Aval(tuple(shape), kept.dtype))
        return found

    def _is_kept(self, factor: Factor, own: Factors) -> bool:
        """Whether all that is kept of slices has a dim of the factor, whose name goes there.

        In a dim of several factors, as of batch and heads, they are taken to stand in the order of the operands.
        """
        ways = next(p for p in range(2, factor.ways + 1) if factor.ways % p == 0)
        local = self._kept_of(own.slices(self._called.operands, {factor.name: ways}))
        made = [k for which, k in local.read if which == "result" and k < len(own.results)]
        if (len(local.extra), local.read) != (len(self._kept.extra), self._kept.read):
            return False
        places = [_smaller(whole, part, ways) for whole, part in zip(self._kept.extra, local.extra, strict=True)]
        if None in places or any(factor.name not in own.results[k] for k in made):
            return False
        for dims, place in zip(self._dims, places, strict=True):
            dims[place or 0].append(factor.name)
        return True


def _smaller(whole: Aval, part: Aval, ways: int) -> int | None:
    """The one dim that is so many times smaller in a part; None where there is another difference, or none."""
    dims = [d for d, (a, b) in enumerate(zip(whole.shape, part.shape, strict=True)) if a != b]
    return dims[0] if len(dims) == 1 and whole.shape[dims[0]] == ways * part.shape[dims[0]] else None


def _flows(given: Sequence[Any], results: Sequence[Aval]) -> list[Any]:
    """What flows back to each result: to those that are no floats, jax's zero."""
    rest = iter(given)
    return [next(rest) if is_float(r) else np.zeros(r.shape, jax.dtypes.float0) for r in results]
