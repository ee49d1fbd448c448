"""Along which dims of its blocks the body of a Pallas call may be cut, and the body for smaller blocks.

    v = x[...]; o[...] = v / v.sum(1, keepdims=True)    rows of x, v and o are one factor: the sum is over the others
    o[...] = x[...] @ w[...]                             so are rows of x and o; features of x and w are one that
                                                         leaves parts of o, which are added up
    o[0:8] = x[0:8]                                      rows are taken apart, and stay whole

Each equation says which dims of its operands are dims of what it leaves (`_RELATED`), and which it needs whole. Dims
that are tied make a class; a class without a dim that anything needs whole may be cut. Of what a reduction over such
dims leaves, a device has a part, as long as all that follows is linear.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from operator import mul
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal, jaxprs_in_params

from autopart.core.importer.jaxprs import constants_and_carried, with_inner

Dim = tuple[Any, int]
"""A variable and a dim of it."""

_BY_ELEMENT = frozenset({
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh",
    "div", "eq", "erf", "erf_inv", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le",
    "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow",
    "reduce_precision", "rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
    "optimization_barrier",
})  # fmt: skip

_LINEAR = frozenset({
    "neg", "reshape", "transpose", "squeeze", "broadcast_in_dim", "copy", "copy_p", "reduce_sum", "slice",
    "concatenate", "convert_element_type", "mul", "div", "dot_general", "add", "sub", "reduce_precision",
})  # fmt: skip
"""Primitives that are linear in an operand, as long as the others are no parts; `add` and `sub` in both."""


class BodyDims:
    """The classes of dims of a body: of its references, of all values, and of bodies inside it."""

    def __init__(self, jaxpr: Any):
        self._jaxpr = jaxpr
        self._above, self._whole = dict[Dim, Dim](), set[Dim]()
        self._parts, self._zeros = dict[Any, set[Dim]](), set[Any]()
        """Classes of whose sum a variable has a part; variables that are zero."""
        for inner in with_inner(jaxpr):
            self._need(inner.constvars)
            for equation in inner.eqns:
                self._relate(equation)
        size = -1
        while size != (size := sum(map(len, self._parts.values())) + len(self._zeros)):
            for inner in with_inner(jaxpr):
                for equation in inner.eqns:
                    self._sum(equation)
        for inner in with_inner(jaxpr):
            for equation in inner.eqns:
                self._check(equation)
        self._whole = {self.of(dim) for dim in self._whole}

    def factors(self) -> Iterator[tuple[list[tuple[int, int]], list[int], Dim]]:
        """Of each class that may be cut: the (reference, dim of it) that it has, references with parts, and itself."""
        classes = dict[Dim, list[tuple[int, int]]]()
        for number, v in enumerate(self._jaxpr.invars):
            for d in range(len(_shape(v))):
                classes.setdefault(self.of((v, d)), []).append((number, d))
        for root, dims in classes.items():
            if root not in self._whole and _size(root) > 1:
                yield dims, [n for n, v in enumerate(self._jaxpr.invars) if root in self._parts.get(v, ())], root

    def of(self, dim: Dim) -> Dim:
        """The class of a dim."""
        while dim in self._above:
            dim = self._above[dim]
        return dim

    def size(self, root: Dim) -> int:
        """Elements of its dims."""
        return _size(root)

    def _tie(self, one: Dim, other: Dim) -> None:
        one, other = self.of(one), self.of(other)
        if one != other:
            self._above[other] = one
            self._whole |= {one} if other in self._whole else set()

    def _need(self, variables: Iterable[Any], dims: Iterable[int] | None = None) -> None:
        """Dims, or all, of these are whole."""
        for v in variables:
            self._whole |= {self.of((v, d)) for d in (range(len(_shape(v))) if dims is None else dims)}

    def _relate(self, equation: Any) -> None:
        name, values, made = equation.primitive.name, equation.invars, equation.outvars
        passed = _passed(equation)
        if passed is not None:
            for one, other in passed:
                for d in range(min(len(_shape(one)), len(_shape(other)))):
                    self._tie((one, d), (other, d))
        elif name in _BY_ELEMENT:
            for v in values:
                for d, size in enumerate(_shape(v)):
                    if size == _shape(made[0])[d]:
                        self._tie((v, d), (made[0], d))
        elif name in ("get", "swap", "addupdate"):
            ref, value = values[0], made[0] if name == "get" else values[1]
            for d, of_value in _indexed(equation):
                if of_value is None:
                    self._need([ref], [d])
                else:
                    self._tie((ref, d), (value, of_value))
            if name == "swap":
                for d in range(len(_shape(value))):
                    self._tie((value, d), (made[0], d))
        elif (related := _RELATED.get(name)) is not None:
            pairs = list(related(equation))
            for one, other in pairs:
                self._tie(one, other)
            tied = {dim for pair in pairs for dim in pair} | {dim for dim in _summed(equation)} | set(_new(equation))
            for v in (*values, *made):
                self._need([v], [d for d in range(len(_shape(v))) if (v, d) not in tied])
        else:
            self._need([*values, *made])
        self._need([v for v in values if isinstance(v, Literal)])

    # ---- parts of sums

    def _has(self, v: Any) -> set[Dim]:
        return set() if isinstance(v, Literal) else self._parts.get(v, set())

    def _is_zero(self, v: Any) -> bool:
        return np.ndim(v.val) == 0 and v.val == 0 if isinstance(v, Literal) else v in self._zeros

    def _sum(self, equation: Any) -> None:
        name, values, made = equation.primitive.name, equation.invars, equation.outvars
        passed = _passed(equation)
        if passed is not None:
            for one, other in passed:
                both = self._has(one) | self._has(other)
                for v in (one, other):
                    if both and not isinstance(v, Literal):
                        self._parts.setdefault(v, set()).update(both)
        elif name in ("get", "swap", "addupdate"):
            found = set[Dim]().union(*map(self._has, values[: 1 if name == "get" else 2]))
            for v in (values[0], *made):
                self._parts.setdefault(v, set()).update(found)
        else:
            found = {self.of(dim) for dim in _summed(equation)}.union(*map(self._has, values))
            for v in made:
                self._parts.setdefault(v, set()).update(found)
            if name in ("broadcast_in_dim", "convert_element_type") and self._is_zero(values[0]):
                self._zeros.update(made)

    def _check(self, equation: Any) -> None:
        name, values = equation.primitive.name, equation.invars
        parts = set[Dim]().union(*map(self._has, values))
        for v in equation.outvars:
            self._whole |= self._has(v) & {self.of((v, d)) for d in range(len(_shape(v)))}
        if _passed(equation) is not None or name == "get":
            return
        if name in ("swap", "addupdate"):
            self._whole |= set() if self._is_zero(values[1]) else self._has(values[0]) - self._has(values[1])
        elif name in ("add", "sub"):
            self._whole |= {p for p in parts if not all(p in self._has(v) or self._is_zero(v) for v in values)}
        elif name not in _LINEAR:
            self._whole |= parts
        elif name in ("mul", "dot_general"):
            self._whole |= self._has(values[0]) & self._has(values[1])
        elif name == "div":
            self._whole |= self._has(values[1]) if _is_float(values[0].aval.dtype) else parts
        elif name == "convert_element_type" and not _is_float(equation.params["new_dtype"]):
            self._whole |= parts

    # ---- the body for smaller blocks

    def cut(self, jaxpr: Any, sizes: Mapping[Dim, int]) -> Any:
        """The body, or one of the same variables, where dims of these classes have these sizes."""
        made = dict[int, Any]()

        def shape(v: Any) -> tuple[int, ...]:
            return tuple(sizes.get(self.of((v, d)), size) for d, size in enumerate(_shape(v)))

        def rewritten(jaxpr: Any) -> Any:
            if getattr(jaxpr, "jaxpr", jaxpr) is not jaxpr:
                return jaxpr.replace(jaxpr=rewritten(jaxpr.jaxpr))
            if id(jaxpr) not in made:
                new = dict[Any, Any]()

                def of(v: Any) -> Any:
                    if isinstance(v, Literal):
                        return v
                    if v not in new:
                        changed = shape(v) != _shape(v)
                        new[v] = type(v)(resized(v.aval, shape(v))) if changed else v
                    return new[v]

                equations = [
                    e.replace(
                        invars=list(map(of, e.invars)),
                        outvars=list(map(of, e.outvars)),
                        params=_resized_params(e, shape, rewritten),
                    )
                    for e in jaxpr.eqns
                ]
                sides = {side: list(map(of, getattr(jaxpr, side))) for side in ("invars", "outvars")}
                made[id(jaxpr)] = jaxpr.replace(eqns=equations, **sides)
            return made[id(jaxpr)]

        return rewritten(jaxpr) if sizes else jaxpr


def resized(aval: Any, shape: tuple[int, ...]) -> Any:
    """The type of an array, or of a reference to one, of another shape."""
    inner = getattr(aval, "inner_aval", None)
    return aval.update(shape=shape) if inner is None else aval.update(inner_aval=inner.update(shape=shape))


def _resized_params(equation: Any, shape: Callable[[Any], tuple[int, ...]], rewritten: Callable[[Any], Any]) -> Any:
    name, params = equation.primitive.name, dict(equation.params)
    if name in ("get", "swap", "addupdate"):
        first = 1 if name == "get" else 2
        params["tree"] = jax.tree.flatten(_resized_indexers(equation, shape(equation.invars[0])))[1]
        assert params["tree"].num_leaves == len(equation.invars) - first
    elif name == "slice":  # a dim that is cut starts at 0
        ends = zip(params["limit_indices"], _shape(equation.outvars[0]), shape(equation.outvars[0]), strict=True)
        params["limit_indices"] = tuple(end - before + now for end, before, now in ends)
    elif name in _SHAPES:
        params[_SHAPES[name]] = shape(equation.outvars[0])
    for key, value in params.items():
        if isinstance(value, tuple) and any(hasattr(x, "eqns") for x in value):
            params[key] = tuple(map(rewritten, value))
        elif hasattr(value, "eqns"):
            params[key] = rewritten(value)
    return params


_SHAPES = {"broadcast_in_dim": "shape", "iota": "shape", "reshape": "new_sizes"}
"""Parameters that are the shape of what an equation leaves."""


# ---- what equations say of dims


def _shape(v: Any) -> tuple[int, ...]:
    return tuple(getattr(v.aval, "shape", ()))


def _is_float(dtype: Any) -> bool:
    return jax.numpy.issubdtype(dtype, np.inexact)


def _size(dim: Dim) -> int:
    return _shape(dim[0])[dim[1]]


def _passed(equation: Any) -> list[tuple[Any, Any]] | None:
    """Variables of an equation and of the bodies inside it that are the same values; None where nothing is inside."""
    name, params, given, made = equation.primitive.name, equation.params, equation.invars, equation.outvars
    inner = [getattr(j, "jaxpr", j) for j in jaxprs_in_params(params)]
    if not inner:
        return None
    if name == "cond":
        return [
            pair for j in inner for pair in (*zip(given[1:], j.invars, strict=True), *zip(j.outvars, made, strict=True))
        ]
    if name == "while":
        first, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
        of_first, of_body = params["cond_nconsts"], params["body_nconsts"]
        carried = given[of_first + of_body :]
        return [
            *zip([*given[:of_first], *carried], first.invars, strict=True),
            *zip(given[of_first:], body.invars, strict=True),
            *zip(carried, body.outvars, strict=True),
            *zip(body.outvars, made, strict=True),
        ]
    if name == "scan":
        constants, carried = constants_and_carried(equation)
        if constants + carried != len(given) or carried != len(made):  # rows of arrays, which are taken apart
            return None
        (body,) = inner
        return [
            *zip(given, body.invars, strict=True),
            *zip(given[constants:], body.outvars, strict=True),
            *zip(body.outvars, made, strict=True),
        ]
    if len(inner) == 1 and len(inner[0].invars) == len(given) and len(inner[0].outvars) == len(made):
        return [*zip(given, inner[0].invars, strict=True), *zip(inner[0].outvars, made, strict=True)]
    return None


def _indexers(equation: Any) -> tuple[Any, ...]:
    first = 1 if equation.primitive.name == "get" else 2
    return jax.tree.unflatten(equation.params["tree"], equation.invars[first:])


def _is_whole(index: Any, size: int) -> bool:
    return (getattr(index, "start", None), getattr(index, "size", None), getattr(index, "stride", None)) == (0, size, 1)


def _indexed(equation: Any) -> Iterator[tuple[int, int | None]]:
    """(dim of a reference, the dim of what is read or written there that goes all through it, if any does)."""
    shape, indexers = _shape(equation.invars[0]), _indexers(equation)
    if not indexers:
        yield from ((d, d) for d in range(len(shape)))
        return
    (indices,) = [getattr(i, "indices", ()) for i in indexers] if len(indexers) == 1 else [()]
    is_plain = len(indices) == len(shape) and not any(_shape(i) for i in indices if hasattr(i, "aval"))
    at = 0
    for d, size in enumerate(shape):
        if not is_plain:
            yield d, None
            continue
        is_slice = hasattr(indices[d], "size") and hasattr(indices[d], "stride")
        yield d, at if is_slice and _is_whole(indices[d], size) else None
        at += is_slice


def _resized_indexers(equation: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    indexers = _indexers(equation)
    if not indexers or shape == _shape(equation.invars[0]):
        return indexers
    old, (indexer,) = _shape(equation.invars[0]), indexers
    indices = tuple(
        dataclasses.replace(i, size=now) if now != before else i
        for i, before, now in zip(indexer.indices, old, shape, strict=True)
    )
    return (dataclasses.replace(indexer, indices=indices, shape=shape),)


Pairs = Iterator[tuple[Dim, Dim]]


def _broadcast(equation: Any) -> Pairs:
    (x, *_), (out,) = equation.invars, equation.outvars
    for d, to in enumerate(equation.params["broadcast_dimensions"]):
        if _shape(x)[d] == _shape(out)[to]:
            yield (x, d), (out, to)


def _transposed(equation: Any) -> Pairs:
    for to, d in enumerate(equation.params["permutation"]):
        yield (equation.invars[0], d), (equation.outvars[0], to)


def _without(key: str) -> Callable[[Any], Pairs]:
    """Dims besides those that a parameter names, which go."""

    def pairs(equation: Any) -> Pairs:
        x, gone = equation.invars[0], equation.params[key]
        left = [d for d in range(len(_shape(x))) if d not in gone]
        for out in equation.outvars:
            yield from (((x, d), (out, to)) for to, d in enumerate(left))

    return pairs


def _besides(key: str) -> Callable[[Any], Pairs]:
    """Dims besides one that a parameter names, of all arrays."""

    def pairs(equation: Any) -> Pairs:
        named = equation.params[key]
        apart = {named} if isinstance(named, int) else set(named)
        (out, *_) = equation.outvars
        for v in (*equation.invars, *equation.outvars):
            yield from (((v, d), (out, d)) for d in range(len(_shape(v))) if d not in apart)

    return pairs


def _of_slice(equation: Any) -> Pairs:
    """Dims that a slice leaves as they are; where they start is 0, and the stride 1."""
    (x, *_), (out,) = equation.invars, equation.outvars
    yield from (((x, d), (out, d)) for d, size in enumerate(_shape(x)) if _shape(out)[d] == size)


def _reshaped(equation: Any) -> Pairs:
    """Dims that have as many elements before them, and in them, in both shapes."""
    (x, *_), (out,) = equation.invars, equation.outvars
    before = {(n, s): d for d, (n, s) in enumerate(zip(accumulate(_shape(x), mul, initial=1), _shape(x), strict=False))}
    for to, place in enumerate(zip(accumulate(_shape(out), mul, initial=1), _shape(out), strict=False)):
        if place in before and place[1] > 1:
            yield (x, before[place]), (out, to)


def _product(equation: Any) -> Pairs:
    (x, y, *_), (out,) = equation.invars, equation.outvars
    (summed, batch) = equation.params["dimension_numbers"]
    yield from (((x, a), (y, b)) for a, b in zip(*summed, strict=True))
    for to, (a, b) in enumerate(zip(*batch, strict=True)):
        yield (x, a), (out, to)
        yield (y, b), (out, to)
    free = [(v, d) for v, n in ((x, 0), (y, 1)) for d in range(len(_shape(v))) if d not in {*summed[n], *batch[n]}]
    yield from ((dim, (out, len(batch[0]) + to)) for to, dim in enumerate(free))


def _summed(equation: Any) -> list[Dim]:
    """Dims whose elements an equation adds up."""
    name, params = equation.primitive.name, equation.params
    if name == "reduce_sum":
        return [(equation.invars[0], d) for d in params["axes"]]
    return [(equation.invars[0], d) for d in params["dimension_numbers"][0][0]] if name == "dot_general" else []


def _new(equation: Any) -> list[Dim]:
    """Dims of what an equation leaves along which all elements are alike."""
    name, params, (out, *_) = equation.primitive.name, equation.params, equation.outvars or [None]
    if name == "broadcast_in_dim":
        return [(out, d) for d in range(len(_shape(out)))]
    return [(out, d) for d in range(len(_shape(out))) if d != params["dimension"]] if name == "iota" else []


_RELATED: Mapping[str, Callable[[Any], Pairs]] = {
    "broadcast_in_dim": _broadcast,
    "iota": lambda _: iter(()),
    "transpose": _transposed,
    "squeeze": _without("dimensions"),
    "reshape": _reshaped,
    "slice": _of_slice,
    "dot_general": _product,
    "concatenate": _besides("dimension"),
    "rev": _besides("dimensions"),
    "sort": _besides("dimension"),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _besides("axis")),
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"),
        _without("axes"),
    ),
}
"""By primitive, which dims of its operands are dims of what it leaves; others are whole."""
