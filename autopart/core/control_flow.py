"""The loops and branches of a flat program, put back together: who returns what to whom.

    flat ops                       what they are
    1 while                        Loop(op 1, carries (2), condition [3, 5), body [5, 8))
    2   carry %init, %next           Carry(initial: use of %init, inside, after)
    3     compare                    condition: returns the use of the predicate
    4     condition %3
    5     ...                        body: returns the uses of the carries' next values

Whatever goes through a program in order reads this: the walk that export and text follow, and the sequential
interpretation of loop nests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.program import Program, Scope


@dataclass(frozen=True)
class Region:
    """Ops that run inside a loop or a branch; `returns` are the uses by which values leave it."""

    number: int
    scope: Scope
    returns: tuple[int, ...]


@dataclass(frozen=True)
class Carry:
    """A loop-carried value: the use of its initial value, and the values it is inside the loop and after it."""

    op: int
    initial: int
    inside: int
    after: int


@dataclass(frozen=True)
class Loop:
    """A while loop. Its condition returns the predicate, its body the next value of each carry."""

    op: int
    carries: tuple[Carry, ...]
    condition: Region
    body: Region

    @property
    def end(self) -> int:
        """The op after the loop."""
        return self.body.scope.end


@dataclass(frozen=True)
class Branches:
    """A case: the use of its predicate, a region per branch, and the ops (joins) whose results leave them."""

    op: int
    predicate: int
    branches: tuple[Region, ...]
    joins: tuple[int, ...]

    @property
    def end(self) -> int:
        """The op after the case."""
        return self.branches[-1].scope.end + len(self.joins)


def statements(program: Program, start: int, end: int) -> Iterator[int | Loop | Branches]:
    """What stands in `[start, end)` in order: ops by number, loops and branches whole."""
    op = start
    while op < end:
        if op not in program.inner_scopes:
            yield op
            op += 1
            continue
        whole = loop_of(program, op) if program.spec(op).kind == "while" else branches_of(program, op)
        yield whole
        op = whole.end


def loop_of(program: Program, op: int) -> Loop:
    """The loop that the while at `op` marks."""
    condition, body = program.inner_scopes[op]
    carries = tuple(_carry(program, carry) for carry in _owned(program, op, op + 1))
    predicate = int(program.operand_ptr[program.scopes[condition].end - 1])
    return Loop(
        op,
        carries,
        Region(condition, program.scopes[condition], (predicate,)),
        Region(body, program.scopes[body], tuple(carry.initial + 1 for carry in carries)),
    )


def branches_of(program: Program, op: int) -> Branches:
    """The branches that the case at `op` marks."""
    numbers = program.inner_scopes[op]
    joins = _owned(program, op, program.scopes[numbers[-1]].end)
    branches = [
        Region(number, program.scopes[number], tuple(int(program.operand_ptr[join]) + n for join in joins))
        for n, number in enumerate(numbers)
    ]
    return Branches(op, int(program.operand_ptr[op]), tuple(branches), joins)


def _carry(program: Program, op: int) -> Carry:
    inside, after = program.results_of(op)
    return Carry(op, int(program.operand_ptr[op]), inside, after)


def _owned(program: Program, owner: int, start: int) -> tuple[int, ...]:
    """The carries of a loop, or the joins of a case: the ops from `start` on that it owns."""
    end = start
    while program.owners.get(end) == owner:
        end += 1
    return tuple(range(start, end))
