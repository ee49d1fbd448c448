"""The interval in which an integer value of the emitted module lies, as far as its arithmetic tells.

    %p = partition_id                    0 .. 7       of 8 devices
    %r = remainder (divide %p, 2), 4     0 .. 3
    %s = multiply %r, 16                 0 .. 48      the start of a device's part
    %n = select (%s < 0), %s + 64, %s    0 .. 48      as numpy's negative indices are spelled

An array has one interval for all its elements, and what the body of a loop receives one for all turns
(`spmd/emission/loop_counters.py`). The result of an op that is not listed here has none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autopart.core.doors.jax_internals import ir
from autopart.core.op_spec_import import tensor_type
from autopart.spmd.emission.loop_counters import Ends, Interval, counted, handed_on, is_less_than

_MOVES = frozenset(
    f"stablehlo.{kind}" for kind in ("reshape", "broadcast_in_dim", "transpose", "slice", "concatenate", "convert")
)


class Intervals:
    """Intervals of values on any of `devices` devices; each value is looked at once.

    They stay right while indices are clamped: no interval tells of the index by which something was read.
    """

    def __init__(self, devices: int):
        self._devices = devices
        self.ends = Ends()
        self._found: dict[ir.Value, Interval | None] = {}

    def of(self, value: ir.Value) -> Interval | None:
        """The interval of `value`; None if it is not known."""
        todo = [value]
        while todo:
            last = todo[-1]
            waits = [] if last in self._found else [v for v in self._read_by(last) if v not in self._found]
            if waits:
                todo += waits
                continue
            todo.pop()
            if last not in self._found:
                self._found[last] = self._computed(last)
        return self._found[value]

    def _read_by(self, value: ir.Value) -> list[ir.Value]:
        if isinstance(value.owner, ir.Block):
            argument = ir.BlockArgument(value)
            before, count = handed_on(argument, self.ends), counted(argument, self.ends)
            return [before] if before is not None else count.reads if count else []
        owner = value.owner.operation
        return list(owner.operands) if owner.name in _UNDERSTOOD else []

    def _computed(self, value: ir.Value) -> Interval | None:
        if isinstance(value.owner, ir.Block):
            found = self._received(ir.BlockArgument(value))
            return found if found is not None and _fits(found, value) else None
        owner = value.owner.operation
        if owner.name == "stablehlo.constant":
            return _of_constant(owner)
        if owner.name == "stablehlo.partition_id":
            return 0, self._devices - 1
        if owner.name not in _UNDERSTOOD:
            return None
        known = [i for v in owner.operands if (i := self._found[v]) is not None]
        found = _of_op(owner, known) if len(known) == len(owner.operands) else None
        return found if found is not None and _fits(found, value) else None

    def _received(self, argument: ir.BlockArgument) -> Interval | None:
        """Of what the body of a loop receives."""
        before, count = handed_on(argument, self.ends), counted(argument, self.ends)
        return self._found[before] if before is not None else count.interval(self._found) if count else None


def _of_op(op: ir.Operation, operands: list[Interval]) -> Interval | None:
    if op.name in _MOVES:
        return min(low for low, _ in operands), max(high for _, high in operands)
    if op.name == _COMPARE:
        return _is_less(*operands) if is_less_than(op) else (0, 1)
    return _ARITHMETIC[op.name](*operands)


def _is_less(a: Interval, b: Interval) -> Interval:
    """0 or 1 for what is never or always so."""
    return int(a[1] < b[0]), int(a[0] < b[1])


def _selected(which: Interval, a: Interval, b: Interval) -> Interval:
    if which[0] == which[1]:
        return a if which[0] else b
    return min(a[0], b[0]), max(a[1], b[1])


def _divided(a: Interval, b: Interval) -> Interval | None:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _remainder(a: Interval, b: Interval) -> Interval | None:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None


def _multiplied(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


_ARITHMETIC: dict[str, Callable[..., Interval | None]] = {
    "stablehlo.add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "stablehlo.subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "stablehlo.multiply": _multiplied,
    "stablehlo.divide": _divided,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "stablehlo.minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "stablehlo.select": _selected,
    "stablehlo.dynamic_slice": lambda array, *_: array,
}

_COMPARE = "stablehlo.compare"
_UNDERSTOOD = _MOVES | _ARITHMETIC.keys() | {_COMPARE}


def _of_constant(op: ir.Operation) -> Interval | None:
    type_ = tensor_type(op.results[0].type)
    if not type_.dtype.startswith(("i", "ui")) or type_.dtype in ("i1", "i4", "ui4", "i2", "ui2") or 0 in type_.shape:
        return None
    elements = np.asarray(ir.DenseElementsAttr(op.attributes["value"]))
    return int(elements.min()), int(elements.max())


def _fits(found: Interval, value: ir.Value) -> bool:
    """False where the arithmetic may have wrapped around."""
    dtype = tensor_type(value.type).dtype
    if not dtype.startswith(("i", "ui")):
        return False
    if dtype == "i1":
        return found[0] >= 0 and found[1] <= 1
    bits, signed = int(dtype.removeprefix("ui").removeprefix("i")), not dtype.startswith("ui")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return low <= found[0] and found[1] <= high
