"""A device-local program in program order, with its control flow put back together: what every emitter reads.

    flat ops                       what the visitor is asked for
    0 argument %x
    1 while                        loop(carries (2), condition [3, 5), body [5, 8))
    2   carry %init, %next           .region(condition) -> the predicate
    3     compare                      op(3)
    4     condition %3                 op(4)
    5     (gather of %w)             .region(body) -> the carries' next values
    5     dot                          redistribute(%w), op(5)
    ...
    8 dot                          op(8), settle(%8): it is redistributed right after its op

A redistribution comes where it stands: before the op of its place, or at the end of its region. The walk knows what a
use reads, the settled value or a redistributed one; what stands for a value (a name, an MLIR value) is the visitor's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import MutableMapping
from typing import Generic, Protocol, TypeVar

from autopart.core.control_flow import Branches, Loop, Region, statements
from autopart.core.program import ROOT
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.redistribution import Plan

V = TypeVar("V")


class Visitor(Protocol[V]):
    """What an emitter does with each part of a program; `V` stands for a value in what it emits."""

    def op(self, op: int, kind: str) -> None:
        """Emits an op outside of control flow and defines its results (a barrier comes as one op per operand)."""
        ...

    def loop(self, loop: Loop) -> None:
        """Emits a loop, with `Walk.region` for its condition and its body, and defines its carries' values."""
        ...

    def branches(self, case: Branches) -> None:
        """Emits a case, with `Walk.region` for each branch, and defines its joins' results."""
        ...

    def redistribute(self, number: int, value: int, plan: Plan) -> V:
        """Emits redistribution `number` of `placement`; returns what its uses read."""
        ...

    def settle(self, value: int, left: V, plan: Plan) -> V:
        """Emits the redistribution of a value from how its op left it to how it waits for its uses."""
        ...


class Walk(Generic[V]):
    """Takes a visitor through a program. `values` has what stands for each value that is defined.

    The ops in `last`, none of which is control flow, are visited after all others of their scope.
    """

    def __init__(
        self,
        local: DeviceLocal,
        visitor: Visitor[V],
        values: MutableMapping[int, V],
        last: frozenset[int] = frozenset(),
    ):
        self._local, self._program, self._visitor, self.values = local, local.program, visitor, values
        self._last = last
        self._moved: dict[int, V] = {}
        self._at_def = dict(zip(local.at_def.tolist(), local.def_plans, strict=True))
        self._at_place = _by_place(local)
        self._kinds = [spec.kind for spec in local.program.specs]
        self._op_spec = local.program.op_spec.tolist()
        self._operand_ptr: list[int] = local.program.operand_ptr.tolist()
        self._result_ptr: list[int] = local.program.result_ptr.tolist()
        self._operands: list[int] = local.program.operands.tolist()
        self._of_use: list[int] = local.placement.of_use.tolist()

    def program(self) -> list[V]:
        """Visits everything but the arguments, whose values are there; returns what stands for each output."""
        program = self._program
        self._range(ROOT, len(program.arguments), program.op_count)
        return [self._output(position) for position in range(len(program.outputs))]

    def region(self, region: Region) -> list[V]:
        """Visits what is inside; returns what leaves it."""
        self._range(region.number, region.scope.start, region.scope.end)
        return [self.read(use) for use in region.returns]

    def read(self, use: int) -> V:
        """What an entry of `operands` reads."""
        moved = self._of_use[use]
        return self._moved[moved] if moved >= 0 else self.values[self._operands[use]]

    def operands(self, op: int) -> list[V]:
        """What an op reads, in order."""
        uses = range(self._operand_ptr[op], self._operand_ptr[op + 1])
        values, operands = self.values, self._operands
        return [self._moved[r] if (r := self._of_use[use]) >= 0 else values[operands[use]] for use in uses]

    def uses(self, op: int) -> range:
        """The entries of `operands` that an op reads."""
        return range(self._operand_ptr[op], self._operand_ptr[op + 1])

    def results(self, op: int) -> range:
        """The values that an op defines."""
        return range(self._result_ptr[op], self._result_ptr[op + 1])

    def operand(self, use: int) -> int:
        """The value of an entry of `operands`."""
        return self._operands[use]

    def define(self, value: int, left: V) -> None:
        """The value is what its op left, redistributed to where it settles."""
        if value in self._at_def:
            left = self._visitor.settle(value, left, self._at_def[value])
        self.values[value] = left

    def _output(self, position: int) -> V:
        program = self._program
        if position not in program.ties:
            return self.values[program.outputs[position]]
        argument = program.arguments[program.ties[position]]
        return self.read(self._operand_ptr[program.value_op[argument]])

    def _range(self, scope: int, start: int, end: int) -> None:
        """Visits the ops of a scope, each after the redistributions that stand before it."""
        visitor, last = self._visitor, list[int]()
        for statement in statements(self._program, start, end):
            op = statement if isinstance(statement, int) else statement.op
            if (scope, op) in self._at_place:
                self._redistribute(scope, op)
            if op in self._last:
                last.append(op)
                continue
            match statement:
                case Loop():
                    visitor.loop(statement)
                case Branches():
                    visitor.branches(statement)
                case _:
                    visitor.op(op, self._kinds[self._op_spec[op]])
        for op in last:
            self._redistribute(scope, op)
            visitor.op(op, self._kinds[self._op_spec[op]])
        self._redistribute(scope, end)

    def _redistribute(self, scope: int, position: int) -> None:
        """Visits the redistributions that stand there, but those of values that are not defined yet."""
        for number, value, plan in self._at_place.get((scope, position), ()):
            if number not in self._moved and value in self.values:
                self._moved[number] = self._visitor.redistribute(number, value, plan)


def _by_place(local: DeviceLocal) -> dict[tuple[int, int], list[tuple[int, int, Plan]]]:
    """(scope, op) -> (number, value, plan) of the redistributions that stand before the op."""
    places = local.placement
    found: defaultdict[tuple[int, int], list[tuple[int, int, Plan]]] = defaultdict(list)
    keys = zip(places.scope.tolist(), places.position.tolist(), strict=True)
    for number, (key, value) in enumerate(zip(keys, places.value.tolist(), strict=True)):
        found[key].append((number, value, local.use_plans[number]))
    return dict(found)
