"""How a pending reduction passes through an op: parts in, parts out, and the reduction is still to be done.

    sum(x0, x1) -> transpose        transpose(x0 + x1) == transpose(x0) + transpose(x1)       all operands in parts
    sum(g0, g1) -> multiply by s    (g0 + g1) * s == g0 * s + g1 * s                          g in parts, s whole
    max(a0, a1) -> slice            elements that only change places commute with anything    any reduction

A rule states the passages of its ops in its traits (`passes=`), as functions from a spec to passages; those that most
families share are below. What may stand for the parts of an operand that is whole, zeros for a sum, and where the
reduction is then done are for the lowering to say (`spmd/sums/pending.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM, OpSpec


@dataclass(frozen=True)
class Passage:
    """One way through an op: operands in parts, the others whole, and its one result in parts.

    code   the reduction that combines the parts: `SUM`, ...
    parts  per operand True where each device has a part of it, False where each has all of it
    """

    code: int
    parts: tuple[bool, ...]


Passages = Callable[[OpSpec], Iterable[Passage]]
"""The ways through an op of a given spec."""


def reductions(dtype: str) -> tuple[int, ...]:
    """The reductions that combine parts of an array of this element type."""
    if dtype == "i1":
        return AND, OR
    return (SUM, MUL) if dtype.startswith("complex") else (SUM, MAX, MIN, MUL)


def moved(*whole: int) -> Passages:
    """Elements only change places, or are left out: any reduction passes. Operands numbered in `whole` are whole."""

    def passages(spec: OpSpec) -> Iterable[Passage]:
        parts = tuple(k not in whole for k in range(len(spec.operands)))
        return [Passage(code, parts) for code in reductions(spec.results[0].dtype)]

    return passages


def moved_by_index(arrays: int = 1) -> Passages:
    """As `moved`, for an op whose first `arrays` operands are what is moved, and whose others are indices."""
    return lambda spec: moved(*range(arrays, len(spec.operands)))(spec)


def together(code: int) -> Passages:
    """All operands in parts, combined by `code`: a sum of sums, a maximum of maxima."""

    def passages(spec: OpSpec) -> Iterable[Passage]:
        if code in reductions(spec.results[0].dtype):
            yield Passage(code, (True,) * len(spec.operands))

    return passages


def linear_in(*operands: int) -> Passages:
    """Linear in each of `operands` alone: sums pass while all other operands are whole."""

    def passages(spec: OpSpec) -> Iterable[Passage]:
        if SUM in reductions(spec.results[0].dtype):
            for one in operands:
                yield Passage(SUM, tuple(k == one for k in range(len(spec.operands))))

    return passages


def either(*all_of: Passages) -> Passages:
    """Every passage of several kinds, in order."""
    return lambda spec: [passage for passages in all_of for passage in passages(spec)]
