"""Which parts of a grid dim may be sliced: its digits, by what index maps make of every step.

    grid (16,)    q lambda i: (i // 4, i % 4)      two digits: of stride 4 and of stride 1, each carries a dim of q
    grid (4, 8)   x lambda c, i: (c * 8 + i, 0)    dim 0 carries rows; dim 1 does not, as 4 parts are apart
    grid (8,)     k lambda h: (h // 4, 0)          heads of q share one of k: a digit of stride 4 carries both

A device with a slice of a digit walks through the blocks of the first slice, moved by as many slices along the one dim
that the digit carries. Its index maps are those of the first slice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun


class Digit(NamedTuple):
    """Steps of a grid dim that differ in one digit: `steps` of them, `stride` apart. `name` is that of the factor."""

    grid_dim: int
    stride: int
    steps: int
    name: str

    def is_major(self, grid: Sequence[int]) -> bool:
        """Whether slices of it are slices of the grid dim."""
        return self.stride * self.steps == grid[self.grid_dim]


class Walk(NamedTuple):
    """How one dim of an array is walked through: the first element of each step's block, [steps of a grid dim, other
    steps], and how long blocks and the dim are."""

    first: np.ndarray
    block: int
    size: int

    def slices(self, digit: Digit) -> tuple[int, bool]:
        """(into how many slices a digit may be cut at most, whether it then carries the dim); 0 where into none."""
        if digit.stride * digit.steps > len(self.first):
            return 0, False
        first = self.first.reshape(-1, digit.steps, digit.stride, self.first.shape[1])
        if (first == first[:, :1]).all():
            return digit.steps, False
        for ways in (w for w in range(digit.steps, 1, -1) if digit.steps % w == 0 and self.size % w == 0):
            parts = first.reshape(len(first), ways, -1, *first.shape[2:])
            move = np.arange(ways).reshape(1, -1, 1, 1, 1) * (self.size // ways)
            begins_at_zero = parts[:, 0].min() >= 0 and parts[:, 0].max() + self.block <= self.size // ways
            if begins_at_zero and (parts == parts[:, :1] + move).all():
                return ways, True
        return 0, True


def digits(grid_dim: int, steps: int, walks: Iterable[Walk], period: int) -> list[Digit]:
    """Digits in which steps differ, the major one first: where blocks change and where they come again."""
    borders = {1, period, steps} if steps % period == 0 else {1, steps}
    for walk in walks:
        changes = np.nonzero((walk.first[1:] != walk.first[:-1]).any(1))[0] + 1
        borders.add(math.gcd(steps, *map(int, changes)))
        again = (p for p in range(1, steps) if steps % p == 0 and (walk.first[p:] == walk.first[:-p]).all())
        borders.add(next(again, steps))
    chain = [1]
    for border in sorted(borders):
        if border % chain[-1] == 0 and border > chain[-1]:
            chain.append(border)
    return [
        Digit(grid_dim, low, high // low, f"g{grid_dim}" + f"s{low}" * (high < steps))
        for low, high in reversed(list(pairwise(chain)))
    ]


def keeps_remainder(digit: Digit, ways: int, period: int, steps: int) -> bool:
    """Whether steps of every slice have the remainders of those of the first one, which a body asks for."""
    here = np.arange(steps // ways)
    part = digit._replace(steps=digit.steps // ways)
    whole = _in_whole(here, [(digit, ways)])
    return bool(((here - whole) % period == 0).all()) and (part.steps * digit.stride) % period == 0


def blocks(index_map: Any, output: int, dims: Sequence[int], grid: Sequence[int]) -> np.ndarray:
    """An output of an index map, [steps of each of the grid dims `dims`], on which alone it depends."""
    shape = [grid[d] for d in dims]
    steps = np.indices(shape, np.int32).reshape(len(dims), -1)

    def block(*at: Any) -> Any:
        inputs = [at[list(dims).index(d)] if d in dims else np.int32(0) for d in range(len(grid))]
        return _evaluated(getattr(index_map, "jaxpr", index_map), inputs, output)

    with jax.ensure_compile_time_eval():
        return np.asarray(jax.vmap(block)(*steps), np.int64).reshape(shape)


def of_slice(index_map: Any, cut: Mapping[Digit, int], grid: Sequence[int]) -> Any:
    """The index map of the first slice, where digits are cut so many ways."""
    minor = {digit.grid_dim for digit, ways in cut.items() if ways > 1 and not digit.is_major(grid)}
    if not minor:
        return index_map

    def of_whole(*at: Any) -> Any:
        digits_of = [[(digit, w) for digit, w in cut.items() if digit.grid_dim == d] for d in range(len(grid))]
        whole = [_in_whole(x, of) if d in minor else x for d, (x, of) in enumerate(zip(at, digits_of, strict=True))]
        return jaxpr_as_fun(index_map)(*whole)

    return jax.make_jaxpr(of_whole)(*(jax.ShapeDtypeStruct((), np.int32) for _ in grid))


def _in_whole(step: Any, cut: Iterable[tuple[Digit, int]]) -> Any:
    """Which step of the whole grid dim a step of the first slice is."""
    found, left, below = 0, step, 1
    for digit, ways in sorted(cut):
        for stride, count in ((below, digit.stride // below), (digit.stride, digit.steps // ways)):
            found, left = found + left % count * stride, left // count
        below = digit.stride * digit.steps
    return found + left * below


def _evaluated(jaxpr: Any, inputs: Sequence[Any], output: int) -> Any:
    """One output of a jaxpr, by the equations that it takes; the inputs after the first ones have no part in it."""
    known = dict(zip(jaxpr.invars, inputs, strict=False))
    producer = {v: equation for equation in jaxpr.eqns for v in equation.outvars}

    def value(variable: Any) -> Any:
        if isinstance(variable, Literal):
            return variable.val
        if variable not in known:
            equation = producer[variable]
            called, operands = equation.params.get("jaxpr"), map(value, equation.invars)
            made = jaxpr_as_fun(called)(*operands) if called else equation.primitive.bind(*operands, **equation.params)
            known.update(zip(equation.outvars, made if equation.primitive.multiple_results else [made], strict=True))
        return known[variable]

    return value(jaxpr.outvars[output])
