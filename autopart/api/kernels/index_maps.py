"""What numbers in a Pallas call depend on: index maps and bodies, followed equation by equation.

    lambda b, h, i, j: (b, h // 4, i, 0)      outputs depend on {b}, {h}, {i}, nothing
    lambda b, h, i, j: (b, h, min(i, j), 0)   the third on {i, j}
    lambda h, i, next: (h, next[h, i])        the second on {i} and what `next` holds; a slice along h has its rows
    body: @pl.when(pl.program_id(3) == 0)     the body asks for 3, so it knows which step it is

A grid index that is only used to read a row of an array leaves no trace but that row: where the array is sliced along
with the grid, the step finds what it found before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal, jaxprs_in_params


@dataclass(frozen=True)
class Depends:
    """The grid dims that a number depends on, and whether on anything else.

    is_index  it is a grid index as it is
    value     the number itself, where it is written in the program
    """

    dims: frozenset[int] = frozenset()
    unknown: bool = False
    is_index: bool = False
    value: int | None = None

    def __or__(self, other: Depends) -> Depends:
        return Depends(self.dims | other.dims, self.unknown or other.unknown)


@dataclass
class Flow:
    """Follows grid indices through jaxprs.

    axes   of a body: which grid dim `program_id` asks for, by axis
    rows   (operand, dim) of the arrays that are read at a grid index: by grid dim
    asked  grid dims on which something else depends than such a row
    period of a grid dim of which only the remainder is asked for, `h % 4`, how many steps have remainders of their own
    """

    axes: Sequence[int] = ()
    rows: dict[int, set[tuple[int, int]]] = field(default_factory=dict[int, set[tuple[int, int]]])
    asked: set[int] = field(default_factory=set[int])
    period: dict[int, int] = field(default_factory=dict[int, int])

    def outputs(self, jaxpr: Any, inputs: Sequence[Depends | int]) -> list[Depends]:
        """What each output depends on. An input is what a number depends on, or the number of an array."""
        known = dict(zip(jaxpr.invars, inputs, strict=True))

        def of(variable: Any) -> Depends | int:
            return _literal(variable) if isinstance(variable, Literal) else known.get(variable, Depends())

        for equation in jaxpr.eqns:
            found = self._equation(equation, [of(v) for v in equation.invars])
            known.update(zip(equation.outvars, found, strict=True))
        return [_number(of(v)) for v in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Depends | int]) -> list[Depends]:
        name, params, count = equation.primitive.name, equation.params, len(equation.outvars)
        if name == "get" and isinstance(inputs[0], int):
            return [self._read(params["tree"], inputs[0], inputs[1:])] * count
        if name == "program_id":
            return [Depends(frozenset({self.axes[params["axis"]]}), is_index=True)]
        if name in ("num_programs", "axis_index"):  # how many steps there are; where it is, by the name of a dim
            axis = params.get("axis")
            self.asked |= set(self.axes) if axis is None else {self.axes[axis]} if self.axes else set()
            return [_ANYTHING]
        if name == "convert_element_type" and isinstance(inputs[0], Depends):
            return [inputs[0]]
        if self.axes and name == "rem" and _number(inputs[0]).is_index and (period := _number(inputs[1]).value):
            (grid_dim,) = _number(inputs[0]).dims
            self.period[grid_dim] = math.lcm(self.period.get(grid_dim, 1), period)
            return [_ANYTHING]
        inner = [getattr(j, "jaxpr", j) for j in jaxprs_in_params(params)]
        if count == 1 and not inner and all(_number(entry).value is not None for entry in inputs):
            return [_folded(equation, [_number(entry).value for entry in inputs])]
        passed = inputs[1:] if name == "cond" else inputs
        if inner and all(len(j.invars) == len(passed) for j in inner) and name != "while":
            self._ask(inputs[: len(inputs) - len(passed)])
            if name == "scan":  # what is carried has another value in the next turn
                passed = [entry if isinstance(entry, int) else replace(entry, value=None) for entry in passed]
            left = [self.outputs(j, passed) for j in inner]
            if count != len(left[0]):
                return [_ANYTHING] * count
            return left[0] if len(left) == 1 else [_joined(each) for each in zip(*left, strict=True)]
        self._ask(inputs)
        for j in inner:
            self._ask([Depends(frozenset().union(*(d.dims for d in self.outputs(j, [_ANYTHING] * len(j.invars)))))])
        return [_joined(map(_number, inputs))] * count

    def _ask(self, inputs: Iterable[Depends | int]) -> None:
        for entry in inputs:
            self.asked |= _number(entry).dims

    def _read(self, tree: Any, array: int, indices: list[Depends | int]) -> Depends:
        """A number of an array, by what it depends on besides a grid index that is one of its dims."""
        found = Depends(unknown=True)
        if tree.num_leaves != len(indices) or "Slice" in str(tree):
            self._ask(indices)
            return found | _joined(map(_number, indices))
        for dim, index in enumerate(indices):
            depends = _number(index)
            if depends.is_index:
                (grid_dim,) = depends.dims
                self.rows.setdefault(grid_dim, set()).add((array, dim))
            else:
                self._ask([depends])
                found |= depends
        return found


_ANYTHING = Depends(unknown=True)


def _folded(equation: Any, values: Sequence[Any]) -> Depends:
    """What an equation computes of numbers that are written in the program."""
    if not equation.invars or equation.outvars[0].aval.shape:
        return Depends()
    given = [np.asarray(x, v.aval.dtype) for x, v in zip(values, equation.invars, strict=True)]
    with jax.ensure_compile_time_eval():
        return Depends(value=int(equation.primitive.bind(*given, **equation.params)))


def _literal(literal: Literal) -> Depends:
    value = np.asarray(literal.val)
    return Depends(value=int(value) if value.ndim == 0 and value.dtype.kind in "biu" else None)


def _number(entry: Depends | int) -> Depends:
    return _ANYTHING if isinstance(entry, int) else entry


def _joined(entries: Iterable[Depends]) -> Depends:
    found = Depends()
    for entry in entries:
        found |= entry
    return found
