"""Ops of a program written as StableHLO, some of them once for all stages: with a stage dim in front.

    h  = dot x, w            x: staged [4, b, d], w: staged [4, d, f]       h = dot_general with batch dim 0
    m  = iota                nothing that it reads is staged                m = iota, once for all stages
    h' = add h, m                                                           m is broadcast along the stages

A value is staged if the op that makes it reads a staged one; a loop's carry is staged if what enters it is, or what a
turn leaves. An op's rule says what the op is with one more dim (`core/ops/batching.py`). Where it has no form for that,
the op runs once for each stage, and nothing tiles it. Of branches that stages choose apart all run, and each selects.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import cast

from autopart.core.control_flow import Branches, Carry, Loop, Region, statements
from autopart.core.errors import BlockedError
from autopart.core.jax_internals import barrier, ir, stablehlo
from autopart.core.op import OR, SUM, OpSpec, TensorType
from autopart.core.ops.rule import batched, has_effect
from autopart.core.program import Program
from autopart.spmd.local_op import MlirLocalOp
from autopart.spmd.mlir_values import MlirValues, mlir_type
from autopart.spmd.reductions import reduced


class _OnePlace:
    """Positions for ops that stand in no loop nest."""

    def axis_size(self, axis: int) -> int:
        return 1

    def axis_position(self, axis: int) -> ir.Value:
        raise ValueError("an op in no loop has no position")


class StagedOps:
    """Emits ops of a program at MLIR's insertion point.

    values    value number -> what stands for it, in the scope that is written
    staged    the values that have a stage dim in front
    instead   op -> what is emitted in its place; it sets the values of the op's results
    """

    def __init__(self, program: Program, stages: int):
        self.program, self.stages, self.make = program, stages, MlirValues()
        self.values: ChainMap[int, ir.Value] = ChainMap()
        self.staged: set[int] = set()
        self.instead: dict[int, Callable[[], None]] = {}
        self._barrier_of = {op: joined for joined in program.barriers for op in joined}

    # ---- which values are staged

    def find_staged(self, start: int, end: int) -> None:
        """Adds to `staged` what ops in `[start, end)` make of staged values."""
        program = self.program
        for statement in statements(program, start, end):
            match statement:
                case Loop():
                    self._find_staged_carries(statement)
                case Branches():
                    self._find_staged_joins(statement)
                case op:
                    if not self.staged.isdisjoint(program.operands_of(op).tolist()):
                        self.staged.update(program.results_of(op))

    def _find_staged_carries(self, loop: Loop) -> None:
        program, found = self.program, -1
        while found < len(self.staged):
            found = len(self.staged)
            for carry in loop.carries:
                if not self.staged.isdisjoint(program.operands_of(carry.op).tolist()):
                    self.staged.update((carry.inside, carry.after))
            self.find_staged(loop.condition.scope.start, loop.body.scope.end)

    def _find_staged_joins(self, case: Branches) -> None:
        program = self.program
        for branch in case.branches:
            self.find_staged(branch.scope.start, branch.scope.end)
        for join in case.joins:
            if not self.staged.isdisjoint([int(program.operands[case.predicate]), *program.operands_of(join).tolist()]):
                self.staged.update(program.results_of(join))

    # ---- ops

    def range(self, start: int, end: int) -> None:
        """All that stands in `[start, end)`."""
        for statement in statements(self.program, start, end):
            self.statement(statement)

    def statement(self, statement: int | Loop | Branches) -> None:
        """An op, a loop or branches."""
        op = statement if isinstance(statement, int) else statement.op
        source = self.program.source.source_of(op)
        with source.location if source is not None else ir.Location.unknown():
            if op in self.instead:
                self.instead[op]()
                return
            match statement:
                case Loop():
                    self._loop(statement)
                case Branches():
                    self._branches(statement)
                case _:
                    self._op(op)

    def _op(self, op: int) -> None:
        program, kind = self.program, self.program.spec(op).kind
        if kind == "condition":
            return
        if kind == "optimization_barrier":
            self._part_of_barrier(op)
            return
        read = program.operands_of(op).tolist()
        operands = [self.values[v] for v in read]
        if kind == "tag":
            results = self._tagged(op, operands[0])
        elif self.staged.isdisjoint(read):
            results = self.local(op, operands, program.spec(op).results).clone()
        else:
            results = self._batched(op, operands)
        self.values.update(zip(program.results_of(op), results, strict=True))

    def local(self, op: int, operands: Sequence[ir.Value], results: Sequence[TensorType]) -> MlirLocalOp:
        """An op on other operands, with results of other types."""
        program, spec = self.program, self.program.spec(op)
        source = program.source.source_of(op) or program.source.representatives[program.op_spec[op]]
        types = [self.make.type_of(x) for x in operands]
        return MlirLocalOp(spec, source, (), (), operands, types, results, _OnePlace())

    def _batched(self, op: int, operands: Sequence[ir.Value]) -> list[ir.Value]:
        spec = self.program.spec(op)
        local = self.local(op, operands, [self.staged_type(t) for t in spec.results])
        found = batched(local)
        return self._stage_by_stage(op, spec, operands) if found is None else cast("list[ir.Value]", found)

    def _stage_by_stage(self, op: int, spec: OpSpec, operands: Sequence[ir.Value]) -> list[ir.Value]:
        if has_effect(spec):
            where = self.program.where(op)
            raise BlockedError(
                f"{spec.kind} in a layer does more than compute" + (f"  at {where}" if where else ""),
                why="all stages run at once, so it has no order",
                hint="leave host callbacks out of the layers",
            )
        make, read = self.make, self.program.operands_of(op).tolist()
        parts: list[list[ir.Value]] = []
        for stage in range(self.stages):
            mine = [self.at_stage(x, stage) if v in self.staged else x for v, x in zip(read, operands, strict=True)]
            parts.append(self.local(op, mine, spec.results).clone())
        rows = [[make.reshape(x, (1, *make.type_of(x).shape)) for x in part] for part in parts]
        return [make.concatenate(column, 0) for column in zip(*rows, strict=True)]

    def _tagged(self, op: int, value: ir.Value) -> list[ir.Value]:
        copy = self.program.source.source_of(op).clone()
        copy.operands[0] = value
        copy.results[0].set_type(value.type)
        return list(copy.results)

    def _part_of_barrier(self, op: int) -> None:
        """A barrier's ops become one with the first of them; those that are not reached yet are not of its scope."""
        program = self.program
        parts = [p for p in self._barrier_of[op] if int(program.operands_of(p)[0]) in self.values]
        if program.results_of(op)[0] in self.values.maps[0]:
            return
        results = barrier(*[self.values[int(program.operands_of(p)[0])] for p in parts])
        for part, result in zip(parts, results, strict=True):
            self.values[program.results_of(part)[0]] = result

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

    def at_stage(self, value: ir.Value, stage: int) -> ir.Value:
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
        """What stage s holds at stage s + by, which is 1 or -1; zeros at the end where nothing comes from."""
        type_ = self.make.type_of(value)
        nothing, rest = self.make.constant(0, type_.dtype), [0] * (len(type_.shape) - 1)
        return self.make.pad(value, nothing, [by, *rest], [-by, *rest])

    def _given(self, use: int, staged: bool) -> ir.Value:
        value = int(self.program.operands[use])
        return self.for_all(self.values[value]) if staged and value not in self.staged else self.values[value]

    # ---- control flow

    def _loop(self, loop: Loop) -> None:
        predicate = int(self.program.operands[loop.condition.returns[0]])
        if predicate in self.staged:
            where = self.program.where(loop.op)
            raise BlockedError(
                "a loop in a layer runs as often as its data says" + (f"  at {where}" if where else ""),
                why="all stages run it at once",
                hint="a scan, or a loop with as many turns in every layer",
            )
        initial = [self._given(c.initial, c.inside in self.staged) for c in loop.carries]
        types = [value.type for value in initial]
        op = stablehlo.WhileOp(types, initial)
        for region, inside in zip(op.regions, (loop.condition, loop.body), strict=True):
            self._emit_region(region.blocks.append(*types), inside, loop.carries)
        for carry, result in zip(loop.carries, op.results, strict=True):
            self.values[carry.after] = result

    def _branches(self, case: Branches) -> None:
        predicate, program = int(self.program.operands[case.predicate]), self.program
        values = [program.results_of(join)[0] for join in case.joins]
        if predicate in self.staged:
            self._select_branch(case, values)
            return
        types = [
            mlir_type(self.staged_type(program.type_of(v)) if v in self.staged else program.type_of(v)) for v in values
        ]
        chosen = self.values[predicate]
        two_way = program.spec(case.op).operands[0].dtype == "i1"
        op = stablehlo.IfOp(types, chosen) if two_way else stablehlo.CaseOp(types, chosen, len(case.branches))
        for region, branch in zip(op.regions, case.branches, strict=True):
            block = region.blocks.append()
            with ir.InsertionPoint(block), self.inner_scope():
                self.range(branch.scope.start, branch.scope.end)
                stablehlo.return_(
                    [self._given(use, v in self.staged) for use, v in zip(branch.returns, values, strict=True)]
                )
        self.values.update(zip(values, op.results, strict=True))

    def _select_branch(self, case: Branches, values: Sequence[int]) -> None:
        """All branches run; each stage takes what its own leaves. A predicate of two ways is true for the first."""
        make, chosen = self.make, self.values[int(self.program.operands[case.predicate])]
        ways: list[list[ir.Value]] = []
        for branch in case.branches:
            with self.inner_scope():
                self.range(branch.scope.start, branch.scope.end)
                ways.append([self._given(use, True) for use in branch.returns])
        two_way = make.type_of(chosen).dtype == "i1"
        for position, value in enumerate(values):
            result = ways[-1][position]
            shape = make.type_of(result).shape
            for number, way in reversed(list(enumerate(ways[:-1]))):
                number_of_all = None if two_way else make.constant(number, make.type_of(chosen).dtype, (self.stages,))
                mine = chosen if number_of_all is None else make.compare(chosen, number_of_all, "EQ")
                result = make.select(self.along(mine, shape), way[position], result)
            self.values[value] = result

    def _emit_region(self, block: ir.Block, region: Region, carries: Sequence[Carry]) -> None:
        with ir.InsertionPoint(block), self.inner_scope():
            for carry, argument in zip(carries, block.arguments, strict=True):
                self.values[carry.inside] = argument
            self.range(region.scope.start, region.scope.end)
            if len(region.returns) == 1 and region.scope.kind == "condition":
                stablehlo.return_([self._given(region.returns[0], False)])
            else:
                kept = zip(region.returns, carries, strict=True)
                stablehlo.return_([self._given(use, carry.inside in self.staged) for use, carry in kept])

    @contextmanager
    def inner_scope(self) -> Generator[None]:
        """What is defined inside cannot be read after it."""
        self.values = self.values.new_child()
        yield
        self.values = self.values.parents
