"""A training step as a pipeline, written as StableHLO: the nest over (microbatch, layer) as loops over ticks.

    carried from tick to tick                       shape            moves
      what each stage has left, forward             [p, b, d]        to the next stage
      what each stage has left, backward            [p, b, d]        to the stage before it
      residuals of the microbatches under way       [p, slots, l, b, d]
      gradients of a stage's layers, added up       [p, l, d, f]     never
      what waits between the places of a microbatch [slots, ...]

    a tick    a microbatch enters the first stage; all stages run their layers; what leaves the last goes on
              gradients enter the last stage; all stages run their layers' gradients; what leaves the first goes on

A stage that has no microbatch in a tick computes all the same. On the way it has what enters the first stage, and what
it makes of that is read nowhere. On the way back it has zeros, and residuals of another microbatch: it adds zeros to
gradients that are known to be linear in what comes back (`zeros.py`). Whatever else is added up has a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

from autopart.base.errors import ArgumentError, BlockedError
from autopart.core.control_flow import statements
from autopart.core.doors.jax_internals import ir, tagged
from autopart.core.op import TensorType
from autopart.core.program import Program
from autopart.spmd.emission.local_op import splat_of
from autopart.spmd.pipeline.layer_loops import LayerLoop, users_of
from autopart.spmd.pipeline.nest import AFTER, BEFORE, BETWEEN, ENTER, GONE, LEAVE, RETURN, Handed, Nest, find_nest
from autopart.spmd.pipeline.numbers import Number
from autopart.spmd.pipeline.staged_layers import (
    BACKWARD,
    FORWARD,
    KEPT,
    LAYERS,
    RESIDUAL,
    RETURNED,
    SENT,
    SUM,
    TAGS,
    At,
    StagedLayers,
)  # fmt: skip
from autopart.spmd.pipeline.ticks import Ticks, TurnLoop


def pipelined(program: Program, stages: int, schedule: str, repeats: int = 1) -> Program:
    """The program with its microbatches in a pipeline of `stages`. Raises `BlockedError` where it has no such nest."""
    nest = find_nest(program)
    _check_numbers(nest, stages, repeats)
    return _StagedStep(nest, Ticks(stages, nest.microbatches, schedule, repeats)).program(TAGS)


def own_microbatches(program: Program) -> int:
    """How many microbatches a loop of the program has that could go through stages; 0 where it has none."""
    try:
        return find_nest(program).microbatches
    except BlockedError:
        return 0


def _check_numbers(nest: Nest, stages: int, repeats: int) -> None:
    runs, layers = stages * repeats, nest.layers
    if layers < runs:
        fits = [n for n in range(2, layers + 1) if layers % (n * repeats) == 0]
        raise ArgumentError(
            f"{layers} layers are fewer than {runs} runs",
            why=(f"each of {stages} stages has {repeats}" if repeats > 1 else f"the axis has {stages} devices")
            + _behind(nest),
            hint=f"a number of stages out of {', '.join(map(str, fits[:8]))}" if fits else "fewer repeats",
        )
    if repeats > 1 and nest.microbatches % stages:
        raise ArgumentError(
            f"{nest.microbatches} microbatches are no groups of {stages}",
            why="as many as there are stages go round together",
            hint=f"microbatches={stages * max(1, round(nest.microbatches / stages))}",
        )


def _behind(nest: Nest) -> str:
    """What comes after the last layer, which is no equal one."""
    program = nest.program
    readers = [op for carry in nest.forward.states for op in program.readers_of(carry.after)]
    where = program.where(min(readers)) if readers else ""
    return f"; behind the last equal layer stands {program.spec(min(readers)).kind} at {where}" if where else ""


class _Visit(NamedTuple):
    """Visits of stages, or one of one: their numbers, the microbatches and runs, and whether there are such visits."""

    number: Number
    microbatch: Number
    run: Number
    there: ir.Value


class _StagedStep(StagedLayers):
    """Emits the program."""

    def main(self) -> None:
        """See `ProgramWriter.main`."""
        program = self._program
        self.instead[self._nest.step.op] = self._pipeline
        self.instead |= {op: partial(self._write, op) for op in map(self._writer, self._nest.handed) if op is not None}
        for statement in statements(program, 0, program.op_count):
            if not (isinstance(statement, int) and program.spec(statement).kind == "argument"):
                self.statement(statement)

    def _writer(self, handed: Handed) -> int | None:
        """The op that writes a part of what is handed on, where that is all that happens to it."""
        program, op = self._program, int(self._program.value_op[handed.value])
        is_update = program.spec(op).kind == "dynamic_update_slice" and len(users_of(program, handed.carry.inside)) == 1
        return op if is_update and int(program.operands_of(op)[0]) == handed.carry.inside else None

    # ---- the pipeline

    def _pipeline(self) -> None:
        nest = self._nest
        self._statements(nest.once)
        self.take_rows()
        self._hold()
        for loop in self._ticks.loops:
            self._loop_over(loop)
        self.sums_of_layers()
        for carry, _, late in nest.sums:
            dtype = self._program.type_of(carry.after).dtype
            terms = [self.held[SUM, carry.op], *(self.make.convert(self.values[term], dtype) for term in late)]
            terms = [term for term in terms if len(terms) == 1 or splat_of(term) != 0]
            self.values[carry.after] = reduce(partial(self.make.binary, "add"), terms)
        for carry, _ in nest.handed:
            self.values[carry.after] = self.held[SUM, carry.op]
        dtype = self._program.type_of(nest.counter.after).dtype
        self.values[nest.counter.after] = self.make.constant(nest.microbatches, dtype)

    def _statements(self, starts: Sequence[int]) -> None:
        for start in starts:
            self.statement(next(statements(self._program, start, start + 1)))

    def _hold(self) -> None:
        """What the first tick finds: zeros, and what sums begin with."""
        nest, program, ticks = self._nest, self._program, self._ticks
        ways = zip((FORWARD, BACKWARD), (nest.forward, nest.backward), nest.travelling, strict=True)
        for kind, loop, travelling in ways:
            for value in (*(c.inside for c in loop.states), *travelling):
                self.held[kind, value] = self.zeros(self.staged_type(program.type_of(value)))
        for stack in nest.forward.stacks:
            type_ = program.type_of(stack.carry.after)
            shape = (ticks.stages, ticks.slots, self._length, *type_.shape[1:])
            self.held[RESIDUAL, stack.carry.after] = self.zeros(TensorType(shape, type_.dtype))
        for value, kept in nest.kept.items():
            type_ = program.type_of(value)
            self.held[KEPT, value] = self.zeros(TensorType((ticks.slots_of(kept), *type_.shape), type_.dtype))
        self.held |= self.first_sums()
        for total in nest.sums:
            self.held[SUM, total.carry.op] = self.read(total.carry.initial)
        for carry, _ in nest.handed:
            self.held[SUM, carry.op] = self.read(carry.initial)

    def _loop_over(self, turns: TurnLoop) -> None:
        keys = [key for key in self.held if not self._places_of(key).isdisjoint(turns.places)]

        def turn(number: ir.Value, held: Sequence[ir.Value]) -> Sequence[ir.Value]:
            self.held.update(zip(keys, held, strict=True))
            now = Number(self.make, number) + turns.start
            if BEFORE in turns.places:
                self._place(BEFORE, now, turns.stages)
            if ENTER in turns.places:
                self._forward_tick(now)
            if BETWEEN in turns.places:
                self._place(BETWEEN, now, turns.stages)
            if RETURN in turns.places:
                self._backward_tick(now)
            if AFTER in turns.places:
                self._place(AFTER, now, turns.stages)
            return [self.held[key] for key in keys]

        if keys:
            around = dict(self.held)
            left = self.counted_loop(turns.end - turns.start, [self.held[key] for key in keys], turn)
            self.held = around | dict(zip(keys, left, strict=True))

    def _places_of(self, key: tuple[str, int]) -> set[str]:
        """The places at which something that is carried changes."""
        (kind, number), nest = key, self._nest
        if kind == KEPT:
            return {nest.kept[number].home}
        if kind == SUM:
            at = {place for place, terms in nest.added.items() if any(t.carry.op == number for t, _ in terms)}
            at |= {place for place, left in nest.left.items() if any(h.carry.op == number for h in left)}
            return at
        return {RETURN} if kind in (BACKWARD, LAYERS) else {ENTER}

    # ---- a tick

    def _forward_tick(self, tick: Number) -> None:
        visit = self._visit(self.stage() * -1 + tick)
        at, left = At(visit.run, visit.there, tick % self._ticks.slots), dict[int, ir.Value]()

        def work() -> None:
            self._hand_over(FORWARD, self._nest.forward, tick, at.there)
            left.update(self.layers(self._nest.forward, at))

        self._place(ENTER, tick, work=work)
        self._place(LEAVE, tick, given=self._leaving(left, self.stages - 1))

    def _backward_tick(self, tick: Number) -> None:
        ticks, left = self._ticks, dict[int, ir.Value]()
        number = self.stage() + (tick - ticks.delay(GONE))
        visit = self._visit(number.clipped(ticks.visits))  # without a microbatch, a stage takes residuals of another
        run = visit.run * -1 + (ticks.repeats - 1)
        was = visit.number + (run - visit.run) * ticks.stages + self.stage()
        at = At(run, number.is_in(ticks.visits), was % ticks.slots)

        def work() -> None:
            self._hand_over(BACKWARD, self._nest.backward, tick, at.there)
            left.update(self.layers(self._nest.backward, at))
            self.add_layers(left, at)

        self._place(RETURN, tick, work=work)
        self._place(GONE, tick, given=self._leaving(left, 0))

    def _leaving(self, left: Mapping[int, ir.Value], stage: int) -> dict[int, ir.Value]:
        """What leaves a stage, of what is read behind it."""
        return {value: self.of_stage(left[value], stage) for value in left if value in self._nest.kept}

    def _place(
        self,
        place: str,
        now: Number,
        in_ticks: bool = True,
        given: Mapping[int, ir.Value] | None = None,
        work: Callable[[], None] | None = None,
    ) -> None:
        """What runs at a place of the microbatch that is there, and then waits or is added up."""
        nest, make = self._nest, self.make
        with self.inner_scope():
            visit = self._visit(now - self._ticks.delay(place)) if in_ticks else None
            number = now if visit is None else visit.microbatch.clipped(nest.microbatches)
            there = None if visit is None else visit.there
            self.values.update(given or {})
            dtype = self._program.type_of(nest.counter.inside).dtype
            self.values[nest.counter.inside] = make.convert(number.value, dtype)
            for value, kept in nest.kept.items():
                if place in kept.readers:
                    rows, shape = self.held[KEPT, value], self._program.type_of(value).shape
                    slot = number % make.type_of(rows).shape[0]
                    self.values[value] = make.reshape(self.window(rows, 0, slot), shape)
            for carry, _ in nest.left[place]:
                self.values[carry.inside] = self.held[SUM, carry.op]
            self._there = there
            self._statements(nest.made[place])
            if work is not None:
                work()
            for value, kept in nest.kept.items():
                if place == kept.home:
                    rows, shape = self.held[KEPT, value], self._program.type_of(value).shape
                    starts = self.starts(len(shape) + 1, {0: number % make.type_of(rows).shape[0]})
                    row = make.reshape(self.values[value], (1, *shape))
                    self.held[KEPT, value] = make.dynamic_update_slice(rows, row, starts)
            for total, term in nest.added[place]:
                self.add((SUM, total.carry.op), self._if_there(self.values[term], self._zeros_of))
            for carry, value in nest.left[place]:
                before = self.held[SUM, carry.op]
                is_written = int(self._program.value_op[value]) in self.instead
                left = self.values[value]
                self.held[SUM, carry.op] = left if is_written else self._if_there(left, lambda _, was=before: was)

    def _zeros_of(self, value: ir.Value) -> ir.Value:
        return self.zeros(self.make.type_of(value))

    def _if_there(self, value: ir.Value, other: Callable[[ir.Value], ir.Value]) -> ir.Value:
        """A value of the microbatch that is there; where none is, what `other` makes of it."""
        return value if self._there is None else self.make.select(self._there, value, other(value))

    def _write(self, op: int) -> None:
        """Writes a microbatch's part of what is handed on; one that is not there, what is there already."""
        make, program = self.make, self._program
        array, update, *starts = [self.values[v] for v in program.operands_of(op).tolist()]
        update = self._if_there(update, lambda new: make.dynamic_slice(array, starts, make.type_of(new).shape))
        self.values[program.results_of(op)[0]] = make.dynamic_update_slice(array, update, starts)

    def _hand_over(self, kind: str, loop: LayerLoop, tick: Number, there: ir.Value) -> None:
        """Gives each stage what its neighbour has left; one takes what enters, or what has gone round.

        A stage without a microbatch has what enters, and zeros for what comes back: gradients of zeros are zeros, as
        long as all else is finite.
        """
        make, ticks, last = self.make, self._ticks, self.stages - 1
        first, by, place, tag = (0, 1, ENTER, SENT) if kind == FORWARD else (last, -1, RETURN, RETURNED)
        travelling = self._nest.travelling[kind == BACKWARD]
        entering = {c.inside: int(self._program.operands[c.initial]) for c in loop.states}
        is_first, comes = self.stage().equals(first), self._visit(tick - ticks.delay(place)).run.equals(0)
        for inside, value in (entering | {v: v for v in travelling}).items():
            held, new = self.held[kind, inside], self.for_all(self.values[value])
            shape, moved = make.type_of(held).shape, self.moved(held, by)
            if ticks.repeats > 1:
                round_ = make.select(comes, new, self.moved(held, -by * last))
                moved = make.select(self.along(is_first, shape), round_, moved)
            else:
                moved = make.select(self.along(is_first, shape), new, moved)
            other = self.zeros(make.type_of(held)) if kind == BACKWARD and inside in entering else new
            self.held[kind, inside] = tagged(make.select(self.along(there, shape), moved, other), tag)

    def _visit(self, number: Number) -> _Visit:
        """What the visits of these numbers are to; `run` counts up."""
        ticks = self._ticks
        there = number.is_in(ticks.visits)
        if ticks.repeats == 1:
            return _Visit(number, number, Number(self.make, number.like(0)), there)
        round_, ahead = ticks.stages * ticks.repeats, ticks.first_return + ticks.stages
        ahead += -ahead % round_
        later = number + ahead
        within = later % round_
        group = later // round_ - ahead // round_
        return _Visit(number, group * ticks.stages + within % ticks.stages, within // ticks.stages, there)
