"""A loop over layers: what each of its carries is, and which stacks it takes rows of.

    i                counter, 0 to 7
    h                state: handed from layer to layer
    H                stack: row i (or row 7 - i) is written in turn i
    row of W         read: a slice of one row of what comes from outside, at the row that the turn writes
    m                read from outside whole: the same for all layers

A forward loop goes over its rows from the first to the last, a backward loop from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.base.errors import BlockedError
from autopart.core.control_flow import Carry, Loop
from autopart.core.passes.recompute.turns import Turns, is_zero
from autopart.core.program import Program


@dataclass(frozen=True)
class StackWrite:
    """A carry whose row of the turn is written by the dynamic_update_slice `op`."""

    carry: Carry
    op: int
    row: int


@dataclass(frozen=True)
class LayerLoop:
    """A loop over layers by the roles of what it carries and reads.

    counter      the carry that is 0, 1, 2, ...
    states       carries handed from layer to layer
    stacks       carries whose rows are written
    row_reads    dynamic_slice op that takes the turn's row -> the array, made outside the loop
    outside      what else is read of the values around the loop, in order; initial values are not among them
    totals       carries to which all layers only add, and which are added up over microbatches: no states
    """

    loop: Loop
    counter: Carry
    states: tuple[Carry, ...]
    stacks: tuple[StackWrite, ...]
    row_reads: dict[int, int]
    outside: tuple[int, ...]
    totals: tuple[Carry, ...] = ()

    @property
    def layers(self) -> int:
        """How often the loop turns."""
        return self.loop.body.scope.trips

    @property
    def stack_of(self) -> dict[int, StackWrite]:
        """The array that the loop leaves -> how it writes it."""
        return {stack.carry.after: stack for stack in self.stacks}


def layer_loop(program: Program, loop: Loop, backward: bool) -> LayerLoop | None:
    """The roles in a loop, or None where it does not go over rows in the direction that is asked for."""
    turns = Turns.of(program, loop)
    counter = next((c for c in loop.carries if c.inside == turns.counter), None)
    if counter is None or not turns.rows or (turns.counter in turns.rows) == backward:
        return None
    stacks = tuple(s for c in loop.carries if (s := _stack_write(program, loop, c, turns)) is not None)
    written = {s.carry.op for s in stacks}
    states = tuple(c for c in loop.carries if c.op not in written and c is not counter)
    reads, outside = dict[int, int](), dict[int, None]()
    for op, position, value in _read_from_outside(program, loop):
        if position == 0 and _takes_row(program, loop, op, turns):
            reads[op] = value
        else:
            outside[value] = None
    return LayerLoop(loop, counter, states, stacks, reads, tuple(outside))


def _stack_write(program: Program, loop: Loop, carry: Carry, turns: Turns) -> StackWrite | None:
    op = int(program.value_op[program.operands_of(carry.op)[1]])
    if program.spec(op).kind != "dynamic_update_slice" or program.op_scope[op] != loop.body.number:
        return None
    array, row, index, *rest = program.operands_of(op).tolist()
    shape, one = program.type_of(carry.inside).shape, program.type_of(row).shape
    readers = len(users_of(program, carry.inside))
    is_row = shape[:1] == (loop.body.scope.trips,) and one == (1, *shape[1:])
    whole = turns.writes(index) and all(is_zero(program, v) for v in rest)
    return StackWrite(carry, op, row) if array == carry.inside and readers == 1 and is_row and whole else None


def _takes_row(program: Program, loop: Loop, op: int, turns: Turns) -> bool:
    if program.spec(op).kind != "dynamic_slice" or program.op_scope[op] != loop.body.number:
        return False
    array, index, *rest = program.operands_of(op).tolist()
    shape = program.type_of(array).shape
    is_row = shape[0] == loop.body.scope.trips and program.spec(op).results[0].shape == (1, *shape[1:])
    return is_row and turns.writes(index) and all(is_zero(program, v) for v in rest)


def _read_from_outside(program: Program, loop: Loop) -> Iterator[tuple[int, int, int]]:
    """(op, position, value) of what the body, and the carries for the next turn, read from outside the loop."""
    first, last = int(program.result_ptr[loop.op]), int(program.result_ptr[loop.end])
    ops = range(loop.body.scope.start, loop.body.scope.end)
    for op in ops:
        for position, value in enumerate(program.operands_of(op).tolist()):
            if not first <= value < last:
                yield op, position, value
    for carry in loop.carries:
        value = int(program.operands_of(carry.op)[1])
        if not first <= value < last:
            yield carry.op, 1, value


def users_of(program: Program, value: int) -> list[int]:
    """The entries of `operands` that read a value."""
    pointer, uses = program.users
    return uses[pointer[value] : pointer[value + 1]].tolist()


def blocked(program: Program, op: int, what: str, why: str, hint: str = "") -> BlockedError:
    """The error for what cannot be staged, with its line."""
    where = program.where(op)
    return BlockedError(what + (f"  at {where}" if where else ""), why=why, hint=hint)
