"""What an early loop stacks up row by row and a late loop reads row by row: rebuilt in the late loop instead.

    early loop, turn i                          late loop, row j
      h = dot x, w[i]                             s = row j of H            h' = dot (row j of X), w[j]
      H = H with h written to row i               ... s ...                 ... h' ...

A row of H is what the early loop's body computes in turn j, or in turn last - j where a scan runs from the end. Its ops
are copied into the late body: what is the row's number in the early body is j there, what comes from outside both loops
is read as it is, and what is kept is read from its own stack. The values that the early loop carries, such as the
residual stream, are always kept; what is kept and was not stacked is stacked now. A stack that nobody reads any more is
dead.

That needs an early loop which counts from 0 by 1 and writes row i in turn i or all rows from the last to the first, as
scans do, and late loops that read whole rows. Any other stack stays, with the residuals in it, and `problems` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from autopart.core.control_flow import Loop
from autopart.core.doors.jax_internals import ir, make_context
from autopart.core.op import OpSpec, TensorType
from autopart.core.op_spec_import import SpecTable
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import View
from autopart.core.passes.recompute.lifetimes import Lifetimes, lifetimes
from autopart.core.passes.recompute.turns import Turns, is_zero
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program


@dataclass(frozen=True)
class RowRead:
    """A late body's slice of a row: the op, the row's number, and the value that has the row without its leading 1."""

    body: int
    op: int
    row: int
    value: int


@dataclass(frozen=True)
class Stack:
    """What a loop stacks up: `made` is the body's value that becomes row i in turn i; `reads` are all its readers."""

    after: int
    made: int
    reads: tuple[RowRead, ...]


@dataclass
class RebuiltStacks:
    """The stacks of early loops of a scope that late loops rebuild. `keeps` and `again` are per op, as in the pass."""

    rewriting: Rewriting
    life: Lifetimes
    cut: int
    keeps: np.ndarray
    again: np.ndarray
    problems: list[str] = field(default_factory=list[str])
    paired: set[int] = field(default_factory=set[int])
    """The bodies of early loops with stacks and of the late loops that read them: one step's two halves."""

    def write(self) -> None:
        """Rebuilds what is not kept, loop by loop."""
        life, whiles = self.life, self.life.whole.whiles
        for op in whiles[slice(*np.searchsorted(whiles, (life.start, self.cut + 1)))].tolist():
            if life.step_of(op) == op:
                loop = life.whole.loop(op)
                if any(life.last[life.number[c.after]] > self.cut for c in loop.carries if c.after in life.number):
                    self._loop(loop)

    def _loop(self, loop: Loop) -> None:
        program = self.life.program
        turns = Turns.of(program, loop)
        stacks = [s for c in loop.carries if (s := self._stack(loop, c.inside, c.after, turns)) is not None]
        if not stacks:
            return
        rebuilt = [s for s in stacks if not self.is_kept(loop, s.made)]
        body = _Body(self, loop, turns, {s.made: s for s in stacks if s not in rebuilt})
        rebuilt = [s for s in rebuilt if body.saves(s, rebuilt)]
        for number in sorted({read.body for stack in rebuilt for read in stack.reads}):
            _LateBody(body, number, rebuilt).write()

    def is_kept(self, loop: Loop, value: int) -> bool:
        """Whether a value that a turn of an early loop reads is not computed again."""
        op = int(self.life.program.value_op[value])
        return self.life.program.op_scope[op] != loop.body.number or bool(self.keeps[op] or not self.again[op])

    def _stack(self, loop: Loop, inside: int, after: int, turns: Turns) -> Stack | None:
        """The stack that a carry is, if its rows are written and read as they have to be."""
        program = self.life.program
        carry = int(program.value_op[after])
        update = int(program.value_op[program.operands_of(carry)[1]])
        if program.spec(update).kind != "dynamic_update_slice" or after not in self.life.number:
            return None
        if self.life.last[self.life.number[after]] <= self.cut:
            return None
        self._pair(after, after)
        array, row, index, *rest = program.operands_of(update).tolist()
        type_ = program.type_of(after)
        made = _without_leading_one(program, row, type_.shape[1:])
        if (
            array != inside
            or len(_users(program, inside)) != 1
            or type_.shape[0] != loop.body.scope.trips
            or made is None
        ):
            return self._left(after, "it is no row that each turn writes")
        if not turns.writes(index) or not all(is_zero(program, v) for v in rest):
            return self._left(after, "the loop that writes it does not write its rows in order, one in each turn")
        reads = [self._row_read(use, type_) for use in _users(program, after)]
        known = [read for read in reads if read is not None]
        if len(known) < len(reads) or after in program.output_place:
            return self._left(after, "what comes later reads more of it than a row at a time")
        return Stack(after, made, tuple(known))

    def _pair(self, after: int, read: int) -> None:
        """Pairs the loop that leaves the stack `after` with the late loops that read it as `read`.

        A row of the stack may itself be what a loop inside stacks up: that one is paired with what reads such rows.
        """
        program, carry = self.life.program, int(self.life.program.value_op[after])
        if program.spec(carry).kind != "carry":
            return
        update = int(program.value_op[program.operands_of(carry)[1]])
        if program.spec(update).kind != "dynamic_update_slice":
            return
        row, body = int(program.operands_of(update)[1]), program.inner_scopes[program.owners[carry]][1]
        made = _without_leading_one(program, row, program.type_of(row).shape[1:])
        for op in _readers(program, read):
            scope, home = int(program.op_scope[op]), program.op_scope[program.value_op[read]]
            while op > self.cut and scope != home:
                self.paired |= {body, scope}
                scope = program.scopes[scope].parent
            if op > self.cut and made is not None and program.spec(op).kind == "dynamic_slice":
                self._pair(int(self.life.whole.shown[made]), program.results_of(op)[0])

    def _left(self, value: int, why: str) -> None:
        where = self.life.program.where(int(self.life.program.value_op[value]))
        self.problems.append(f"{self.life.program.type_of(value)} of a loop is kept: {why}  {where}".rstrip())

    def _row_read(self, use: int, stack: TensorType) -> RowRead | None:
        """The read of a row that a use is, in a body right below a late step of the scope."""
        program, life = self.life.program, self.life
        op = int(program.use_op[use])
        scope = program.scopes[program.op_scope[op]]
        if program.spec(op).kind != "dynamic_slice" or use != program.operand_ptr[op] or scope.kind != "body":
            return None
        if scope.parent != life.scope or life.step_of(op) <= self.cut:
            return None
        [row, *rest] = program.operands_of(op).tolist()[1:]
        if program.spec(op).results[0].shape != (1, *stack.shape[1:]) or not all(is_zero(program, v) for v in rest):
            return None
        shown = [_shown(program, u, stack.shape[1:]) for u in _users(program, program.results_of(op)[0])]
        if len(shown) != 1 or shown[0] is None:
            return None
        return RowRead(int(program.op_scope[op]), op, row, shown[0])


@dataclass
class _Body:
    """An early loop's body: what of it is kept, and the stacks that are there. `made` -> its stack, or a new one's."""

    owner: RebuiltStacks
    loop: Loop
    turns: Turns
    kept: dict[int, Stack]
    new: dict[int, int] = field(default_factory=dict[int, int])

    def needs(self, values: Sequence[int]) -> tuple[list[int], list[int]]:
        """(ops to run again, values to have kept) for some values of a turn."""
        program, scope = self.owner.life.program, self.loop.body.number
        inside = {carry.inside for carry in self.loop.carries}
        stack, ops, kept = list(values), set[int](), dict[int, None]()
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            op = int(program.value_op[value])
            if value in seen or value in self.turns.rows or value == self.turns.counter:
                continue
            seen.add(value)
            if value in inside or (program.op_scope[op] == scope and self.owner.is_kept(self.loop, value)):
                kept[value] = None
            elif program.op_scope[op] == scope:
                ops.add(op)
                stack += program.operands_of(op).tolist()
        return sorted(ops), list(kept)

    def saves(self, stack: Stack, rebuilt: Sequence[Stack]) -> bool:
        """Whether fewer bytes are stacked without `rebuilt` than with them; all of them stay or none does."""
        program = self.owner.life.program
        _, kept = self.needs([s.made for s in rebuilt])
        more = sum(program.type_of(v).bytes for v in kept if v not in self.kept)
        return more < sum(program.type_of(s.made).bytes for s in rebuilt)

    def stacked(self, value: int) -> int:
        """The array that has a kept value of every turn in its rows; it is stacked from now on if it was not."""
        if value in self.kept:
            return self.kept[value].after
        if value not in self.new:
            rewriting, loop = self.owner.rewriting, self.loop
            program, specs = rewriting.before, self.specs(value)
            scope, body = int(program.op_scope[loop.op]), loop.body
            [zero] = rewriting.add(specs["zero"], [], scope, loop.op, loop.op)
            [empty] = rewriting.add(specs["empty"], [zero], scope, loop.op, loop.op)
            inside, after = rewriting.carry(loop.op, empty, loop.op)
            starts = [self.turns.row]
            for _ in program.type_of(value).shape:
                starts += rewriting.add(specs["start"], [], body.number, body.scope.end, loop.op)
            [row] = rewriting.add(specs["row"], [value], body.number, body.scope.end, loop.op)
            [put] = rewriting.add(specs["put"], [inside, row, *starts], body.number, body.scope.end, loop.op)
            rewriting.carries(inside, put)
            self.new[value] = after
        return self.new[value]

    def specs(self, value: int) -> dict[str, int]:
        """Numbers of the specs of the ops that stack a value and read a row of the stack."""
        program, rewriting = self.owner.life.program, self.owner.rewriting
        made, module = stack_ops(
            program, program.type_of(value), self.loop.body.scope.trips, program.type_of(self.turns.counter)
        )
        rewriting.modules.append(module)
        return {name: rewriting.spec(spec, op) for name, (spec, op) in made.items()}


class _LateBody:
    """Rebuilds rows in the body of one late loop."""

    def __init__(self, body: _Body, number: int, rebuilt: Sequence[Stack]):
        self._body, self._number = body, number
        self._life = lifetimes(body.owner.life.whole, number)
        self._reads = [(s.made, read) for s in rebuilt for read in s.reads if read.body == number]
        self._copies: dict[tuple[int, int], int] = {}
        self._entered: set[int] = set()
        self._first = {
            row: min(r.op for _, r in self._reads if r.row == row) for row in {r.row for _, r in self._reads}
        }
        for stack in body.kept.values():
            self._copies.update({(r.row, stack.made): r.value for r in stack.reads if r.body == number})

    def write(self) -> None:
        """Copies the early ops before the first late op that reads what they leave, for each row that is read."""
        program, life = self._body.owner.life.program, self._life
        reads = [(use, made, read.row) for made, read in self._reads for use in _users(program, read.value)]
        steps = [life.step_of(program.use_op[use]) for use, *_ in reads]
        at = [life.end if step < 0 else step for step in steps]  # a carry has what is its next value at the turn's end
        for step, (use, made, row) in sorted(zip(at, reads, strict=True)):
            self._body.owner.rewriting.read(use, self._rebuilt(made, row, step))

    def _rebuilt(self, value: int, row: int, before: int) -> int:
        """What stands for an early body's value of turn `row`, in this body, from op `before` on."""
        body = self._body
        self._enter(row)
        if (row, value) in self._copies:
            return self._copies[row, value]
        ops, kept = body.needs([value])
        for needed in kept:
            if (row, needed) not in self._copies:
                self._copies[row, needed] = self._row(needed, row)
        for op in ops:
            self._copy(op, row, before)
        return self._copies[row, value]

    def _copy(self, op: int, row: int, before: int) -> None:
        program, rewriting = self._body.owner.life.program, self._body.owner.rewriting
        results = program.results_of(op)
        if (row, results[0]) not in self._copies:
            operands = [self._operand(v, row) for v in program.operands_of(op).tolist()]
            again = rewriting.again(op, operands, self._number, before)
            self._copies.update({(row, old): new for old, new in zip(results, again, strict=True)})

    def _enter(self, row: int) -> None:
        """Takes the rows of outside that copies read, such as a layer's weights, behind one barrier for them all.

        What is late in the turn reads them behind it too: they are gathered once, as with `jax.checkpoint`.
        """
        if row in self._entered:
            return
        self._entered.add(row)
        program, rewriting, place = self._body.owner.life.program, self._body.owner.rewriting, self._first[row]
        made = [made for made, read in self._reads if read.row == row]
        ops, _ = self._body.needs(made)
        slices = rows_of_outside(program, ops, self._body.turns.rows)
        rest = [program.operands_of(op) for op in ops if op not in slices]
        read = {int(v) for operands in rest for v in operands} | set(made)
        entering = [v for op in sorted(slices) for v in program.results_of(op) if v in read]
        starts = {int(program.value_op[v]) for op in slices for v in program.operands_of(op)[1:]}
        for op in sorted(slices | starts.intersection(ops)):
            self._copy(op, row, place)
        if not entering:
            return
        behind = rewriting.barrier([self._copies[row, v] for v in entering], self._number, place, place)
        for value, held in zip(entering, behind, strict=True):
            twin = self._twin(value, row)
            for use in _users(program, twin) if twin >= 0 else ():
                if program.use_op[use] >= place:
                    rewriting.read(use, held)
            self._copies[row, value] = held

    def _twin(self, value: int, row: int) -> int:
        """The value of this body that takes the same row of outside in the same way; -1 where none does."""
        program, early = self._body.owner.life.program, self._body.loop.body.number
        op = int(program.value_op[value])
        if program.op_scope[op] != early:
            return value
        first, *rest = program.operands_of(op).tolist()
        taken = self._twin(first, row)
        for use in _users(program, taken) if taken >= 0 else ():
            other = int(program.use_op[use])
            reads = program.operands_of(other).tolist()
            if program.op_scope[other] == self._number and program.op_spec[other] == program.op_spec[op]:
                pairs = zip(rest, reads[1:], strict=True)
                if all(b == row if a in self._body.turns.rows else is_zero(program, b) for a, b in pairs):
                    return program.results_of(other)[0]
        return -1

    def _operand(self, value: int, row: int) -> int:
        turns = self._body.turns
        if value in turns.rows:
            return row
        return self._turn(row) if value == turns.counter else self._copies.get((row, value), value)

    def _turn(self, row: int) -> int:
        """The turn of an early loop from the end that made a row."""
        counter = self._body.turns.counter
        if (row, counter) not in self._copies:
            rewriting, specs, place = self._body.owner.rewriting, self._body.specs(counter), self._first[row]
            [last] = rewriting.add(specs["last"], [], self._number, place, place)
            [self._copies[row, counter]] = rewriting.add(specs["turn"], [last, row], self._number, place, place)
        return self._copies[row, counter]

    def _row(self, value: int, row: int) -> int:
        """A row of a stack, read where the first one of this number was."""
        body, rewriting = self._body, self._body.owner.rewriting
        stack, specs, place = body.stacked(value), body.specs(value), self._first[row]
        starts = [row]
        for _ in rewriting.before.type_of(value).shape:
            starts += rewriting.add(specs["start"], [], self._number, place, place)
        [taken] = rewriting.add(specs["take"], [stack, *starts], self._number, place, place)
        [shown] = rewriting.add(specs["shown"], [taken], self._number, place, place)
        return shown


# ---- reading the program


def rows_of_outside(program: Program, ops: Sequence[int], rows: frozenset[int]) -> set[int]:
    """Of some ops of a body, those that take a row of an array from outside, at one of `rows`, and their views."""
    found: set[int] = set()
    for op in ops:
        first, *rest = program.operands_of(op).tolist() or [-1]
        source = int(program.value_op[first])
        if program.spec(op).kind == "dynamic_slice" and rest[0] in rows:
            if program.op_scope[source] != program.op_scope[op] and all(is_zero(program, v) for v in rest[1:]):
                found.add(op)
        elif source in found and isinstance(traits_of(program.spec(op)), View):
            found.add(op)
    return found


def _users(program: Program, value: int) -> list[int]:
    pointer, uses = program.users
    return uses[pointer[value] : pointer[value + 1]].tolist()


def _readers(program: Program, value: int) -> Iterator[int]:
    """The ops that read a value, or a view of it."""
    for op in program.readers_of(value):
        if isinstance(traits_of(program.spec(op)), View) and len(program.operands_of(op)) == 1:
            yield from _readers(program, program.results_of(op)[0])
        else:
            yield op


def _without_leading_one(program: Program, row: int, shape: tuple[int, ...]) -> int | None:
    """The value that an op only gives a leading dim of one."""
    op = int(program.value_op[row])
    spec = program.spec(op)
    if spec.kind not in ("broadcast_in_dim", "reshape") or spec.results[0].shape != (1, *shape):
        return None
    return int(program.operands_of(op)[0]) if spec.operands[0].shape == shape else None


def _shown(program: Program, use: int, shape: tuple[int, ...]) -> int | None:
    """What a reshape that reads `use` leaves, if it only takes the leading dim off."""
    op = int(program.use_op[use])
    is_reshape = program.spec(op).kind == "reshape" and program.spec(op).results[0].shape == shape
    return program.results_of(op)[0] if is_reshape else None


# ---- ops that no program has yet


def stack_ops(
    program: Program, made: TensorType, trips: int, index: TensorType
) -> tuple[dict[str, tuple[OpSpec, ir.Operation | None]], ir.Module]:
    """By name, specs of the ops that stack values of type `made` and read rows, with MLIR ops of a module for them."""
    rank = len(made.shape)
    stack, one = TensorType((trips, *made.shape), made.dtype), TensorType((1, *made.shape), made.dtype)
    starts, types = ", %start" * rank, f", {_text(index)}" * (rank + 1)
    text = f"""func.func @main(%stack: {_text(stack)}, %made: {_text(made)}, %i: {_text(index)}) {{
      %zero = stablehlo.constant dense<{_zero(made.dtype)}> : {_text(TensorType((), made.dtype))}
      %empty = stablehlo.broadcast_in_dim %zero, dims = [] : ({_text(TensorType((), made.dtype))}) -> {_text(stack)}
      %start = stablehlo.constant dense<0> : {_text(index)}
      %last = stablehlo.constant dense<{trips - 1}> : {_text(index)}
      %turn = stablehlo.subtract %last, %start : {_text(index)}
      %row = stablehlo.broadcast_in_dim %made, dims = {[*range(1, rank + 1)]} : ({_text(made)}) -> {_text(one)}
      %put = stablehlo.dynamic_update_slice %stack, %row, %i{starts}
        : ({_text(stack)}, {_text(one)}{types}) -> {_text(stack)}
      %take = stablehlo.dynamic_slice %stack, %i{starts}, sizes = {[*one.shape]}
        : ({_text(stack)}{types}) -> {_text(one)}
      %shown = stablehlo.reshape %take : ({_text(one)}) -> {_text(made)}
      return
    }}"""
    source = program.source
    with source.module.context if source is not None else make_context():
        module = ir.Module.parse(text)
    table = SpecTable()
    names = ("zero", "empty", "start", "last", "turn", "row", "put", "take", "shown")
    *ops, _ = next(iter(module.body.operations)).regions[0].blocks[0].operations
    kept = [op.operation if source is not None else None for op in ops]
    return {n: (table.specs[table.intern(op.operation)], k) for n, op, k in zip(names, ops, kept, strict=True)}, module


def _text(type_: TensorType) -> str:
    return f"tensor<{''.join(f'{n}x' for n in type_.shape)}{type_.dtype}>"


def _zero(dtype: str) -> str:
    if dtype == "i1":
        return "false"
    if dtype.startswith("complex"):
        return "(0.0, 0.0)"
    return "0" if dtype.lstrip("u").startswith("i") else "0.0"
