"""Flop of a Pallas call: those of its body, once for each step of the grid that computes them.

    grid (4, 8, 16), a body with one dot_general of 128 x 64 x 128      512 * 2 * 128 * 64 * 128
    @pl.when(pl.program_id(1) >= pl.program_id(2))                      of the steps for which that holds
    jax.lax.fori_loop(0, pl.program_id(1) + 1, ...)                     as often as the mean step goes round
    cost_estimate=pl.CostEstimate(flops=...)                            as it says, if it says less

So blocks above a causal mask's diagonal cost nothing, nor do those that a table leaves out which is written in the
program, as splash attention's mask is. What else a step reads is not known: of branches that depend on it the longest
counts, and a loop once. A grid dim whose length is read has as many steps as write each block of a result once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal, jaxprs_in_params

from autopart.core.ops.traits import Work


class _Table(NamedTuple):
    """An array that steps read numbers of, and whose elements are known."""

    array: np.ndarray[Any, Any]


Known = np.ndarray[Any, Any] | _Table | None
"""A number in each step, or in all of them; None where it is not known."""

_MOST_STEPS = 1 << 20
"""Of longer grids no step is told from another."""

_OF_NUMBERS = frozenset({
    "add", "sub", "mul", "div", "rem", "max", "min", "neg", "sign", "abs", "clamp", "eq", "ne", "lt", "le", "gt", "ge",
    "and", "or", "xor", "not", "select_n", "convert_element_type",
})  # fmt: skip
"""Primitives that compute numbers of numbers, one by one."""


@dataclass(frozen=True)
class _Steps:
    """Some steps of a grid: by the dims that a body may ask for, how long they are and where each step is."""

    sizes: tuple[int, ...]
    at: list[np.ndarray] | None

    def only(self, chosen: np.ndarray) -> _Steps:
        """Of these steps those that are chosen."""
        return _Steps(self.sizes, self.at and [_chosen(x, chosen) for x in self.at])


Products = dict[tuple[int, int], float]
"""Flop of products by the sides that a matrix unit has to fill: columns of the result, and elements that are summed."""


def work_of_grid(
    params: Mapping[str, Any], grid: Sequence[int], at_run_time: bool, known: Sequence[Any]
) -> tuple[Work, Products]:
    """The work of a whole call whose grid has these steps, or at least as many, if that is known `at_run_time` only;
    and the products of a mean step.

    known: values of the first operands, None for those that are computed.
    """
    stated, mapping = params["cost_estimate"], params["grid_mapping"]
    vector = float(stated.transcendentals or 0) if stated else 0.0
    sizes = tuple(size for d, size in enumerate(grid) if d not in mapping.vmapped_dims)
    few = math.prod(sizes) <= _MOST_STEPS
    steps = _Steps(sizes, list(np.indices(sizes, np.int32).reshape(len(sizes), math.prod(sizes))) if few else None)
    tables = [None if x is None else _Table(np.asarray(x)) for x in known[: mapping.num_index_operands]]
    inputs = [*tables, *[None] * (len(params["jaxpr"].invars) - len(tables))]
    products, own, _ = _work(params["jaxpr"], inputs, steps)
    matrix, own_vector = math.prod(grid) * sum(products.values()), math.prod(grid) * own
    if stated is None:
        return Work(matrix, own_vector), products
    if at_run_time or not matrix:
        return Work(
            float(stated.flops) if products else 0.0, vector + (0.0 if products else float(stated.flops))
        ), products
    return Work(min(float(stated.flops), matrix), vector), products


def _work(jaxpr: Any, inputs: Sequence[Known], steps: _Steps) -> tuple[Products, float, list[Known]]:
    """(products of the mean step, its flop besides, what is known of the outputs)."""
    known, products, vector = dict(zip(jaxpr.invars, inputs, strict=True)), Products(), 0.0

    def of(v: Any) -> Known:
        if isinstance(v, Literal):
            aval: Any = v.aval
            return None if aval.shape else np.asarray(v.val, aval.dtype)
        return known.get(v)

    for equation in jaxpr.eqns:
        given = [of(v) for v in equation.invars]
        made: list[Known] = [None] * len(equation.outvars)
        if any(True for _ in jaxprs_in_params(equation.params)):
            inside = _inside(equation, given, steps)
            parts = [(times, *_work(called, passed, of_steps)) for times, called, passed, of_steps in inside]
            for times, each, own, _ in parts:
                vector += times * own
                for sides, flop in each.items():
                    products[sides] = products.get(sides, 0.0) + times * flop
            made = parts[0][3] if equation.primitive.name in ("jit", "pjit", "closed_call") else made
        elif equation.primitive.name == "dot_general":
            (_, summed), (_, batch) = equation.params["dimension_numbers"]
            right = equation.invars[1].aval.shape
            inner = math.prod(right[d] for d in summed)
            sides = math.prod(right) // (inner * math.prod(right[d] for d in batch)), inner
            flop = 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
            products[sides] = products.get(sides, 0.0) + flop
        else:
            vector += max((_floats(v.aval) for v in equation.outvars), default=0.0)
            made = [_number(equation, given, steps)] * len(made)
        known.update(zip(equation.outvars, made, strict=True))
    return products, vector, [of(v) for v in jaxpr.outvars]


def _flop(products: Products, vector: float, _: Any) -> float:
    return sum(products.values()) + vector


def _inside(equation: Any, given: list[Known], steps: _Steps) -> Iterator[tuple[float, Any, list[Known], _Steps]]:
    """What an equation calls: how often the mean step does, the jaxpr, its inputs, and in which steps."""
    name, params = equation.primitive.name, equation.params
    inner = [getattr(j, "jaxpr", j) for j in jaxprs_in_params(params)]
    if name == "cond" and isinstance(given[0], np.ndarray):
        for number, branch in enumerate(inner):
            chosen = given[0].astype(np.int32) == number
            passed = [_chosen(x, chosen) for x in given[1:]]
            yield _mean(chosen), branch, passed, steps.only(chosen)
    elif name == "cond":
        every = [(1.0, branch, given[1:], steps) for branch in inner]
        yield max(every, key=lambda part: _flop(*_work(*part[1:])))
    elif name == "while":
        body, carried = params["body_jaxpr"].jaxpr, given[params["cond_nconsts"] + params["body_nconsts"] :]
        first = params["cond_jaxpr"].jaxpr
        ends = dict(zip(first.invars, [*given[: params["cond_nconsts"]], *carried], strict=True))
        counts = len(first.eqns) == 1 and first.eqns[0].primitive.name == "lt"  # as in a fori_loop
        low, high = map(ends.get, first.eqns[0].invars) if counts else (None, None)
        times = 1.0
        if isinstance(low, np.ndarray) and isinstance(high, np.ndarray):
            times = _mean(np.maximum(high - low, 0))
        unknown: list[Known] = [None] * len(carried)
        yield times, body, [*given[params["cond_nconsts"] :][: params["body_nconsts"]], *unknown], steps
    else:
        for each in inner:
            is_known = name != "scan" and len(each.invars) == len(given)
            passed = [x if is_known else None for x, _ in zip_longest(given, each.invars)][: len(each.invars)]
            yield float(params.get("length", 1)), each, passed, steps


def _mean(x: np.ndarray) -> float:
    return float(x.mean()) if x.size else 0.0


def _chosen(x: Known, chosen: np.ndarray) -> Any:
    return x[chosen] if isinstance(x, np.ndarray) and x.shape and chosen.shape else x


def _number(equation: Any, given: Sequence[Known], steps: _Steps) -> Known:
    """The number that an equation computes in each step."""
    name, params = equation.primitive.name, equation.params
    if name == "program_id":
        return None if steps.at is None else steps.at[params["axis"]]
    if name == "num_programs":
        return np.asarray(steps.sizes[params["axis"]], np.int32)
    numbers = [x for x in given if isinstance(x, np.ndarray)]
    if name == "get" and isinstance(given[0], _Table) and len(numbers) == given[0].array.ndim == len(given) - 1:
        return given[0].array[tuple(numbers)]
    if name not in _OF_NUMBERS or equation.outvars[0].aval.shape:
        return None
    if len(numbers) < len(given):
        return None
    with jax.ensure_compile_time_eval():
        return np.asarray(equation.primitive.bind(*np.broadcast_arrays(*numbers), **params))


def _floats(aval: Any) -> float:
    """Elements of an array of floats; a reference has none, and what only moves elements is counted with the rest."""
    is_float = hasattr(aval, "shape") and jax.numpy.issubdtype(getattr(aval, "dtype", np.int32), np.inexact)
    return float(math.prod(aval.shape)) if is_float else 0.0
