"""Ops of a program written as StableHLO, some of them once for all stages: with a stage dim in front.

    h  = dot x, w            x: staged [4, b, d], w: staged [4, d, f]       h = dot_general with batch dim 0
    m  = iota                nothing that it reads is staged                m = iota, once for all stages
    h' = add h, m                                                           m is broadcast along the stages

A value is staged if the op that makes it reads a staged one; a loop's carry is staged if what enters it is, or what a
turn leaves. An op's rule says what the op is with one more dim (`core/ops/batching.py`). Where it has no form for that,
the op runs once for each stage, and nothing tiles it. Of branches that stages choose apart all run, and each selects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from autopart.core.control_flow import Branches, Loop, statements
from autopart.core.doors.jax_internals import ir
from autopart.core.mlir_values import MlirValues
from autopart.core.op import OR, SUM, OpSpec, TensorType
from autopart.core.ops.rule import batched, has_effect
from autopart.core.program import Program
from autopart.spmd.emission.program_writer import ProgramWriter
from autopart.spmd.emission.reductions import reduced
from autopart.spmd.pipeline.layer_loops import blocked


class StagedOps(ProgramWriter):
    """Emits ops of a program.

    staged    the values that have a stage dim in front, in the scope that is written
    instead   op -> what is emitted in its place; it sets the values of the op's results
    """

    def __init__(self, program: Program, stages: int):
        super().__init__(program)
        self.stages, self.make = stages, MlirValues()
        self.staged: set[int] = set()
        self.instead: dict[int, Callable[[], None]] = {}
        self._barrier_of = {op: joined for joined in program.barriers for op in joined}

    # ---- which values are staged

    def find_staged(self, start: int, end: int) -> None:
        """Adds to `staged` what ops in `[start, end)` make of staged values."""
        program = self._program
        for statement in statements(program, start, end):
            match statement:
                case Loop():
                    self._find_staged_carries(statement)
                case Branches():
                    for branch in statement.branches:
                        self.find_staged(branch.scope.start, branch.scope.end)
                    for join in statement.joins:
                        if self._reads_staged(join) or self.is_staged(statement.predicate):
                            self.staged.update(program.results_of(join))
                case op:
                    if self._reads_staged(op):
                        self.staged.update(program.results_of(op))

    def _find_staged_carries(self, loop: Loop) -> None:
        found = -1
        while found < len(self.staged):
            found = len(self.staged)
            for carry in loop.carries:
                if self._reads_staged(carry.op):
                    self.staged.update((carry.inside, carry.after))
            self.find_staged(loop.condition.scope.start, loop.body.scope.end)

    def _reads_staged(self, op: int) -> bool:
        return not self.staged.isdisjoint(self._program.operands_of(op).tolist())

    def is_staged(self, use: int) -> bool:
        """Whether an entry of `operands` reads a staged value."""
        return int(self._program.operands[use]) in self.staged

    # ---- ops

    def statement(self, statement: int | Loop | Branches) -> None:
        """See `ProgramWriter.statement`."""
        op = statement if isinstance(statement, int) else statement.op
        if op in self.instead:
            self.instead[op]()
        else:
            super().statement(statement)

    def op(self, op: int) -> None:
        """See `ProgramWriter.op`."""
        program, spec = self._program, self._program.spec(op)
        operands = [self.values[v] for v in program.operands_of(op).tolist()]
        if spec.kind == "tag":
            results = self.tagged(op, operands[0])
        elif self._reads_staged(op):
            found = batched(self.local(op, operands, [self.staged_type(t) for t in spec.results]))
            results = self._stage_by_stage(op, spec, operands) if found is None else cast("list[ir.Value]", found)
        else:
            results = self.local(op, operands, spec.results).clone()
        self.values.update(zip(program.results_of(op), results, strict=True))

    def _stage_by_stage(self, op: int, spec: OpSpec, operands: Sequence[ir.Value]) -> list[ir.Value]:
        if has_effect(spec):
            raise blocked(
                self._program,
                op,
                f"{spec.kind} in a layer does more than compute",
                why="all stages run at once, so it has no order",
                hint="leave host callbacks out of the layers",
            )
        make, read = self.make, self._program.operands_of(op).tolist()
        parts: list[list[ir.Value]] = []
        for stage in range(self.stages):
            mine = [self._at_stage(x, stage) if v in self.staged else x for v, x in zip(read, operands, strict=True)]
            parts.append(self.local(op, mine, spec.results).clone())
        rows = [[make.reshape(x, (1, *make.type_of(x).shape)) for x in part] for part in parts]
        return [make.concatenate(column, 0) for column in zip(*rows, strict=True)]

    def part_of_barrier(self, op: int) -> None:
        """See `ProgramWriter.part_of_barrier`: what is not there when the first is reached is not read here."""
        if self._program.results_of(op)[0] not in self.values.maps[0]:
            self.barrier([p for p in self._barrier_of[op] if int(self._program.operands_of(p)[0]) in self.values])

    # ---- a stage dim

    def staged_type(self, type_: TensorType) -> TensorType:
        """A type with the stage dim in front."""
        return TensorType((self.stages, *type_.shape), type_.dtype)

    def for_all(self, value: ir.Value) -> ir.Value:
        """A value that is the same for all stages, with the stage dim."""
        shape = self.make.type_of(value).shape
        return self.make.broadcast(value, (self.stages, *shape), range(1, len(shape) + 1))

    def along(self, per_stage: ir.Value, shape: Sequence[int]) -> ir.Value:
        """One scalar per stage, broadcast to a staged shape."""
        return self.make.broadcast(per_stage, shape, [0])

    def _at_stage(self, value: ir.Value, stage: int) -> ir.Value:
        """What a staged value is at one stage."""
        shape = self.make.type_of(value).shape
        start, limit = [stage, *[0] * (len(shape) - 1)], [stage + 1, *shape[1:]]
        return self.make.reshape(self.make.slice(value, start, limit), shape[1:])

    def of_stage(self, value: ir.Value, stage: int) -> ir.Value:
        """The same, computed by all stages: each has it or zeros, which are added up."""
        type_, make = self.make.type_of(value), self.make
        number = make.constant(stage, "i32", (self.stages,))
        own = make.compare(make.iota(TensorType((self.stages,), "i32"), 0), number, "EQ")
        masked = make.select(self.along(own, type_.shape), value, make.constant(0, type_.dtype, type_.shape))
        return reduced(masked, 0, OR if type_.dtype == "i1" else SUM)

    def moved(self, value: ir.Value, by: int) -> ir.Value:
        """What stage s holds at stage s + by; zeros where nothing comes from."""
        type_ = self.make.type_of(value)
        nothing, rest = self.make.constant(0, type_.dtype), [0] * (len(type_.shape) - 1)
        return self.make.pad(value, nothing, [by, *rest], [-by, *rest])

    def given(self, use: int, to: int) -> ir.Value:
        """See `ProgramWriter.given`: it has the stage dim where what it is given to has."""
        return self.for_all(self.read(use)) if to in self.staged and not self.is_staged(use) else self.read(use)

    def type_of(self, value: int) -> TensorType:
        """See `ProgramWriter.type_of`."""
        type_ = super().type_of(value)
        return self.staged_type(type_) if value in self.staged else type_

    # ---- control flow

    def loop(self, loop: Loop) -> None:
        """See `ProgramWriter.loop`."""
        if self.is_staged(loop.condition.returns[0]):
            raise blocked(
                self._program,
                loop.op,
                "a loop in a layer runs as often as its data says",
                why="all stages run it at once",
                hint="a scan, or a loop with as many turns in every layer",
            )
        super().loop(loop)

    def branches(self, case: Branches) -> None:
        """See `ProgramWriter.branches`. A predicate of two ways is true for the first."""
        if not self.is_staged(case.predicate):
            super().branches(case)
            return
        make, chosen = self.make, self.read(case.predicate)
        values = [self._program.results_of(join)[0] for join in case.joins]
        ways: list[list[ir.Value]] = []
        for branch in case.branches:
            with self.inner_scope():
                self.range(branch.scope.start, branch.scope.end)
                ways.append([self.given(use, value) for use, value in zip(branch.returns, values, strict=True)])
        two_way = make.type_of(chosen).dtype == "i1"
        for position, value in enumerate(values):
            result = ways[-1][position]
            for number, way in reversed(list(enumerate(ways[:-1]))):
                of_all = make.constant(number, make.type_of(chosen).dtype, (self.stages,))
                mine = chosen if two_way else make.compare(chosen, of_all, "EQ")
                result = make.select(self.along(mine, make.type_of(result).shape), way[position], result)
            self.values[value] = result
