"""Which rows make a microbatch: a few of every stretch of the batch, so that each device finds its share at home.

    8 rows, 2 microbatches             rows of microbatch 0
      1 stretch                        0 1 2 3
      2 stretches                      0 1     4 5              devices {0 1 2 3} and {4 5 6 7} have two rows each
      4 stretches                      0   2   4   6

A dim of n is seen as [stretches, steps, n / stretches / steps]; a microbatch is one index of the middle one. A mesh
axis that tiles the dim, whose size divides the number of stretches, cuts along the first one: no row changes its
device. Reshapes keep this as they keep any tile of a dim's major part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autopart.core.doors.jax_internals import ir
from autopart.core.op import WHOLE, TensorType
from autopart.core.ops.local_values import LocalOp
from autopart.spmd.microbatch.loop_plan import LoopPlan


@dataclass(frozen=True)
class Interleaving:
    """`steps` microbatches, each of rows from `stretches` stretches of the batch."""

    steps: int
    stretches: int

    def tile_type(self, type_: TensorType, dim: int) -> TensorType:
        """A microbatch of an array of `type_`."""
        return type_ if dim == WHOLE else _replaced(type_, dim, (type_.shape[dim] // self.steps,))

    def split_type(self, type_: TensorType, dim: int) -> TensorType:
        """The array with its dim seen as [stretches, steps, rest]."""
        rest = type_.shape[dim] // self.steps // self.stretches
        return _replaced(type_, dim, (self.stretches, self.steps, rest))

    def take(self, make: LocalOp, array: ir.Value, dim: int, step: ir.Value) -> ir.Value:
        """Microbatch number `step` of a whole array."""
        type_ = make.type_of(array)
        split = self.split_type(type_, dim).shape
        sizes = [1 if d == dim + 1 else n for d, n in enumerate(split)]
        window = make.dynamic_slice(make.reshape(array, split), _starts(make, len(split), dim + 1, step), sizes)
        return make.reshape(window, self.tile_type(type_, dim).shape)

    def put(self, make: LocalOp, split: ir.Value, tile: ir.Value, dim: int, step: ir.Value) -> ir.Value:
        """An array of `split_type` with microbatch number `step` written in place."""
        shape = make.type_of(split).shape
        window = make.reshape(tile, [1 if d == dim + 1 else n for d, n in enumerate(shape)])
        return make.dynamic_update_slice(split, window, _starts(make, len(shape), dim + 1, step))

    def rows(self, make: LocalOp, type_: TensorType, dim: int, step: ir.Value) -> ir.Value:
        """i32 of `type_`'s shape, which is a microbatch's: where each row stands in the batch."""
        numbers = TensorType(type_.shape, "i32")
        local = make.iota(numbers, dim)
        length = type_.shape[dim] // self.stretches

        def all_over(value: ir.Value) -> ir.Value:
            return make.broadcast(value, type_.shape)

        def number(value: int) -> ir.Value:
            return make.constant(value, "i32", type_.shape)

        start = all_over(make.binary("multiply", step, make.constant(length, "i32")))
        if self.stretches == 1:
            return make.binary("add", local, start)
        stretch = make.binary("divide", local, number(length))
        within = make.binary("remainder", local, number(length))
        first = make.binary("multiply", stretch, number(length * self.steps))
        return make.binary("add", make.binary("add", first, start), within)


def finest(plan: LoopPlan, steps: int) -> Interleaving:
    """The interleaving with as many stretches as every dim that is tiled over microbatches allows."""
    return Interleaving(steps, math.gcd(*_tiled_sizes(plan)) // steps)


def _tiled_sizes(plan: LoopPlan) -> Iterable[int]:
    program = plan.partitioning.program
    for unit in plan.units:
        for op in range(unit.start, unit.end) if unit.looped else ():
            mapping = plan.mapping(op)
            if mapping is not None:
                spec = program.spec(op)
                yield mapping.extent
                types, dims = (*spec.operands, *spec.results), (*mapping.operands, *mapping.results)
                for type_, dim in zip(types, dims, strict=True):
                    if 0 <= dim < len(type_.shape):
                        yield type_.shape[dim]


def _starts(make: LocalOp, rank: int, dim: int, step: ir.Value) -> list[ir.Value]:
    return [step if d == dim else make.constant(0, "i32") for d in range(rank)]


def _replaced(type_: TensorType, dim: int, sizes: tuple[int, ...]) -> TensorType:
    return TensorType((*type_.shape[:dim], *sizes, *type_.shape[dim + 1 :]), type_.dtype)
