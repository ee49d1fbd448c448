"""A training step as a pipeline, written as StableHLO: the nest over (microbatch, layer) as loops over ticks.

    carried from tick to tick                       shape            moves
      what each stage has left, forward             [p, b, d]        to the next stage
      what each stage has left, backward            [p, b, d]        to the stage before it
      residuals of the microbatches under way       [p, slots, l, b, d]
      gradients of a stage's layers, added up       [p, l, d, f]     never
      what waits between the places of a microbatch [slots, ...]

    a tick    gradients enter the last stage; all stages run their layers' gradients; what leaves the first goes on
              a microbatch enters the first stage; all stages run their layers; what leaves the last goes on

A stage that has no microbatch in a tick computes on what happens to be there. That goes nowhere but to other ticks of
the same kind, and is left out of all sums.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from autopart.core.control_flow import Carry, statements
from autopart.core.errors import ArgumentError
from autopart.core.importer.replay import import_module
from autopart.core.jax_internals import func, ir, stablehlo, tagged
from autopart.core.op import TensorType
from autopart.core.program import Program
from autopart.spmd.called_functions import bring_called_functions
from autopart.spmd.mlir_values import mlir_type
from autopart.spmd.pipeline.layer_loops import LayerLoop, StackWrite
from autopart.spmd.pipeline.nest import AFTER, BEFORE, BETWEEN, ENTER, GONE, LEAVE, RETURN, Nest, find_nest
from autopart.spmd.pipeline.staged_ops import StagedOps
from autopart.spmd.pipeline.ticks import Ticks, TurnLoop

STAGES = "pipeline stages"
"""The tag of arrays whose first dim is the stages."""

EXCHANGED = "pipeline exchange"
"""The tag of sums that leave their stages, [stages, runs, layers of a run, ...], where a stage has several runs."""


def pipelined(program: Program, stages: int, schedule: str, repeats: int = 1) -> Program:
    """The program with its microbatches in a pipeline of `stages`. Raises `BlockedError` where it has no such nest."""
    source, nest = program.source, find_nest(program)
    _check_numbers(nest, stages, repeats)
    if source is None:
        raise ValueError("the program was unpickled without its module")
    with source.module.context, ir.Location.unknown():
        module = _StagedStep(nest, Ticks(stages, nest.microbatches, schedule, repeats)).module()
        made = import_module(
            module,
            argument_names=program.argument_names,
            output_names=program.output_names,
            ties=program.ties,
            donated=program.donated,
            callbacks=source.callbacks,
            constraints=True,
            keep_unused=program.keep_unused,
        )
        return replace(made, tags={name: made.tags.get(name, []) for name in (*program.tags, STAGES, EXCHANGED)})


def _check_numbers(nest: Nest, stages: int, repeats: int) -> None:
    runs, layers = stages * repeats, nest.layers
    if layers % runs:
        fits = [n for n in range(2, layers + 1) if layers % (n * repeats) == 0]
        raise ArgumentError(
            f"{layers} layers are no {runs} equal runs",
            why=f"each of {stages} stages has {repeats}" if repeats > 1 else f"the axis has {stages} devices",
            hint=f"a number of stages out of {', '.join(map(str, fits[:8]))}" if fits else "fewer repeats",
        )
    if repeats > 1 and nest.microbatches % stages:
        raise ArgumentError(
            f"{nest.microbatches} microbatches are no groups of {stages}",
            why="as many as there are stages go round together",
            hint=f"microbatches={stages * max(1, round(nest.microbatches / stages))}",
        )


RowSum = Callable[[ir.Value, ir.Value, ir.Value], ir.Value]
"""(the sums of all rows, a row of a turn, which row it is) -> the sums with it."""


class _Visit(NamedTuple):
    """Visits of stages, or one of one: their numbers, the microbatches and runs, and whether there are such visits."""

    number: ir.Value
    microbatch: ir.Value
    run: ir.Value
    there: ir.Value


class _At(NamedTuple):
    """Which of its runs each stage is at, and the slot of its residuals: one for all on the way, one for each back."""

    run: ir.Value
    slot: ir.Value


class _StagedStep:
    """Emits the program."""

    def __init__(self, nest: Nest, ticks: Ticks):
        self._nest, self._ticks, self._program = nest, ticks, nest.program
        self._ops = StagedOps(nest.program, ticks.stages)
        self._make, self._length = self._ops.make, nest.layers // (ticks.stages * ticks.repeats)
        self._forward_staged = self._staged_values(nest.forward, nest.travelling[0])
        self._backward_staged = self._staged_values(nest.backward, nest.travelling[1])
        self._held: dict[tuple[str, int], ir.Value] = {}
        self._own_rows: dict[int, ir.Value] = {}

    def module(self) -> ir.Module:
        program, module, ops = self._program, ir.Module.create(), self._ops
        types = [[mlir_type(program.type_of(v)) for v in group] for group in (program.arguments, program.outputs)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(*types), visibility="public")
            block = main.add_entry_block()
        ops.values.update(zip(program.arguments, block.arguments, strict=True))
        ops.instead[self._nest.step.op] = self._pipeline
        with ir.InsertionPoint(block):
            for statement in statements(program, 0, program.op_count):
                if not (isinstance(statement, int) and program.spec(statement).kind == "argument"):
                    ops.statement(statement)
            func.ReturnOp([ops.values[v] for v in program.outputs])
        made_of = [op for op in program.source.representatives if op is not None]
        bring_called_functions(main.operation, made_of, program.source.module, module)
        return module

    def _staged_values(self, loop: LayerLoop, travelling: Iterable[int]) -> set[int]:
        """What each stage has its own of in a loop over layers."""
        found, program = self._ops, self._program
        rows = [program.results_of(op)[0] for op in loop.row_reads]
        found.staged = {loop.counter.inside, *(c.inside for c in loop.states), *rows, *travelling}
        found.find_staged(loop.loop.body.scope.start, loop.loop.body.scope.end)
        staged, found.staged = found.staged, set()
        return staged

    # ---- the pipeline

    def _pipeline(self) -> None:
        nest, ops = self._nest, self._ops
        for start in nest.once:
            self._statement(start)
        for loop in (nest.forward, nest.backward):
            for value in loop.row_reads.values():
                if value not in nest.forward.stack_of and value not in self._own_rows:
                    self._own_rows[value] = tagged(self._in_stages(ops.values[value]), STAGES)
        self._held = self._at_first()
        for loop in self._ticks.loops:
            self._loop_over(loop)
        for total in nest.sums:
            held = self._held["sum", total.carry.op]
            ops.values[total.carry.after] = self._in_order(held) if total.per_layer else held
        for part in nest.written:
            ops.values[part.carry.after] = self._held["sum", part.carry.op]
        ops.values[nest.counter.after] = self._make.constant(
            nest.microbatches, self._program.type_of(nest.counter.after).dtype
        )

    def _statement(self, start: int) -> None:
        self._ops.statement(next(statements(self._program, start, start + 1)))

    def _in_stages(self, stack: ir.Value) -> ir.Value:
        """A stack of layers [L, ...] as [stages, layers of a run, ...], or [stages, runs, layers of a run, ...]."""
        make, ticks, (_, *rest) = self._make, self._ticks, self._make.type_of(stack).shape
        if ticks.repeats == 1:
            return make.reshape(stack, (ticks.stages, self._length, *rest))
        runs = make.reshape(stack, (ticks.repeats, ticks.stages, self._length, *rest))
        return make.transpose(runs, [1, 0, *range(2, len(rest) + 3)])

    def _in_order(self, array: ir.Value) -> ir.Value:
        """What `_in_stages` makes of a stack, as a stack."""
        make, shape, repeats = self._make, self._make.type_of(array).shape, self._ticks.repeats
        if repeats == 1:
            return make.reshape(array, (self._nest.layers, *shape[2:]))
        runs = make.transpose(tagged(array, EXCHANGED), [1, 0, *range(2, len(shape))])
        return make.reshape(runs, (self._nest.layers, *shape[3:]))

    def _at_first(self) -> dict[tuple[str, int], ir.Value]:
        """What the first tick finds: zeros, and what sums begin with."""
        nest, program, ticks = self._nest, self._program, self._ticks
        held = dict[tuple[str, int], ir.Value]()
        for kind, loop, travelling in (
            ("forward", nest.forward, nest.travelling[0]),
            ("backward", nest.backward, nest.travelling[1]),
        ):
            for value in (*(c.inside for c in loop.states), *travelling):
                held[kind, value] = self._zeros(self._ops.staged_type(program.type_of(value)))
        for stack in nest.forward.stacks:
            _, *rest = program.type_of(stack.carry.after).shape
            shape = (ticks.stages, ticks.slots, self._length, *rest)
            held["residual", stack.carry.after] = self._zeros(TensorType(shape, program.type_of(stack.row).dtype))
        for value, kept in nest.kept.items():
            type_ = program.type_of(value)
            held["kept", value] = self._zeros(TensorType((ticks.slots_of(kept), *type_.shape), type_.dtype))
        for total in nest.sums:
            initial = self._ops.values[int(program.operands[total.carry.initial])]
            held["sum", total.carry.op] = self._in_stages(initial) if total.per_layer else initial
        for part in nest.written:
            held["sum", part.carry.op] = self._ops.values[int(program.operands[part.carry.initial])]
        return held

    def _zeros(self, type_: TensorType) -> ir.Value:
        return self._make.constant(0, type_.dtype, type_.shape)

    def _loop_over(self, turns: TurnLoop) -> None:
        make = self._make
        keys = [key for key in self._held if self._place_of(key) in turns.places]
        if not keys:
            return
        start = [make.constant(0, "i32"), *(self._held[key] for key in keys)]
        types = [value.type for value in start]
        loop = stablehlo.WhileOp(types, start)
        condition, body = (region.blocks.append(*types) for region in loop.regions)
        with ir.InsertionPoint(condition):
            count = make.constant(turns.end - turns.start, "i32")
            stablehlo.return_([make.compare(condition.arguments[0], count, "LT")])
        around = dict(self._held)
        with ir.InsertionPoint(body), self._ops.inner_scope():
            turn, *held = body.arguments
            self._held.update(zip(keys, held, strict=True))
            now = self._plus(turn, turns.start)
            if RETURN in turns.places:
                self._backward_tick(now)
            if AFTER in turns.places:
                self._around(AFTER, now, turns.stages)
            if BEFORE in turns.places:
                self._around(BEFORE, now, turns.stages)
            if ENTER in turns.places:
                self._forward_tick(now)
            if BETWEEN in turns.places:
                self._around(BETWEEN, now, turns.stages)
            stablehlo.return_([self._plus(turn, 1), *(self._held[key] for key in keys)])
        self._held = around | dict(zip(keys, list(loop.results)[1:], strict=True))

    def _place_of(self, key: tuple[str, int]) -> str:
        """The place at which something that is carried changes."""
        (kind, number), nest = key, self._nest
        if kind == "kept":
            return nest.kept[number].home
        if kind == "sum":
            return nest.home_of.get(number, RETURN)
        return RETURN if kind == "backward" else ENTER

    # ---- a tick

    def _forward_tick(self, tick: ir.Value) -> None:
        nest, last = self._nest, self._ticks.stages - 1
        visit = self._visit(self._make.binary("subtract", self._all_stages(tick), self._stage()))
        with self._place(ENTER, tick):
            self._hand_over("forward", nest.forward, tick, first=0)
            at = _At(visit.run, self._remainder(tick, self._ticks.slots))
            left, residuals = self._layers(nest.forward, self._forward_staged, at, {})
            self._held.update({("residual", s.carry.after): residuals[s.carry.op] for s in nest.forward.stacks})
        with self._place(LEAVE, tick, self._leaving(nest.forward, left, last)):
            pass

    def _backward_tick(self, tick: ir.Value) -> None:
        nest, ticks, make = self._nest, self._ticks, self._make
        since = self._plus(self._all_stages(tick), -ticks.delay(GONE))
        visit = self._visit(make.binary("add", since, self._stage()))
        with self._place(RETURN, tick):
            self._hand_over("backward", nest.backward, tick, first=ticks.stages - 1)
            run = make.binary("subtract", self._number(ticks.repeats - 1), visit.run)
            moved = make.binary("multiply", make.binary("subtract", run, visit.run), self._number(ticks.stages))
            at = _At(run, self._slot_of(make.binary("add", visit.number, moved)))
            left, stacks = self._layers(nest.backward, self._backward_staged, at, self._row_sums(run, visit.there))
            self._add_stacks(stacks, run, visit.there)
        with self._place(GONE, tick, self._leaving(nest.backward, left, 0)):
            pass

    def _leaving(self, loop: LayerLoop, left: dict[int, ir.Value], stage: int) -> dict[int, ir.Value]:
        """What leaves a stage, of the states that are read behind it."""
        read = [carry for carry in loop.states if carry.after in self._nest.kept]
        return {carry.after: self._ops.of_stage(left[carry.op], stage) for carry in read}

    def _around(self, place: str, now: ir.Value, in_ticks: bool) -> None:
        with self._place(place, now, in_ticks=in_ticks):
            pass

    @contextmanager
    def _place(
        self, place: str, now: ir.Value, given: dict[int, ir.Value] | None = None, in_ticks: bool = True
    ) -> Generator[None]:
        """What runs at a place of the microbatch that is there, and then waits or is added up."""
        nest, ops, program = self._nest, self._ops, self._program
        with ops.inner_scope():
            visit = self._visit(self._plus(now, -self._ticks.delay(place))) if in_ticks else None
            number = self._clipped(visit.microbatch) if visit is not None else now
            there = visit.there if visit is not None else None
            ops.values.update(given or {})
            ops.values[nest.counter.inside] = self._make.convert(number, program.type_of(nest.counter.inside).dtype)
            for value, kept in nest.kept.items():
                if place in kept.readers:
                    ops.values[value] = self._row(self._held["kept", value], number)
            for start in nest.made[place]:
                self._statement(start)
            yield
            for value, kept in nest.kept.items():
                if place == kept.home:
                    self._put_row(("kept", value), ops.values[value], number)
            for total in nest.sums:
                if not total.per_layer and nest.home_of[total.carry.op] == place:
                    for term in total.terms:
                        self._add(("sum", total.carry.op), ops.values[term], there)
            for part in nest.written:
                if nest.home_of[part.carry.op] == place:
                    self._write(part.carry, part.op, there)

    def _write(self, carry: Carry, op: int, there: ir.Value | None) -> None:
        make, before = self._make, self._held["sum", carry.op]
        update, *starts = [self._ops.values[v] for v in self._program.operands_of(op).tolist()[1:]]
        if there is not None:
            old = make.dynamic_slice(before, starts, make.type_of(update).shape)
            update = make.select(there, update, old)
        self._held["sum", carry.op] = make.dynamic_update_slice(before, update, starts)

    # ---- stages

    def _hand_over(self, kind: str, loop: LayerLoop, tick: ir.Value, first: int) -> None:
        """Gives each stage what its neighbour has left; stage `first` takes what enters, or what has gone round."""
        ops, make, program, ticks = self._ops, self._make, self._program, self._ticks
        is_backward = loop is self._nest.backward
        entering = {c.inside: int(program.operands[c.initial]) for c in loop.states}
        entering |= {value: value for value in self._nest.travelling[is_backward]}
        is_first = make.compare(self._stage(), self._number(first), "EQ")
        number = self._plus(tick, -ticks.delay(RETURN if is_backward else ENTER))
        comes = make.compare(self._visit(number).run, self._constant_like(number, 0), "EQ")
        for inside, value in entering.items():
            held, new = self._held[kind, inside], ops.for_all(ops.values[value])
            if ticks.repeats > 1:
                round_ = ops.moved(held, ticks.stages - 1 if is_backward else 1 - ticks.stages)
                new = make.select(comes, new, round_)
            shape = make.type_of(held).shape
            given = make.select(ops.along(is_first, shape), new, ops.moved(held, -1 if is_backward else 1))
            self._held[kind, inside] = tagged(given, STAGES)

    def _layers(
        self, loop: LayerLoop, staged: set[int], at: _At, totals: dict[int, RowSum]
    ) -> tuple[dict[int, ir.Value], dict[int, ir.Value]]:
        """Runs the layers of all stages: (what each state is afterwards, the stacks that were written), by carry.

        `totals` has for some stacks how a row is added to their sum, which
        is carried in place of a stack of this turn's own.
        """
        kind = "forward" if loop is self._nest.forward else "backward"
        ops, make, length = self._ops, self._make, self._length
        states = {c.op: self._held[kind, c.inside] for c in loop.states}
        stacks = {s.carry.op: self._first_of(s, s.carry.op in totals) for s in loop.stacks}
        outer, ops.staged = ops.staged, staged
        if length == 1:
            with ops.inner_scope():
                states, stacks = self._layer(loop, make.constant(0, "i32"), at, states, stacks, totals)
        else:
            start = [make.constant(0, "i32"), *states.values(), *stacks.values()]
            types = [value.type for value in start]
            written = stablehlo.WhileOp(types, start)
            condition, body = (region.blocks.append(*types) for region in written.regions)
            with ir.InsertionPoint(condition):
                count = make.constant(length, "i32")
                stablehlo.return_([make.compare(condition.arguments[0], count, "LT")])
            with ir.InsertionPoint(body), ops.inner_scope():
                turn, *held = body.arguments
                inside = dict[int, ir.Value](zip([*states, *stacks], held, strict=True))
                mine = {op: inside[op] for op in states}
                left, rows = self._layer(loop, turn, at, mine, {op: inside[op] for op in stacks}, totals)
                stablehlo.return_([self._plus(turn, 1), *left.values(), *rows.values()])
            results = dict[int, ir.Value](zip([*states, *stacks], list(written.results)[1:], strict=True))
            states, stacks = {op: results[op] for op in states}, {op: results[op] for op in stacks}
        ops.staged = outer
        for carry in loop.states:
            self._held[kind, carry.inside] = states[carry.op]
        return states, stacks

    def _first_of(self, stack: StackWrite, is_total: bool) -> ir.Value:
        """What a stack is before the first of a stage's layers."""
        if is_total:
            return self._held["sum", next(t.carry.op for t in self._nest.sums if t.terms == (stack.carry.after,))]
        if stack in self._nest.forward.stacks:
            return self._held["residual", stack.carry.after]
        type_ = self._program.type_of(stack.carry.inside)
        return self._zeros(TensorType((self._ticks.stages, self._length, *type_.shape[1:]), type_.dtype))

    def _layer(
        self,
        loop: LayerLoop,
        turn: ir.Value,
        at: _At,
        states: dict[int, ir.Value],
        stacks: dict[int, ir.Value],
        totals: dict[int, RowSum],
    ) -> tuple[dict[int, ir.Value], dict[int, ir.Value]]:
        """One layer of each stage: the turn-th of its run, from the first on or from the last."""
        ops, make, program, length, nest = self._ops, self._make, self._program, self._length, self._nest
        is_backward = loop is nest.backward
        row = make.binary("subtract", make.constant(length - 1, "i32"), turn) if is_backward else turn
        runs = make.binary("add", make.binary("multiply", at.run, self._number(self._ticks.stages)), self._stage())
        layer = make.binary("add", make.binary("multiply", runs, self._number(length)), self._all_stages(row))
        counter = make.binary("subtract", self._number(nest.layers - 1), layer) if is_backward else layer
        ops.values[loop.counter.inside] = make.convert(counter, program.type_of(loop.counter.inside).dtype)
        for carry in loop.states:
            ops.values[carry.inside] = states[carry.op]
        for value in self._nest.travelling[is_backward]:
            ops.values[value] = self._held["backward" if is_backward else "forward", value]
        written = dict(stacks)

        def take(op: int, value: int) -> None:
            if value in nest.forward.stack_of:
                rows = self._row_at(self._held["residual", value], at.slot, row)
            elif self._ticks.repeats > 1:
                rows = self._row_at(self._own_rows[value], at.run, row)
            else:
                of = self._own_rows[value]
                shape = make.type_of(of).shape
                rows = make.dynamic_slice(of, self._starts(len(shape), 1, row), (shape[0], 1, *shape[2:]))
            ops.values[program.results_of(op)[0]] = rows

        def write(stack: StackWrite) -> None:
            new = self._given(stack.row)
            array = written[stack.carry.op]
            if stack.carry.op in totals:
                written[stack.carry.op] = totals[stack.carry.op](array, new, row)
                return
            starts = self._starts(len(make.type_of(array).shape), 1, row)
            if not is_backward:
                stages, *rest = make.type_of(new).shape
                new, starts = make.reshape(new, (stages, 1, *rest)), [starts[0], at.slot, row, *starts[3:]]
            written[stack.carry.op] = make.dynamic_update_slice(array, new, starts)

        ops.instead.update({op: lambda op=op, value=value: take(op, value) for op, value in loop.row_reads.items()})
        ops.instead.update({stack.op: lambda stack=stack: write(stack) for stack in loop.stacks})
        ops.range(loop.loop.body.scope.start, loop.loop.body.scope.end)
        following = {c.op: self._given(int(program.operands_of(c.op)[1])) for c in loop.states}
        return following, written

    def _given(self, value: int) -> ir.Value:
        """A value with the stage dim."""
        return self._ops.values[value] if value in self._ops.staged else self._ops.for_all(self._ops.values[value])

    # ---- residuals, and gradients of layers

    def _slot_of(self, visit: ir.Value) -> ir.Value:
        """Where each stage has put what it left at a visit; visit k of stage s was at tick k + s."""
        ticks = self._ticks
        tick = self._make.binary("add", visit, self._stage())
        return self._remainder(self._plus(tick, ticks.slots * (ticks.stages + ticks.repeats)), ticks.slots)

    def _row_at(self, array: ir.Value, at: ir.Value, row: ir.Value) -> ir.Value:
        """A row of what each stage has somewhere: [stages, places, layers, ...] -> [stages, 1, ...]."""
        make, (stages, _, _, *rest) = self._make, self._make.type_of(array).shape
        columns = [make.reshape(n, (stages, 1)) for n in (at, self._all_stages(row))]
        starts = make.pad(make.concatenate(columns, 1), make.constant(0, "i32"), [0, 0], [0, len(rest)])
        return make.reshape(make.windows(array, starts, (1, 1, *rest)), (stages, 1, *rest))

    def _row_sums(self, run: ir.Value, there: ir.Value) -> dict[int, RowSum]:
        """For stacks that are added up as they are: the sum with a row that a turn leaves, where it counts."""
        make, alone = self._make, {t.terms[0] for t in self._nest.sums if t.per_layer and len(t.terms) == 1}
        dim = 1 if self._ticks.repeats == 1 else 2

        def added(array: ir.Value, new: ir.Value, row: ir.Value) -> ir.Value:
            starts, shape = self._starts(len(make.type_of(array).shape), dim, row), list(make.type_of(array).shape)
            shape[dim] = 1
            before = make.dynamic_slice(array, starts, shape)
            after = make.binary("add", before, self._where_it_counts(new, run, there))
            return make.dynamic_update_slice(array, after, starts)

        return {s.carry.op: added for s in self._nest.backward.stacks if s.carry.after in alone}

    def _where_it_counts(self, new: ir.Value, run: ir.Value, there: ir.Value) -> ir.Value:
        """Rows of the runs that stages are at, and zeros where there is no microbatch; with runs, of all runs."""
        make, ops, repeats, shape = self._make, self._ops, self._ticks.repeats, self._make.type_of(new).shape
        if repeats == 1:
            return make.select(ops.along(there, shape), new, self._zeros(make.type_of(new)))
        stages, *rest = shape
        of_all = (stages, repeats)
        own = make.compare(make.iota(TensorType(of_all, "i32"), 1), make.broadcast(run, of_all, [0]), "EQ")
        counts = make.binary("and", own, make.broadcast(there, of_all, [0]))
        whole = (stages, repeats, *rest)
        spread = make.broadcast(new, whole, [0, *range(2, len(whole))])
        nothing = self._zeros(make.type_of(spread))
        return make.select(make.broadcast(counts, whole, [0, 1]), spread, nothing)

    def _add_stacks(self, stacks: dict[int, ir.Value], run: ir.Value, there: ir.Value) -> None:
        """Adds up what stacks become; those with sums of their own are them already."""
        nest, ops, program = self._nest, self._ops, self._program
        of_sums = {s.carry.after for s in nest.backward.stacks if s.carry.op in self._row_sums(run, there)}
        rows = {s.carry.after: stacks[s.carry.op] for s in nest.backward.stacks}
        for op in nest.per_layer:
            read = program.operands_of(op).tolist()
            operands = [rows[v] if v in rows else self._rows_of_runs(ops.values[v], run) for v in read]
            rows[program.results_of(op)[0]] = self._per_layer(op, operands)
        for total in nest.sums:
            key = ("sum", total.carry.op)
            if total.per_layer and total.terms[0] in of_sums and len(total.terms) == 1:
                self._held[key] = rows[total.terms[0]]
                continue
            for term in total.terms if total.per_layer else ():
                new = self._where_it_counts(rows[term], run, there)
                self._held[key] = self._make.binary("add", self._held[key], new)

    def _rows_of_runs(self, stack: ir.Value, run: ir.Value) -> ir.Value:
        """Of a stack of all layers, those that stages are at: [stages, layers of a run, ...]."""
        array, make = self._in_stages(stack), self._make
        if self._ticks.repeats == 1:
            return array
        stages, _, *rest = make.type_of(array).shape
        starts = make.pad(make.reshape(run, (stages, 1)), make.constant(0, "i32"), [0, 0], [0, len(rest)])
        return make.reshape(make.windows(array, starts, (1, *rest)), (stages, *rest))

    def _per_layer(self, op: int, operands: Sequence[ir.Value]) -> ir.Value:
        """An op on all layers as one on [stages, layers of a stage]."""
        spec, ops = self._program.spec(op), self._ops
        _, *rest = spec.results[0].shape
        type_ = TensorType((self._ticks.stages, self._length, *rest), spec.results[0].dtype)
        local = ops.local(op, operands, [type_])
        if spec.kind == "transpose":
            return local.clone(permutation=[0, *(d + 1 for d in spec.attributes["permutation"])])[0]
        return local.clone()[0]

    # ---- numbers

    def _visit(self, number: ir.Value) -> _Visit:
        """What the visits of these numbers are to; `run` counts up."""
        make, ticks = self._make, self._ticks
        there = self._is_in(number, ticks.visits)
        if ticks.repeats == 1:
            return _Visit(number, number, self._constant_like(number, 0), there)
        round_, ahead = ticks.stages * ticks.repeats, ticks.first_return + ticks.stages
        ahead += -ahead % round_
        later = self._plus(number, ahead)
        within = self._remainder(later, round_)
        group = self._plus(make.binary("divide", later, self._constant_like(later, round_)), -ahead // round_)
        first = make.binary("multiply", group, self._constant_like(group, ticks.stages))
        run = make.binary("divide", within, self._constant_like(within, ticks.stages))
        return _Visit(number, make.binary("add", first, self._remainder(within, ticks.stages)), run, there)

    def _add(self, key: tuple[str, int], term: ir.Value, there: ir.Value | None) -> None:
        if there is not None:
            term = self._make.select(there, term, self._zeros(self._make.type_of(term)))
        self._held[key] = self._make.binary("add", self._held[key], term)

    def _row(self, rows: ir.Value, number: ir.Value) -> ir.Value:
        """What waits of a microbatch."""
        slots, *rest = self._make.type_of(rows).shape
        starts = self._starts(len(rest) + 1, 0, self._remainder(number, slots))
        return self._make.reshape(self._make.dynamic_slice(rows, starts, (1, *rest)), rest)

    def _put_row(self, key: tuple[str, int], value: ir.Value, number: ir.Value) -> None:
        slots, *rest = self._make.type_of(self._held[key]).shape
        starts = self._starts(len(rest) + 1, 0, self._remainder(number, slots))
        row = self._make.reshape(value, (1, *rest))
        self._held[key] = self._make.dynamic_update_slice(self._held[key], row, starts)

    def _starts(self, rank: int, dim: int, at: ir.Value) -> list[ir.Value]:
        return [at if d == dim else self._make.constant(0, "i32") for d in range(rank)]

    def _stage(self) -> ir.Value:
        return self._make.iota(TensorType((self._ticks.stages,), "i32"), 0)

    def _number(self, value: int) -> ir.Value:
        return self._make.constant(value, "i32", (self._ticks.stages,))

    def _all_stages(self, scalar: ir.Value) -> ir.Value:
        return self._make.broadcast(scalar, (self._ticks.stages,))

    def _plus(self, a: ir.Value, value: int) -> ir.Value:
        return self._make.binary("add", a, self._constant_like(a, value)) if value else a

    def _remainder(self, a: ir.Value, value: int) -> ir.Value:
        return self._make.binary("remainder", a, self._constant_like(a, value))

    def _constant_like(self, a: ir.Value, value: int) -> ir.Value:
        return self._make.constant(value, "i32", self._make.type_of(a).shape)

    def _is_in(self, number: ir.Value, count: int) -> ir.Value:
        """Whether numbers are from 0 to count - 1."""
        first, end = self._constant_like(number, 0), self._constant_like(number, count)
        return self._make.binary("and", self._make.compare(number, first, "GE"), self._make.compare(number, end, "LT"))

    def _clipped(self, number: ir.Value) -> ir.Value:
        first, last = self._constant_like(number, 0), self._constant_like(number, self._nest.microbatches - 1)
        return self._make.binary("minimum", self._make.binary("maximum", number, first), last)
