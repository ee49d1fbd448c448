"""Layers that a program has one by one, rolled into loops over stacked parameters.

    h1 = layer(h0, w1)                     W = stack(w1, w2, w3)
    h2 = layer(h1, w2)           ->        for i: h, H[i] = layer(h, W[i])
    h3 = layer(h2, w3)
    d2, g3 = layer'(d3, w3, h2)            for i: d, G[2 - i] = layer'(d, W[2 - i], H[2 - i])
    ...                                    g3 = G[2], ...

Each row of equal blocks (`repeated_blocks.py`) becomes a loop. What a block reads of the one before is carried;
what differs from block to block is stacked, in the order of the row of blocks that was first; what is read behind the
blocks is stacked where it is made. So a loop over the layers' gradients takes rows of what the loop over layers leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autopart.core.control_flow import Branches, Loop, statements
from autopart.core.doors.jax_internals import ir
from autopart.core.mlir_values import MlirValues
from autopart.core.op import splat_value
from autopart.core.passes.cancelled_views import CancelledViews
from autopart.core.passes.dead_code import DeadCode
from autopart.core.passes.joined_pads import JoinedPads
from autopart.core.program import Program
from autopart.core.repeats.repeated_blocks import Blocks, repeated_blocks, same_value
from autopart.spmd.emission.program_writer import ProgramWriter


def rolled(program: Program) -> Program:
    """The program with its rows of equal blocks as loops; the program itself where it has none."""
    if program.manual.names:
        return program
    program = JoinedPads(few=1).apply(CancelledViews().apply(program))
    rolls = [roll for blocks in repeated_blocks(program) if (roll := Roll.of(program, blocks)) is not None]
    return DeadCode().apply(_Rolled(program, rolls).program()) if rolls else program


@dataclass(frozen=True, eq=False)
class Roll:
    """A row of blocks as a loop; -1 stands for what the first block has not.

    carried   value of the template -> what the first block reads in its place; -1: zeros
    reads     use of the template -> the value of the template that the block before it has made
    rows      use of the template -> the values that the blocks read there
    entered   carried value of the template -> what the blocks read in its place
    made      values of the template that are read behind the blocks, each as those of all blocks
    left      those of which only the last block's is read there
    """

    blocks: Blocks
    carried: dict[int, int] = field(default_factory=dict[int, int])
    reads: dict[int, int] = field(default_factory=dict[int, int])
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    entered: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    made: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    left: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def count(self) -> int:
        """Blocks."""
        return len(self.blocks.ops)

    @staticmethod
    def of(program: Program, blocks: Blocks) -> Roll | None:
        """What the blocks read, and what is read of them; None where blocks make what another should be given."""
        roll, ops, template = Roll(blocks), blocks.ops, blocks.template
        numbers = np.arange(len(ops))[:, None]
        block = np.full(program.op_count + 1, -1)
        block[ops] = numbers
        block[-1] = -1
        uses, results = (_columns(of, ops, template) for of in (program.operand_ptr, program.result_ptr))
        read = np.where(uses >= 0, program.operands[uses], -1)
        made_in = block[program.value_op[read]]
        before = ((made_in == numbers - 1) | (uses < 0))[1:].all(0)
        inside = ((made_in == numbers) | (uses < 0))[template:].all(0)
        differs = np.zeros(program.op_count + 1, np.bool_)
        differs[ops] = ((ops >= 0) & (program.op_spec[ops] != program.op_spec[ops[template]])).any(0)
        differs[-1] = False
        inside &= ~differs[program.value_op[read[template]]]
        for at in np.flatnonzero(~inside).tolist():
            use, values = int(uses[template, at]), tuple(read[:, at].tolist())
            if before[at]:
                roll.reads[use] = values[template + 1]
                roll.carried[roll.reads[use]] = values[0]
                roll.entered[roll.reads[use]] = values
            elif ((made_in[:, at] >= 0) & ~differs[program.value_op[read[:, at]]]).any():
                return None
            elif not same_value(program, *(v for v in values if v >= 0)):
                roll.rows[use] = values
        behind = np.zeros(program.value_count + 1, np.bool_)
        behind[program.operands[block[program.use_op] < 0]] = True
        behind[program.outputs] = True
        behind[-1] = False
        for values in results[:, behind[results].any(0)].T.tolist():
            value = values[template]
            is_left = value in roll.carried or not behind[values[:-1]].any()
            if is_left and behind[values[-1]]:
                roll.left[value] = values[-1]
            if behind[values[: -1 if is_left else None]].any():
                roll.made[value] = tuple(values)
        return roll


def _op_of(statement: int | Loop | Branches) -> int:
    return statement if isinstance(statement, int) else statement.op


def _columns(pointer: np.ndarray, ops: np.ndarray, template: int) -> np.ndarray:
    """[blocks, n]: the entries of all ops of each block, -1 for those of an op that a block lacks."""
    counts = np.diff(pointer)[ops[template]]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.where(np.repeat(ops, counts, 1) >= 0, pointer[np.repeat(ops, counts, 1)] + within, -1)


class _Rolled(ProgramWriter):
    """Emits the program."""

    def __init__(self, program: Program, rolls: Sequence[Roll]):
        super().__init__(program)
        self._rolls, self._make = rolls, MlirValues()
        self._scope = program.op_scope[rolls[0].blocks.start]
        self._wanted = {rows[::way] for roll in rolls for rows in roll.rows.values() for way in (1, -1)}
        self._stacks: dict[tuple[int, ...], ir.Value] = {}
        self._instead: dict[int, ir.Value] = {}

    def main(self) -> None:
        """See `ProgramWriter.main`."""
        self.range(0, self._program.op_count)

    def range(self, start: int, end: int) -> None:
        """See `ProgramWriter.range`."""
        at = start
        for roll in self._rolls if self._scope == self._program.op_scope[start] else ():
            if start <= roll.blocks.start and roll.blocks.end <= end:
                super().range(at, roll.blocks.start)
                self._loop_of(roll)
                at = roll.blocks.end
        super().range(at, end)

    def op(self, op: int) -> None:
        """See `ProgramWriter.op`."""
        program, spec = self._program, self._program.spec(op)
        if spec.kind == "argument":
            return
        joined = tuple(program.operands_of(op).tolist())
        if spec.kind == "concatenate" and joined in self._stacks and spec.results[0].shape[0] == len(joined):
            self.values[program.results_of(op)[0]] = self._make.reshape(self._stacks[joined], spec.results[0].shape)
            return
        operands = [self.read(use) for use in range(program.operand_ptr[op], program.operand_ptr[op + 1])]
        results = self.tagged(op, operands[0]) if spec.kind == "tag" else self.local(op, operands, spec.results).clone()
        self.values.update(zip(program.results_of(op), results, strict=True))

    def part_of_barrier(self, op: int) -> None:
        """See `ProgramWriter.part_of_barrier`."""
        joined = next((parts for parts in self._program.barriers if parts.start == op), None)
        if joined is not None:
            self.barrier(joined)

    def read(self, use: int) -> ir.Value:
        """See `ProgramWriter.read`."""
        return self._instead[use] if use in self._instead else self._value(int(self._program.operands[use]))

    def _value(self, value: int) -> ir.Value:
        """A value; constants among blocks, and what differs from block to block, are emitted where they are read."""
        if value not in self.values:
            self.op(int(self._program.value_op[value]))
        return self.values[value]

    # ---- a loop

    def _loop_of(self, roll: Roll) -> None:
        program, make = self._program, self._make
        members, template = set(roll.blocks.ops.ravel().tolist()), roll.blocks.ops[roll.blocks.template].tolist()
        between = [s for s in statements(program, roll.blocks.start, roll.blocks.end) if _op_of(s) not in members]
        behind = int(roll.blocks.ops[-2].max())
        for statement in between:
            if _op_of(statement) < template[0]:
                self.statement(statement)
        backward = any(values[::-1] in self._stacks for values in roll.rows.values())
        order = -1 if backward else 1
        stacks = {use: self._stacked(values[::order]) for use, values in roll.rows.items()}
        late = [value for value in roll.left if value not in roll.carried]
        entered = {value: values for value, values in roll.entered.items() if values[::order] in self._wanted}
        states, stacked = [*roll.carried, *late], [*entered, *roll.made]
        initial = [self._zeros(value) if v < 0 else self._value(v) for value, v in roll.carried.items()]
        initial += [self._zeros(value) for value in late] + [self._zeros(value, roll.count) for value in stacked]

        def turn(number: ir.Value, held: Sequence[ir.Value]) -> Sequence[ir.Value]:
            row = make.binary("subtract", make.constant(roll.count - 1, "i32"), number) if backward else number
            of_state = dict(zip(states, held, strict=False))
            instead, self._instead = self._instead, {use: of_state[value] for use, value in roll.reads.items()}
            rows = {id(stack): self._row(stack, row) for stack in stacks.values()}
            self._instead |= {use: rows[id(stack)] for use, stack in stacks.items()}
            self.range(template[0], template[-1] + 1)
            self._instead = instead
            rows_made = [*(of_state[v] for v in entered), *(self.values[v] for v in roll.made)]
            written = [self._written(h, v, row) for h, v in zip(held[len(states) :], rows_made, strict=True)]
            return [*(self.values[v] for v in states), *written]

        after = self.counted_loop(roll.count, initial, turn)
        of_state = dict(zip(states, after, strict=False))
        for values, stack in zip([*entered.values(), *roll.made.values()], after[len(states) :], strict=True):
            self._stacks[values[::order]] = stack
        for values in roll.made.values():
            stack = self._stacks[values[::order]]
            for number, value in enumerate(values[::order]):
                shape = make.type_of(stack).shape[1:]
                if value >= 0:
                    part = make.slice(stack, [number, *[0] * len(shape)], [number + 1, *shape])
                    self.values[value] = make.reshape(part, shape)
        self.values.update({last: of_state[value] for value, last in roll.left.items()})
        for statement in between:
            if _op_of(statement) > behind:
                self.statement(statement)

    def _stacked(self, values: tuple[int, ...]) -> ir.Value:
        """[blocks, ...]: values side by side; what a block lacks is as in another stack, or as in the next block."""
        if -1 in values:
            alike = (known for known in self._stacks if len(known) == len(values))
            same = lambda known: all(a in (-1, b) for a, b in zip(values, known, strict=True))  # noqa: E731
            values = next(filter(same, alike), tuple(max(values) if v < 0 else v for v in values))
        if values not in self._stacks:
            self._stacks[values] = self._side_by_side(values)
        return self._stacks[values]

    def _side_by_side(self, values: tuple[int, ...]) -> ir.Value:
        program, make, type_ = self._program, self._make, self._program.type_of(values[0])
        known = [splat_value(program.spec(int(program.value_op[v]))) for v in values]
        if not type_.shape and None not in known:
            return make.constant(known, type_.dtype, (len(values),))
        whole = self._sliced(values)
        if whole is not None:
            return make.reshape(self._value(whole), (len(values), *type_.shape))
        return make.concatenate([make.reshape(self._value(v), (1, *type_.shape)) for v in values], 0)

    def _sliced(self, values: tuple[int, ...]) -> int | None:
        """The array of which values are all rows in order."""
        program, ops = self._program, self._program.value_op[[*values]].tolist()
        if any(program.spec(op).kind != "slice" for op in ops):
            return None
        arrays = {int(program.operands_of(op)[0]) for op in ops}
        shape = program.spec(ops[0]).operands[0].shape
        starts = [program.spec(op).attributes["start_indices"] for op in ops]
        rows = [(number, *[0] * (len(shape) - 1)) for number in range(len(values))]
        is_row = program.spec(ops[0]).results[0].shape == (1, *shape[1:]) and shape[0] == len(values)
        return arrays.pop() if len(arrays) == 1 and is_row and list(map(tuple, starts)) == rows else None

    def _row(self, stack: ir.Value, row: ir.Value) -> ir.Value:
        make, (_, *shape) = self._make, self._make.type_of(stack).shape
        starts = [row, *[make.constant(0, "i32") for _ in shape]]
        return make.reshape(make.dynamic_slice(stack, starts, (1, *shape)), shape)

    def _written(self, stack: ir.Value, value: ir.Value, row: ir.Value) -> ir.Value:
        make, shape = self._make, self._make.type_of(value).shape
        starts = [row, *[make.constant(0, "i32") for _ in shape]]
        return make.dynamic_update_slice(stack, make.reshape(value, (1, *shape)), starts)

    def _zeros(self, value: int, *count: int) -> ir.Value:
        type_ = self._program.type_of(value)
        return self._make.constant(0, type_.dtype, (*count, *type_.shape))
