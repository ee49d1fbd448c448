"""Which row of a stack each turn of a loop writes.

    turn i of a scan                    row i
    turn i of a scan from the end       row last - i: a constant less the counter, or a few such ops

The counter of a loop is what it carries from 0 on and adds 1 to. What a turn adds to the counter, or takes it from, is
followed as a * turn + b; an index that is no such form is of no row that is known before the loop runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.control_flow import Loop
from autopart.core.op import splat_value
from autopart.core.program import Program


@dataclass(frozen=True)
class Turns:
    """The turns of a loop over rows.

    counter   the value inside that is 0, 1, 2, ...; -1 where none is
    rows      the values inside that are the number of the row that a turn writes, or reads where it writes none
    row       one of them; -1 where there is no counter
    """

    counter: int
    rows: frozenset[int]
    row: int

    @staticmethod
    def of(program: Program, loop: Loop) -> Turns:
        """Those of a loop: its rows are from the first on, if any stack's are, or from the last on."""
        counter, last = _counter(program, loop), loop.body.scope.trips - 1
        if counter < 0:
            return Turns(-1, frozenset(), -1)
        forms = _linear(program, loop, counter)
        updated = [int(program.value_op[program.operands_of(carry.op)[1]]) for carry in loop.carries]
        written = [program.operands_of(op)[2] for op in updated if program.spec(op).kind == "dynamic_update_slice"]
        body = range(loop.body.scope.start, loop.body.scope.end)
        read = [program.operands_of(op)[1] for op in body if program.spec(op).kind == "dynamic_slice"]
        for indices in written, read:
            for form in ((1, 0), (-1, last)):
                row = next((int(v) for v in indices if forms.get(int(v)) == form), -1)
                if row >= 0:
                    return Turns(counter, frozenset(v for v, known in forms.items() if known == form), row)
        return Turns(counter, frozenset({counter}), counter)

    def writes(self, index: int) -> bool:
        """Whether a turn writes its row at an index."""
        return index in self.rows


def _linear(program: Program, loop: Loop, counter: int) -> dict[int, tuple[int, int]]:
    """Value of a turn -> (a, b) where it is a * turn + b, for a counter and what is added to it or it is taken from."""
    forms = {counter: (1, 0)}
    body = loop.body
    for op in range(body.scope.start, body.scope.end):
        if program.op_scope[op] == body.number and program.spec(op).kind in ("add", "subtract"):
            left, right = (_form(program, forms, int(v)) for v in program.operands_of(op))
            if left is not None and right is not None:
                sign = 1 if program.spec(op).kind == "add" else -1
                forms[program.results_of(op)[0]] = (left[0] + sign * right[0], left[1] + sign * right[1])
    return forms


def _form(program: Program, forms: dict[int, tuple[int, int]], value: int) -> tuple[int, int] | None:
    known = splat_value(program.spec(int(program.value_op[value])))
    return forms.get(value) if known is None or program.type_of(value).shape else (0, int(known))


def _counter(program: Program, loop: Loop) -> int:
    """The value inside that is 0, 1, 2, ... in the turns of a loop; -1 where none is."""
    if not loop.body.scope.trips_known:
        return -1
    for carry in loop.carries:
        initial, following = program.operands_of(carry.op).tolist()
        op = int(program.value_op[following])
        if program.spec(op).kind == "add" and is_zero(program, initial):
            left, right = program.operands_of(op).tolist()
            step = splat_value(program.spec(int(program.value_op[right])))
            if left == carry.inside and step is not None and step == 1 and not program.type_of(left).shape:
                return left
    return -1


def is_zero(program: Program, value: int) -> bool:
    """Whether a value is a constant of zeros."""
    found = splat_value(program.spec(int(program.value_op[value])))
    return found is not None and found == 0
