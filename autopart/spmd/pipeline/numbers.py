"""Whole numbers that are computed while a program runs, as expressions: of ticks, of microbatches, of stages.

Number(make, tick) - stages // 2        a scalar
of_stage * 4 + tick                     one for each stage: a scalar counts for all of them

Division and remainder are those of numbers that are not negative.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.doors.jax_internals import ir
from autopart.core.mlir_values import MlirValues


@dataclass(frozen=True)
class Number:
    """An i32 value, a scalar or one for each stage."""

    make: MlirValues
    value: ir.Value

    @property
    def shape(self) -> tuple[int, ...]:
        """() or (stages,)."""
        return self.make.type_of(self.value).shape

    def like(self, other: Number | int) -> ir.Value:
        """Another number, with as many elements."""
        if isinstance(other, int):
            return self.make.constant(other, "i32", self.shape)
        return other.value if other.shape == self.shape else self.make.broadcast(other.value, self.shape)

    def _with(self, kind: str, other: Number | int) -> Number:
        if isinstance(other, Number) and len(other.shape) > len(self.shape):
            return Number(self.make, self.make.binary(kind, other.like(self), other.value))
        return Number(self.make, self.make.binary(kind, self.value, self.like(other)))

    def __add__(self, other: Number | int) -> Number:
        return self if isinstance(other, int) and other == 0 else self._with("add", other)

    def __sub__(self, other: Number | int) -> Number:
        return self + -other if isinstance(other, int) else self._with("subtract", other)

    def __mul__(self, other: Number | int) -> Number:
        return self._with("multiply", other)

    def __floordiv__(self, other: int) -> Number:
        return self._with("divide", other)

    def __mod__(self, other: int) -> Number:
        return self._with("remainder", other)

    def clipped(self, count: int) -> Number:
        """The nearest of 0 to count - 1."""
        return self._with("maximum", 0)._with("minimum", count - 1)

    def equals(self, other: Number | int) -> ir.Value:
        """i1: whether both are equal."""
        return self.make.compare(self.value, self.like(other), "EQ")

    def is_in(self, count: int) -> ir.Value:
        """i1: whether it is one of 0 to count - 1."""
        above = self.make.compare(self.value, self.like(0), "GE")
        return self.make.binary("and", above, self.make.compare(self.value, self.like(count), "LT"))
