"""A program written as StableHLO again, with its loops and branches, by a pass that changes some of it.

    class Doubled(ProgramWriter):
        def op(self, op):            what is emitted for an op; `values` has what stands for each value by now
        def read(self, use): ...     what an entry of `operands` reads

    Doubled(program).program()       written, and read back like any other program

Reading it back makes carries, trip counts, barriers and clones of constants in one place, and gives export an MLIR op
for every spec.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from autopart.core.control_flow import Branches, Carry, Loop, Region, statements
from autopart.core.doors.jax_internals import barrier, func, ir, stablehlo
from autopart.core.importer.replay import import_module
from autopart.core.mlir_values import MlirValues, mlir_type
from autopart.core.op import TensorType
from autopart.core.op_spec_import import tensor_type
from autopart.core.program import Program
from autopart.spmd.emission.called_functions import bring_called_functions
from autopart.spmd.emission.local_op import MlirLocalOp


class _OnePlace:
    """Positions for ops that stand in no loop nest."""

    def axis_size(self, axis: int) -> int:
        return 1

    def axis_position(self, axis: int) -> ir.Value:
        raise ValueError("an op in no loop has no position")


class ProgramWriter(ABC):
    """Emits a program at MLIR's insertion point; `values` has what stands for each value in the scope being written."""

    def __init__(self, program: Program):
        self._program = program
        self.values: ChainMap[int, ir.Value] = ChainMap()

    @abstractmethod
    def op(self, op: int) -> None:
        """Emits an op, and sets the values of its results."""

    @abstractmethod
    def main(self) -> None:
        """Emits all that stands between the arguments and the outputs."""

    @abstractmethod
    def part_of_barrier(self, op: int) -> None:
        """Emits what there is to emit where one of a barrier's ops stands: `barrier`, once for those that are there."""

    def read(self, use: int) -> ir.Value:
        """What an entry of `operands` reads."""
        return self.values[int(self._program.operands[use])]

    def given(self, use: int, to: int) -> ir.Value:
        """What an entry of `operands` gives to a carry, inside its loop, or to the result of branches."""
        return self.read(use)

    def type_of(self, value: int) -> TensorType:
        """The type of what stands for a value in the scope being written."""
        return self._program.type_of(value)

    def program(self, tags: Iterable[str] = ()) -> Program:
        """The program as it is written, with the tags that the program had and `tags`."""
        program, source = self._program, self._program.source
        if source is None:
            raise ValueError("the program was unpickled without its module")
        with source.module.context, ir.Location.unknown():
            made = import_module(
                self._module(),
                argument_names=program.argument_names,
                output_names=program.output_names,
                ties=program.ties,
                donated=program.donated,
                bodies=source.bodies,
                constraints=True,
                keep_unused=program.keep_unused,
                closed_over=source.closed_over,
            )
        return replace(made, tags={name: made.tags.get(name, []) for name in (*program.tags, *tags)})

    def _module(self) -> ir.Module:
        program, module = self._program, ir.Module.create()
        types = [[mlir_type(program.type_of(v)) for v in group] for group in (program.arguments, program.outputs)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(*types), visibility="public")
            block = main.add_entry_block()
        self.values.update(zip(program.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            self.main()
            func.ReturnOp([self.values[v] for v in program.outputs])
        ops = [op for op in program.source.representatives if op is not None]
        bring_called_functions(main.operation, ops, program.source.module, module)
        return module

    def range(self, start: int, end: int) -> None:
        """Emits all that stands in `[start, end)`."""
        for statement in statements(self._program, start, end):
            self.statement(statement)

    def statement(self, statement: int | Loop | Branches) -> None:
        """Emits an op, a loop or branches."""
        op = statement if isinstance(statement, int) else statement.op
        source = self._program.source.source_of(op)
        with source.location if source is not None else ir.Location.unknown():
            match statement:
                case Loop():
                    self.loop(statement)
                case Branches():
                    self.branches(statement)
                case _:
                    self._single(op, self._program.spec(op).kind)

    def _single(self, op: int, kind: str) -> None:
        if kind == "optimization_barrier":
            self.part_of_barrier(op)
        elif kind != "condition":
            self.op(op)

    def local(self, op: int, operands: Sequence[ir.Value], results: Sequence[TensorType]) -> MlirLocalOp:
        """An op on other operands, with results of other types."""
        program, spec = self._program, self._program.spec(op)
        source = program.source.source_of(op) or program.source.representatives[program.op_spec[op]]
        types = [tensor_type(x.type) for x in operands]
        return MlirLocalOp(spec, source, (), (), operands, types, results, _OnePlace())

    def tagged(self, op: int, value: ir.Value) -> list[ir.Value]:
        """A tag on what stands for its operand."""
        copy = self._program.source.source_of(op).clone()
        copy.operands[0] = value
        copy.results[0].set_type(value.type)
        return list(copy.results)

    def barrier(self, parts: Sequence[int]) -> None:
        """Emits one barrier for ops of one, which has an op per operand."""
        results = barrier(*[self.read(int(self._program.operand_ptr[part])) for part in parts])
        for part, result in zip(parts, results, strict=True):
            self.values[self._program.results_of(part)[0]] = result

    def loop(self, loop: Loop) -> None:
        """Emits a loop."""
        initial = [self.given(carry.initial, carry.inside) for carry in loop.carries]
        types = [value.type for value in initial]
        op = stablehlo.WhileOp(types, initial)
        for region, inside in zip(op.regions, (loop.condition, loop.body), strict=True):
            self._region(region.blocks.append(*types), inside, loop.carries)
        for carry, result in zip(loop.carries, op.results, strict=True):
            self.values[carry.after] = result

    def branches(self, case: Branches) -> None:
        """Emits branches, of which one runs."""
        predicate = self.read(case.predicate)
        values = [self._program.results_of(join)[0] for join in case.joins]
        types = [mlir_type(self.type_of(v)) for v in values]
        two_way = self._program.spec(case.op).operands[0].dtype == "i1"
        op = stablehlo.IfOp(types, predicate) if two_way else stablehlo.CaseOp(types, predicate, len(case.branches))
        for region, branch in zip(op.regions, case.branches, strict=True):
            with ir.InsertionPoint(region.blocks.append()), self.inner_scope():
                self.range(branch.scope.start, branch.scope.end)
                stablehlo.return_([self.given(use, value) for use, value in zip(branch.returns, values, strict=True)])
        self.values.update(zip(values, op.results, strict=True))

    def _region(self, block: ir.Block, region: Region, carries: Sequence[Carry]) -> None:
        with ir.InsertionPoint(block), self.inner_scope():
            for carry, argument in zip(carries, block.arguments, strict=True):
                self.values[carry.inside] = argument
            self.range(region.scope.start, region.scope.end)
            if region.scope.kind == "condition":
                stablehlo.return_([self.read(use) for use in region.returns])
            else:
                stablehlo.return_([self.given(u, c.inside) for u, c in zip(region.returns, carries, strict=True)])

    def counted_loop(
        self,
        count: int,
        initial: Sequence[ir.Value],
        turn: Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> Sequence[ir.Value]:
        """Emits a loop of `count` turns: of its number and of what is carried, `turn` makes what is carried on."""
        make = MlirValues()
        start = [make.constant(0, "i32"), *initial]
        types = [value.type for value in start]
        loop = stablehlo.WhileOp(types, start)
        condition, body = (region.blocks.append(*types) for region in loop.regions)
        with ir.InsertionPoint(condition):
            stablehlo.return_([make.compare(condition.arguments[0], make.constant(count, "i32"), "LT")])
        with ir.InsertionPoint(body), self.inner_scope():
            number, *held = body.arguments
            left = turn(number, held)
            stablehlo.return_([make.binary("add", number, make.constant(1, "i32")), *left])
        return list(loop.results)[1:]

    @contextmanager
    def inner_scope(self) -> Generator[None]:
        """What is defined inside cannot be read after it."""
        self.values = self.values.new_child()
        yield
        self.values = self.values.parents
