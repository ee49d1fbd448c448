"""What a loop counts, and so the intervals of what its body receives.

    while (%i = 0, %j = 5, %n = 3)   %i < 20        at most 20 turns
      return %i + 1, %j - 2, %n                     %i is 0 .. 19, %j is -33 .. 5, %n is 3

JAX's scans and fori_loops are such loops, and those that run up to a bound of which the interval is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autopart.core.doors.jax_internals import ir

Interval = tuple[int, int]
"""The least and the greatest value, both included."""

_SIGNS = {"stablehlo.add": 1, "stablehlo.subtract": -1}


@dataclass(frozen=True)
class Step:
    """What each turn adds to an argument of a loop, or takes away from it."""

    start: ir.Value
    by: ir.Value
    sign: int

    def known(self, found: Mapping[ir.Value, Interval | None]) -> int | None:
        """The step; None if it is not the same number in every turn, as far as is known."""
        interval = found[self.by]
        return self.sign * interval[0] if interval is not None and interval[0] == interval[1] else None


@dataclass(frozen=True)
class Counted:
    """An argument of a loop's body that changes by a step, while a counter is less than a limit."""

    step: Step
    counter: Step
    limit: ir.Value

    @property
    def reads(self) -> list[ir.Value]:
        """The values whose intervals tell that of the argument."""
        return [self.step.start, self.step.by, self.counter.start, self.counter.by, self.limit]

    def interval(self, found: Mapping[ir.Value, Interval | None]) -> Interval | None:
        """In which it lies in any turn, by what was found for `reads`."""
        start, first, limit = found[self.step.start], found[self.counter.start], found[self.limit]
        by, counted_by = self.step.known(found), self.counter.known(found)
        if start is None or first is None or limit is None or by is None or counted_by is None or counted_by <= 0:
            return None
        last = by * max(0, (limit[1] - first[0] - 1) // counted_by)
        return start[0] + min(0, last), start[1] + max(0, last)


class Ends:
    """The ops that end blocks. Each is looked for once: MLIR's bindings reach it by way of all ops before it."""

    def __init__(self) -> None:
        self._of: dict[ir.Block, ir.Operation] = {}

    def returned(self, block: ir.Block, number: int) -> ir.Value:
        """The value that a block returns as its result `number`."""
        if block not in self._of:
            *_, last = block.operations
            self._of[block] = last.operation
        return self._of[block].operands[number]


def handed_on(argument: ir.BlockArgument, ends: Ends) -> ir.Value | None:
    """What an argument of a loop's body is before the loop, if every turn hands it on as it is."""
    loop = _loop_of(argument)
    if loop is None or ends.returned(loop.regions[1].blocks[0], argument.arg_number) != argument:
        return None
    return loop.operands[argument.arg_number]


def counted(argument: ir.BlockArgument, ends: Ends) -> Counted | None:
    """How an argument of a loop's body is counted; None for one that is not, and in loops that count nothing."""
    loop = _loop_of(argument)
    step = _step(loop, argument.arg_number, ends) if loop else None
    condition = loop.regions[0].blocks[0] if loop and step else None
    compare = _owner(ends.returned(condition, 0)) if condition else None
    if not (loop and step and compare) or compare.name != "stablehlo.compare" or not is_less_than(compare):
        return None
    counter, limit = compare.operands
    if counter.owner != condition:
        return None
    counter = _step(loop, ir.BlockArgument(counter).arg_number, ends)
    if limit.owner == condition:
        limit = handed_on(loop.regions[1].blocks[0].arguments[ir.BlockArgument(limit).arg_number], ends)
    return Counted(step, counter, limit) if counter and limit else None


def _loop_of(argument: ir.BlockArgument) -> ir.Operation | None:
    """The loop that the argument is one of the body of."""
    loop = argument.owner.owner.operation
    return loop if loop.name == "stablehlo.while" and argument.owner == loop.regions[1].blocks[0] else None


def _step(loop: ir.Operation, number: int, ends: Ends) -> Step | None:
    body, add = loop.regions[1].blocks[0], _owner(ends.returned(loop.regions[1].blocks[0], number))
    if add is None or add.name not in _SIGNS or add.operands[0] != body.arguments[number]:
        return None
    by = add.operands[1]
    if by.owner == body:
        by = handed_on(ir.BlockArgument(by), ends)
    elif (made := _owner(by)) and made.name != "stablehlo.constant" and made.block == body:
        return None
    return Step(loop.operands[number], by, _SIGNS[add.name]) if by else None


def _owner(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def is_less_than(compare: ir.Operation) -> bool:
    """True for the comparison that asks whether its first operand is the smaller one."""
    return "LT" in str(compare.attributes["comparison_direction"])
