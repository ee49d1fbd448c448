"""A program whose ops tiled along a temporal axis run in a loop over microbatches, written as StableHLO.

    x, w, y                         %x, %w, %y
    h = dot x, w    [#tile<0>]      while step < 4, carrying a sum of zeros:
    d = h - y       [#tile<0>]          %xs = microbatch of %x;  %h = dot %xs, %w;  %d = %h - microbatch of %y
    g = dot x', d   [#sum]              sum += dot %xs', %d
    w - g                           %w - sum

Sums (and other reductions) become accumulators, tiles that leave the loop are written in place into an array that it
carries, and what does not change is read from outside. Each op in the loop is what its rule makes of a tile, with the
step for the position. Reading the module back gives a program like any other.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from autopart.core.control_flow import Branches, Carry, Loop, Region, statements
from autopart.core.importer.replay import import_module
from autopart.core.jax_internals import barrier, func, ir, stablehlo
from autopart.core.op import MUL, REDUCTION_NAMES, SUM, WHOLE, OpSpec, TensorType, splat_value
from autopart.core.ops.rule import localize
from autopart.core.ops.rules.reduce import identity
from autopart.core.program import Program
from autopart.spmd.called_functions import bring_called_functions
from autopart.spmd.local_op import MlirLocalOp
from autopart.spmd.microbatch.interleaving import Interleaving, finest
from autopart.spmd.microbatch.loop_plan import LoopPlan, Unit
from autopart.spmd.mlir_values import mlir_type
from autopart.spmd.reductions import REDUCERS


class _NeedsStretch(Exception):
    """An op's rule asks where in the whole its tile begins, so a tile must be one stretch."""


def microbatched(plan: LoopPlan, steps: int) -> Program:
    """The program with the plan's loops over `steps` microbatches."""
    program, source = plan.partitioning.program, plan.partitioning.program.source
    if source is None:
        raise ValueError("the program was unpickled without its module")
    with source.module.context, ir.Location.unknown():
        try:
            module = _Sequential(plan, finest(plan, steps)).module()
        except _NeedsStretch:
            module = _Sequential(plan, Interleaving(steps, 1)).module()
        made = import_module(
            module,
            argument_names=program.argument_names,
            output_names=program.output_names,
            ties=program.ties,
            donated=program.donated,
            callbacks=source.callbacks,
            constraints=True,
            keep_unused=program.keep_unused,
            closed_over=source.closed_over,
        )
        return replace(made, tags={name: made.tags.get(name, []) for name in program.tags})


class _Step:
    """The position of a microbatch, for rules that ask for it."""

    def __init__(self, steps: int, step: ir.Value):
        self._steps, self._step = steps, step

    def axis_size(self, axis: int) -> int:
        return self._steps

    def axis_position(self, axis: int) -> ir.Value:
        return self._step


class _Sequential:
    """Emits the program. `_values` has the value that stands for each number, as the ops around read it."""

    def __init__(self, plan: LoopPlan, interleaving: Interleaving):
        self._plan, self._rows, self._program = plan, interleaving, plan.partitioning.program
        self._values: ChainMap[int, ir.Value] = ChainMap()
        self._taken: ChainMap[tuple[int, int], ir.Value] = ChainMap()
        self._step: ir.Value | None = None
        self._inside: set[int] = set()
        self._barrier: list[int] = []
        self._last_part = _last_parts(plan)
        self._joined = {int(self._program.value_op[v]) for v in plan.joined}
        nothing = OpSpec("", {}, (), ())
        self._make = MlirLocalOp(nothing, None, (), (), (), (), (), _Step(0, cast(ir.Value, None)))

    def module(self) -> ir.Module:
        program, module = self._program, ir.Module.create()
        types = [[mlir_type(program.type_of(v)) for v in group] for group in (program.arguments, program.outputs)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(*types), visibility="public")
            block = main.add_entry_block()
        self._values.update(zip(program.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for number in range(self._plan.loops):
                self._whole(number)
                self._loop_over_steps(number)
            self._whole(self._plan.loops)
            func.ReturnOp([self._values[v] for v in program.outputs])
        ops = [op for op in program.source.representatives if op is not None]
        bring_called_functions(main.operation, ops, program.source.module, module)
        return module

    def _units(self, place: int, looped: bool) -> list[Unit]:
        plan = self._plan
        return [u for u, at in zip(plan.units, plan.place, strict=True) if at == place and u.looped == looped]

    def _whole(self, place: int) -> None:
        for unit in self._units(place, looped=False):
            if unit.start not in self._joined:
                self._range(unit.start, unit.end)

    # ---- the loop over microbatches

    def _loop_over_steps(self, number: int) -> None:
        leaving, make = self._plan.leaving[number], self._make
        kept = [self._kept_type(v) for v in leaving]
        start = [make.constant(0, "i32"), *(make.constant(0, t.dtype, t.shape) for t in kept)]
        types = [value.type for value in start]
        loop = stablehlo.WhileOp(types, start)
        condition, body = (region.blocks.append(*types) for region in loop.regions)
        with ir.InsertionPoint(condition):
            stablehlo.return_([make.compare(condition.arguments[0], make.constant(self._rows.steps, "i32"), "LT")])
        step, *held = body.arguments
        with ir.InsertionPoint(body), self._region(), self._at(step):
            for unit in self._units(number, looped=True):
                self._inside.update(range(self._program.result_ptr[unit.start], self._program.result_ptr[unit.end]))
                self._range(unit.start, unit.end)
            left = [self._kept(v, before, step) for v, before in zip(leaving, held, strict=True)]
            stablehlo.return_([make.binary("add", step, make.constant(1, "i32")), *left])
        for value, result in zip(leaving, list(loop.results)[1:], strict=True):
            self._values[value] = make.reshape(result, self._program.type_of(value).shape)

    @contextmanager
    def _at(self, step: ir.Value) -> Generator[None]:
        self._step = step
        yield
        self._step = None
        self._inside.clear()

    def _kept_type(self, value: int) -> TensorType:
        type_, dim = self._program.type_of(value), self._plan.tiled(value)
        return type_ if dim == WHOLE else self._rows.split_type(type_, dim)

    def _kept(self, value: int, before: ir.Value, step: ir.Value) -> ir.Value:
        """What the loop carries of a value that leaves it, after a step."""
        made_of = self._plan.joined.get(value, ())
        if len(made_of) > 1:
            for summand in made_of:
                before = self._kept(summand, before, step)
            return before
        if made_of:
            return self._make.binary("add", before, self._transposed(value))
        left, dim, code = self._values[value], self._plan.tiled(value), self._plan.parts.get(value, 0)
        if dim != WHOLE:
            return self._rows.put(self._make, before, left, dim, step)
        if not code:
            return left
        after = self._make.binary(REDUCERS[REDUCTION_NAMES[code]], before, left)
        return after if code == SUM else self._make.select(self._is_first(), left, after)

    def _transposed(self, value: int) -> ir.Value:
        """A sum of the loop that is transposed, or transposed again."""
        if value in self._plan.joined:
            self._transposed(self._plan.joined[value][0])
            op = int(self._program.value_op[value])
            self._op(op, self._program.spec(op).kind)
        return self._values[value]

    def _is_first(self) -> ir.Value:
        assert self._step is not None
        return self._make.compare(self._step, self._make.constant(0, "i32"), "EQ")

    # ---- ops

    def _range(self, start: int, end: int) -> None:
        for statement in statements(self._program, start, end):
            op = statement if isinstance(statement, int) else statement.op
            source = self._program.source.source_of(op)
            with source.location if source is not None else ir.Location.unknown():
                match statement:
                    case Loop():
                        self._loop(statement)
                    case Branches():
                        self._branches(statement)
                    case _:
                        self._op(op, self._program.spec(op).kind)

    def _op(self, op: int, kind: str) -> None:
        if kind == "condition":
            return
        if kind == "optimization_barrier":
            self._part_of_barrier(op)
            return
        operands = self._operands(op)
        results = self._tagged(op, operands) if kind == "tag" else self._results(op, kind, operands)
        self._values.update(zip(self._program.results_of(op), results, strict=True))

    def _results(self, op: int, kind: str, operands: list[ir.Value]) -> list[ir.Value]:
        spec, number = self._program.spec(op), int(self._program.op_spec[op])
        mapping = self._plan.mapping(op) if self._step is not None else None
        source = self._program.source.source_of(op) or self._program.source.representatives[number]
        inputs = [self._make.type_of(x) for x in operands]
        if mapping is None:
            nest, step, outputs = (), cast(ir.Value, None), list(spec.results)
        else:
            if kind == "iota":
                return [self._iota(op, spec)]
            if not operands and "value" in spec.attributes and splat_value(spec) is None:
                whole = MlirLocalOp(spec, source, (), (), [], [], spec.results, _Step(1, cast(ir.Value, None)))
                return [self._take(whole.clone()[0], mapping.results[0])]
            nest = ((0, int(self._plan.partitioning.state.mapping[op, 0])),)
            step = stablehlo.ReshapeOp(*_type_and_value(self._step)).result
            outputs = [self._local_type(v) for v in self._program.results_of(op)]
        table = self._plan.partitioning.table.of[number]
        positions = _Step(self._rows.steps, step)
        results = localize(MlirLocalOp(spec, source, table, nest, operands, inputs, outputs, positions))
        if mapping is not None:
            self._settle_position(step)
        return results

    def _settle_position(self, step: ir.Value) -> None:
        """Puts the loop's step in place of `step`, unless a rule computes with it: then a tile must be one stretch."""
        asked = [use.owner.operation.name for use in step.uses]
        if self._rows.stretches > 1 and any(name != "stablehlo.compare" for name in asked):
            raise _NeedsStretch
        step.replace_all_uses_with(cast(ir.Value, self._step))
        cast(Any, step.owner).erase()

    def _iota(self, op: int, spec: OpSpec) -> ir.Value:
        value = self._program.results_of(op)[0]
        type_, dim = self._local_type(value), self._plan.tiled(value)
        if spec.attributes["iota_dimension"] != dim:
            return self._make.iota(type_, spec.attributes["iota_dimension"])
        return self._make.convert(self._rows.rows(self._make, type_, dim, cast(ir.Value, self._step)), type_.dtype)

    def _tagged(self, op: int, operands: list[ir.Value]) -> list[ir.Value]:
        copy = self._program.source.source_of(op).clone()
        copy.operands[0] = operands[0]
        copy.results[0].set_type(operands[0].type)
        return list(copy.results)

    def _part_of_barrier(self, op: int) -> None:
        """A barrier's ops, one per operand, become one barrier for those of them that run together."""
        self._barrier.append(op)
        if op != self._last_part[op]:
            return
        joined, self._barrier = self._barrier, []
        results = barrier(*[self._operands(op)[0] for op in joined])
        for part, result in zip(joined, results, strict=True):
            self._values[self._program.results_of(part)[0]] = result

    # ---- what ops read

    def _local_type(self, value: int) -> TensorType:
        type_ = self._program.type_of(value)
        return self._rows.tile_type(type_, self._plan.tiled(value)) if value in self._inside else type_

    def _operands(self, op: int) -> list[ir.Value]:
        first, last = self._program.operand_ptr[op : op + 2].tolist()
        return [self._read(use) for use in range(first, last)]

    def _read(self, use: int) -> ir.Value:
        """What an entry of `operands` reads: a value, its microbatch, or in the loop a part of it."""
        program, plan = self._program, self._plan
        value, op = int(program.operands[use]), int(program.use_op[use])
        if self._step is None:
            return self._values[value]
        position = use - int(program.operand_ptr[op])
        mapping, way = plan.mapping(op), plan.passage.get(op)
        if mapping is not None and mapping.operands[position] != WHOLE:
            made = plan.tiled(value) if value in self._inside else WHOLE
            return self._values[value] if made != WHOLE else self._microbatch(value, mapping.operands[position])
        if way is not None and way.parts[position] and not (value in self._inside and value in plan.parts):
            return self._as_part(self._values[value], way.code)
        return self._values[value]

    def _microbatch(self, value: int, dim: int) -> ir.Value:
        if (value, dim) not in self._taken:
            self._taken[value, dim] = self._take(self._values[value], dim)
        return self._taken[value, dim]

    def _take(self, whole: ir.Value, dim: int) -> ir.Value:
        return self._rows.take(self._make, whole, dim, cast(ir.Value, self._step))

    def _as_part(self, whole: ir.Value, code: int) -> ir.Value:
        """A value that is whole, as parts that combine to it: itself, but of sums and products only once."""
        if code not in (SUM, MUL):
            return whole
        type_ = self._make.type_of(whole)
        nothing = self._make.constant(identity(code, type_.dtype), type_.dtype, type_.shape)
        return self._make.select(self._is_first(), whole, nothing)

    # ---- control flow

    def _loop(self, loop: Loop) -> None:
        initial = [self._read(carry.initial) for carry in loop.carries]
        types = [value.type for value in initial]
        op = stablehlo.WhileOp(types, initial)
        for region, inside in zip(op.regions, (loop.condition, loop.body), strict=True):
            self._emit_region(region.blocks.append(*types), inside, loop.carries)
        for carry, result in zip(loop.carries, op.results, strict=True):
            self._values[carry.after] = result

    def _branches(self, case: Branches) -> None:
        predicate = self._read(case.predicate)
        values = [self._program.results_of(join)[0] for join in case.joins]
        types = [mlir_type(self._local_type(v)) for v in values]
        two_way = self._program.spec(case.op).operands[0].dtype == "i1"
        op = stablehlo.IfOp(types, predicate) if two_way else stablehlo.CaseOp(types, predicate, len(case.branches))
        for region, branch in zip(op.regions, case.branches, strict=True):
            self._emit_region(region.blocks.append(), branch, ())
        self._values.update(zip(values, op.results, strict=True))

    def _emit_region(self, block: ir.Block, region: Region, carries: Sequence[Carry]) -> None:
        with ir.InsertionPoint(block), self._region():
            for carry, argument in zip(carries, block.arguments, strict=True):
                self._values[carry.inside] = argument
            self._range(region.scope.start, region.scope.end)
            stablehlo.return_([self._read(use) for use in region.returns])

    @contextmanager
    def _region(self) -> Generator[None]:
        """What is defined inside cannot be read after it."""
        self._values, self._taken = self._values.new_child(), self._taken.new_child()
        yield
        self._values, self._taken = self._values.parents, self._taken.parents


def _type_and_value(value: ir.Value | None) -> tuple[Any, Any]:
    """What an op that leaves a value as it is is made from."""
    assert value is not None
    return value.type, value


def _last_parts(plan: LoopPlan) -> dict[int, int]:
    """Op of a barrier -> the last op of the barrier that runs at the same place; inside a loop or a case all do."""
    place = {unit.start: (at, unit.looped) for unit, at in zip(plan.units, plan.place, strict=True)}
    last: dict[tuple[int, object], int] = {}
    for number, joined in enumerate(plan.partitioning.program.barriers):
        last.update({(number, place.get(op)): op for op in joined})
    barriers = enumerate(plan.partitioning.program.barriers)
    return {op: last[number, place.get(op)] for number, joined in barriers for op in joined}
