"""Which kernels have ended before an op's begins, in every state.

    %h = dot %x %w           product
    %m = reduce_max %h       may run in the product's kernel
    %d = subtract %h %m      needs %m, and nothing takes it while it is made: after %m, and so after %h
    %y = dot %d %v           computes no station inside itself: after every station that it needs
    %s = add %y %h           may run in the kernel of %y, and is after %h and %m with it

Stations are ops that are never computed inside others. What an op needs, by whatever way, runs in its kernel or has
ended. It has ended where somewhere on the way is

    a breaker            a reduction, an update, a look-up, an opaque kernel: what reads it runs in a later kernel, but
                         for the largest of a softmax's rows, which the scores' kernel knows (`softmax_rows.py`)
    a product, or any    light ops may join it while it runs, so none that it needs: these have ended before it begins
    other heavy station
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE, OPAQUE, REDUCE, SLICING, UPDATE

BREAKERS = (REDUCE, OPAQUE, UPDATE, SLICING)
"""Classes whose results no kernel takes while it is made: what needs them runs in a later kernel."""

MOST_BITS = 2**31
"""Bits that may be kept: of a program too large for all its stations, each op knows the nearest before it."""

LIGHT = (ELEMENTWISE, REDUCE)
"""Classes of stations that may join the kernel of another op."""


@dataclass(frozen=True, eq=False)
class KernelOrder:
    """number[op]: of stations, else -1; ended[op]: those stations whose kernels have ended, as bits from `known` on.

    known[op]: the number of the first station that the op knows of.
    """

    number: list[int]
    known: list[int]
    ended: list[int]

    def after(self, op: int, other: int) -> bool:
        """True where the kernel of the other, a station, has ended in every state before one that computes the op."""
        n = self.number[other] - self.known[op]
        return self.number[other] >= 0 and n >= 0 and bool(self.ended[op] >> n & 1)

    def apart(self, op: int, other: int) -> bool:
        """True where either of two stations is after the other."""
        return self.after(op, other) or self.after(other, op)


def kernel_order(
    arrays: ProgramArrays, base: np.ndarray, station: np.ndarray, most_bits: int = MOST_BITS
) -> KernelOrder:
    """The order of a program's kernels.

    base      int64[values]: the value that each value is a view of, or itself
    station   bool[ops]: never computed inside another op
    """
    before = np.cumsum(station)
    number = np.where(station, before - 1, -1).tolist()
    known = np.maximum(0, before - max(1, most_bits // max(1, len(station)))).tolist()
    op_class, scope = arrays.ops["op_class"], arrays.ops["op_scope"].tolist()
    breaks = (station & np.isin(op_class, BREAKERS) & ~arrays.ops["is_largest"]).tolist()
    heavy = (station & ~np.isin(op_class, LIGHT)).tolist()
    pointer = arrays.operand_ptr.tolist()
    maker = arrays.values["value_op"][base[arrays.uses["operands"]]].tolist()
    needed, ended = [0] * len(number), [0] * len(number)
    for op in range(len(number)):
        all_needed = all_ended = 0
        for m in {m for m in maker[pointer[op] : pointer[op + 1]] if m < op and scope[m] == scope[op]}:
            own = needed[m] | 1 << number[m] - known[m] if number[m] >= 0 else needed[m]
            all_needed |= own >> known[op] - known[m]
            all_ended |= (own if breaks[m] else ended[m]) >> known[op] - known[m]
        needed[op], ended[op] = all_needed, all_needed if heavy[op] else all_ended
    return KernelOrder(number, known, ended)
