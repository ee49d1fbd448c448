"""DeviceLocal -> StableHLO: the module that every device runs.

    func.func @main(%arg0: tensor<64x8xf32>, %arg1: tensor<2x8xf32>)
      %0 = stablehlo.all_gather %arg1 ...          a redistribution, before the use that needs it
      %1 = stablehlo.dot_general %arg0, %0         the op on local shapes

The walk says what comes when; this file says what it is in StableHLO. A stored-sharded value that is gathered more than
once has its groups of devices listed in another order each time (`Step.spellings`), so that the compiler does not merge
the gathers. Where all devices are one group there is no other order: from the second time on, the shard is passed
through an `optimization_barrier` with another operand of the use. That has a price: the other operand is written out,
and the shard is rounded for products once more. Where loops hold parts (`ShardLoops`), a barrier stands before
what a turn gathers of a value from outside the loop, from the first time on: it could be moved before the loop. A sum
that a turn reduces into the tile to which it is added is held by a barrier too: XLA would move the reduction behind the
loop, and let the loop add up what is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

from autopart.base.gc_pause import gc_paused
from autopart.core.control_flow import Branches, Loop
from autopart.core.doors.jax_internals import barrier, func, ir, stablehlo
from autopart.core.mlir_values import MlirValues, mlir_type
from autopart.core.op import TensorType
from autopart.core.ops.groups_as_one import grouped_convolutions
from autopart.core.ops.rule import changes_nothing
from autopart.core.program import ROOT, Program
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.called_functions import bring_called_functions
from autopart.spmd.emission.distinct_ops import DistinctOps
from autopart.spmd.emission.emitter import Emitter
from autopart.spmd.emission.scoped_values import ScopedValues
from autopart.spmd.emission.walk import Walk
from autopart.spmd.for_xla.compiled_right import compile_right
from autopart.spmd.for_xla.image_orders import image_orders
from autopart.spmd.for_xla.left_images import left_images
from autopart.spmd.for_xla.memory_orders import in_order
from autopart.spmd.for_xla.merged_groups import merge_groups
from autopart.spmd.for_xla.summed_scatters import scattered_into, summed_scatters
from autopart.spmd.for_xla.update_orders import update_orders
from autopart.spmd.for_xla.written_once import written_once
from autopart.spmd.redistribution import Plan
from autopart.spmd.run import output_layouts
from autopart.spmd.sums.last_reductions import last_reductions

_STRUCTURAL = ("tag", "condition")
"""Kinds that leave no op: their results are their operands."""


def export(local: DeviceLocal, numbered: bool = False) -> ir.Module:
    """The device-local StableHLO module; its `main` takes and returns what one device holds.

    Of the arguments it takes those that are passed (`Program.passed_arguments`). With `numbered` the location of an op
    is its number in the program, "op 12", and that of a collective the value that it moves, "value 7", so that what a
    compiler makes of them can be found again.
    """
    source = local.program.source
    if source is None:
        raise ValueError("the program was unpickled without its module; export where it was imported")
    with gc_paused(), source.module.context, ir.Location.unknown():
        return _Exporter(local, numbered).module()


class _Exporter:
    """A visitor for which MLIR values stand for values."""

    def __init__(self, local: DeviceLocal, numbered: bool):
        self._local, self._program, self._numbered = local, local.program, numbered
        self._values = ScopedValues()
        self._last = last_reductions(local)
        self._written = written_once(local)
        in_place = local.forms is not None and local.forms.in_place
        self._orders = image_orders(local.program) if in_place else {}
        self._sums = summed_scatters(local.program)
        self._in_memory = left_images(local) | update_orders(local) if in_place else {}
        self._of_tasks = grouped_convolutions(local.program) if in_place else {}
        self._in_groups: list[tuple[ir.Operation, bool]] = []
        plans = zip(local.at_def.tolist(), local.def_plans, strict=True)
        self._cut = {value for value, plan in plans if any(step.kind != "all_reduce" for step in plan.steps)}
        self._walk = Walk(local, self, self._values, self._last.ops)
        self._collectives = Emitter(local.mesh)
        self._ops = DistinctOps(local, self._walk, self._collectives)
        self._types: dict[TensorType, ir.Type] = {}
        self._first_use = _first_uses(local)
        self._gathered: Counter[tuple[int, int, int]] = Counter()
        self._barrier: list[int] = []
        self._last_parts = {parts.stop - 1 for parts in self._program.barriers}

    def module(self) -> ir.Module:
        source, module = self._program.source, ir.Module.create()
        block = self._main(module)
        passed = [self._program.arguments[i] for i in self._program.passed_arguments]
        self._values.update(zip(passed, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            self._collectives.begin()
            func.ReturnOp(self._walk.program())
        for convolution, of_tasks in self._in_groups:
            merge_groups(convolution, of_tasks)
        emitted = self._collectives
        compile_right(emitted.slices, self._ops.watched, self._local.mesh.size, moves=emitted.exchanges > 0)
        ops = [op for op in source.representatives if op is not None]
        bring_called_functions(block.owner.operation, ops, source.module, module)
        return module

    def _main(self, module: ir.Module) -> ir.Block:
        local, program = self._local, self._program
        passed = [program.arguments[i] for i in program.passed_arguments]
        inputs = [self._type(v, int(local.settled[v])) for v in passed]
        outputs = [self._type(v, s) for v, s in zip(program.outputs, output_layouts(local), strict=True)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(inputs, outputs), visibility="public")
            return main.add_entry_block()

    def _type(self, value: int, layout: int) -> ir.Type:
        kind = self._local.local_type(value, layout)
        if kind not in self._types:
            self._types[kind] = mlir_type(kind)
        return self._types[kind]

    # ---- ops

    def op(self, op: int, kind: str) -> None:
        if kind == "optimization_barrier":
            self._part_of_barrier(op)
            return
        walk = self._walk
        uses, values = walk.uses(op), walk.results(op)
        operands = list(map(self._part_read, uses, walk.operands(op)))
        if op in self._last.products:
            place = self._last.products[op]
            operands[place] = self._behind_outputs(operands[place])
        results = operands if kind in _STRUCTURAL else self._emitted(op, kind, operands, uses, values)
        for value, result in zip(values, results, strict=False):
            if value in self._written:
                result = barrier(result)[0]
            walk.define(value, result if value in self._cut else self._ordered(value, result))

    def _part_read(self, use: int, value: ir.Value) -> ir.Value:
        """What a use reads of what was redistributed for it and others."""
        parts = self._local.part_read(use) if self._local.table.stretches else []
        if not parts:
            return value
        limits = list(ir.RankedTensorType(value.type).shape)
        starts = [0] * len(limits)
        for dim, begin, rows in parts:
            starts[dim], limits[dim] = begin, begin + rows
        return MlirValues().slice(value, starts, limits)

    def _emitted(self, op: int, kind: str, operands: list[ir.Value], uses: range, values: range) -> Sequence[ir.Value]:
        total = scattered_into(operands) if op in self._sums else None
        if total is not None:
            return [total]
        results = self._ops.emit(op, kind, operands, uses, values)
        if op in self._of_tasks:
            self._in_groups.append((cast(ir.Operation, results[0].owner), self._of_tasks[op]))
        self._number(results, f"op {op}")
        return results

    def _number(self, results: Sequence[ir.Value], name: str) -> None:
        """Makes `name` the location of the ops that leave `results`, where locations are numbers."""
        for result in results if self._numbered else ():
            if not isinstance(result.owner, ir.Block):
                result.owner.location = ir.Location.name(name)

    def _part_of_barrier(self, op: int) -> None:
        """A barrier's ops, one per operand, become one barrier when the last of them comes."""
        self._barrier.append(op)
        if op not in self._last_parts:
            return
        parts, self._barrier = self._barrier, []
        held = [value for part in parts for value in self._walk.operands(part)]
        for part, result in zip(parts, barrier(*held), strict=True):
            self._walk.define(self._walk.results(part)[0], result)

    # ---- redistributions

    def redistribute(self, number: int, value: int, plan: Plan) -> ir.Value:
        spelling = self._spelling(number, value, plan)
        return self._redistributed(value, self._kept_apart(number, value, spelling), plan, max(spelling, 0))

    def settle(self, value: int, left: ir.Value, plan: Plan) -> ir.Value:
        if value in self._last.values:
            left = self._behind_outputs(left)
        settled = self._redistributed(value, left, plan)
        if value in self._cut:
            settled = self._ordered(value, settled)
        is_tile = any(step.kind == "reduce_scatter" for step in plan.steps)
        return barrier(settled)[0] if is_tile and is_added_to_carry(self._program, value) else settled

    def _ordered(self, value: int, left: ir.Value) -> ir.Value:
        """A value with its dims in memory in the order that is asked for; a gradient as whole as it is reduced."""
        return in_order(left, self._in_memory[value]) if value in self._in_memory else left

    def _behind_outputs(self, value: ir.Value) -> ir.Value:
        """The value, when all is there that comes before the last reductions."""
        return barrier(value, *(self._values[output] for output in self._last.outputs))[0]

    def _redistributed(self, value: int, left: ir.Value, plan: Plan, spelling: int = 0) -> ir.Value:
        for step in plan.steps:
            left = self._collectives.emit(step, left, spelling, self._orders.get(value, ()))
            self._number([left], f"value {value}")
        return left

    def _spelling(self, number: int, value: int, plan: Plan) -> int:
        """How often the value was redistributed so before; -1 where the groups have no other spelling for this time."""
        places = self._local.placement
        key = (value, int(places.target[number]), int(places.stretch[number]))
        times = self._gathered[key]
        self._gathered[key] += 1
        return times if times < max((step.spellings for step in plan.steps), default=1) else -1

    def _kept_apart(self, number: int, value: int, spelling: int) -> ir.Value:
        """The value to redistribute; behind a barrier if no spelling keeps it apart, or it is kept in a loop."""
        program, loop = self._program, self._kept_in(number)
        if spelling >= 0 and loop < 0:
            return self._values[value]
        op = int(program.use_op[self._first_use[number]])
        for other in self._read_beside(op):
            is_late = other != value and other in self._values and not self._local.statics.stored[other]
            if is_late and program.value_op[other] > loop:
                return barrier(self._values[value], self._values[other])[0]
        if loop >= 0:
            carried = int(program.result_ptr[loop + 1])
            return barrier(self._values[value], self._values[carried])[0]
        return self._values[value]

    def _read_beside(self, op: int) -> list[int]:
        """The operands of an op; behind a view for which one gather is shared, of the first op that has several."""
        (pointer, users), use_op = self._program.users, self._program.use_op
        if len(self._walk.uses(op)) == 1 and not self._shares_a_gather(op):
            return []
        while len(uses := self._walk.uses(op)) == 1 and len(results := self._walk.results(op)) == 1:
            first, last = pointer[results[0]], pointer[results[0] + 1]
            if first == last or use_op[users[first]] <= op:
                break
            op = int(use_op[users[first]])
        return [self._walk.operand(use) for use in uses]

    def _shares_a_gather(self, op: int) -> bool:
        """True for a view of what is stored, which is gathered for it once."""
        [read] = self._walk.uses(op)
        return changes_nothing(self._program.spec(op)) and bool(self._local.statics.stored[self._walk.operand(read)])

    def _kept_in(self, number: int) -> int:
        """The loop around a redistribution that could stand before it; -1 where none is."""
        scope, scopes = int(self._local.placement.scope[number]), self._program.scopes
        if self._local.statics.places[0][self._first_use[number]] == scope:
            return -1
        while scopes[scope].kind not in ("body", "condition"):
            scope = scopes[scope].parent
        return scopes[scope].op

    # ---- control flow

    def loop(self, loop: Loop) -> None:
        initial = [self._walk.read(carry.initial) for carry in loop.carries]
        types = [value.type for value in initial]
        op = stablehlo.WhileOp(types, initial)
        for region, inside in zip(op.regions, (loop.condition, loop.body), strict=True):
            block = region.blocks.append(*types)
            with self._inside(block):
                for carry, argument in zip(loop.carries, block.arguments, strict=True):
                    self._walk.define(carry.inside, argument)
                stablehlo.return_(self._walk.region(inside))
        for carry, result in zip(loop.carries, op.results, strict=True):
            self._walk.define(carry.after, result)

    def branches(self, case: Branches) -> None:
        predicate = self._walk.read(case.predicate)
        results = [self._walk.results(join)[0] for join in case.joins]
        types = [self._type(value, int(self._local.native[value])) for value in results]
        two_way = self._program.spec(case.op).operands[0].dtype == "i1"
        op = stablehlo.IfOp(types, predicate) if two_way else stablehlo.CaseOp(types, predicate, len(case.branches))
        for region, branch in zip(op.regions, case.branches, strict=True):
            with self._inside(region.blocks.append()):
                stablehlo.return_(self._walk.region(branch))
        for value, result in zip(results, op.results, strict=True):
            self._walk.define(value, result)

    @contextmanager
    def _inside(self, block: ir.Block) -> Generator[None]:
        """Emits into the block; what it defines cannot be read after it."""
        with ir.InsertionPoint(block), self._values.region(), self._ops.region():
            yield


def is_added_to_carry(program: Program, value: int) -> bool:
    """True if all that reads the value, transposed or not, is an add to what a loop carries, and nothing reads that."""
    pointer, uses = program.users
    if not _is_read_once(program, value):
        return False
    op = int(program.use_op[uses[pointer[value]]])
    if program.spec(op).kind == "transpose":
        return is_added_to_carry(program, program.results_of(op)[0])
    if program.spec(op).kind != "add" or program.op_scope[op] == ROOT:
        return False
    other = next((v for v in program.operands_of(op).tolist() if v != value), value)
    return _is_accumulator(program, other)


def _is_accumulator(program: Program, value: int) -> bool:
    """True if one op reads the value, and a loop carries it, or it adds to such a value: sums share an accumulator."""
    if not _is_read_once(program, value):
        return False
    op = int(program.value_op[value])
    kind = program.spec(op).kind
    return kind == "carry" or (kind == "add" and _is_accumulator(program, int(program.operands_of(op)[0])))


def _is_read_once(program: Program, value: int) -> bool:
    """True if one entry of `operands` reads the value."""
    pointer, _ = program.users
    return bool(pointer[value + 1] == pointer[value] + 1)


def _first_uses(local: DeviceLocal) -> dict[int, int]:
    """Redistribution -> the first entry of `operands` that reads it."""
    of_use, first = local.placement.of_use, {}
    for use in (of_use >= 0).nonzero()[0].tolist():
        first.setdefault(int(of_use[use]), use)
    return first
