"""The layers of all stages at once: what they take rows of, what they stack up, and what they add up.

    parameters                    [p, l, ...]; with r runs of layers in a stage [p, r, l, ...]
    residuals                     [p, slots, l, ...]: row j of a stage's layers goes to the slot of the tick, and is
                                  taken from there when its microbatch comes back
    gradients                     as parameters: a row is added where its layer's gradient is made
    sums over layers              [p, ...]: gradients of what all layers share

Stage s has runs s, s + p, s + 2 p, ... of l layers each. Where these are more layers than there are, the last ones have
parameters of zeros, hand on what comes to them, and leave nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from autopart.core.doors.jax_internals import ir, tagged
from autopart.core.op import SUM as SUM_CODE
from autopart.core.op import TensorType
from autopart.spmd.emission.local_op import splat_of
from autopart.spmd.emission.reductions import added_at, reduced
from autopart.spmd.pipeline.layer_loops import LayerLoop, StackWrite
from autopart.spmd.pipeline.nest import Nest
from autopart.spmd.pipeline.numbers import Number
from autopart.spmd.pipeline.staged_ops import StagedOps
from autopart.spmd.pipeline.ticks import Ticks
from autopart.spmd.pipeline.zeros import zeros_of

STAGES = "pipeline stages"
"""The tag of arrays whose first dim is the stages."""

SENT, RETURNED = "pipeline sent", "pipeline returned"
"""The tags of what stages hand over, forward and backward; their first dim is the stages too."""

EXCHANGED = "pipeline exchange"
"""The tag of sums that leave their stages, [stages, layers of a run, ...] or [stages, runs, layers of a run, ...]."""

TAGS = (STAGES, SENT, RETURNED, EXCHANGED)
"""All of them."""

FORWARD, BACKWARD, RESIDUAL, LAYERS, KEPT, SUM = "forward", "backward", "residual", "layers", "kept", "sum"
"""Kinds of what is carried from tick to tick."""


class At(NamedTuple):
    """Where stages are: which of its runs each is at, whether there is a microbatch, and the slot of its residuals."""

    run: Number
    there: ir.Value
    slot: Number


class StagedLayers(StagedOps):
    """Emits layers. `held` has what is carried from tick to tick, by (kind, value or carry)."""

    def __init__(self, nest: Nest, ticks: Ticks):
        super().__init__(nest.program, ticks.stages)
        self._nest, self._ticks, self._length = nest, ticks, -(-nest.layers // (ticks.stages * ticks.repeats))
        self._layers = self._length * ticks.stages * ticks.repeats
        ways = zip((nest.forward, nest.backward), nest.travelling, strict=True)
        self._staged_in = {loop.loop.op: self._staged_values(loop, travelling) for loop, travelling in ways}
        self._zeros, stacks = self._without_microbatch(), nest.backward.stacks
        self._by_row = {
            s.carry.op: s.carry.after for s in stacks if s.carry.after in nest.summed and s.row in self._zeros
        }
        self.held: dict[tuple[str, int], ir.Value] = {}
        self._rows: dict[int, ir.Value] = {}

    def _staged_values(self, loop: LayerLoop, travelling: Iterable[int]) -> set[int]:
        """What each stage has its own of in a loop over layers."""
        rows = [self._program.results_of(op)[0] for op in loop.row_reads]
        self.staged = {loop.counter.inside, *(c.inside for c in (*loop.states, *loop.totals)), *rows, *travelling}
        self.find_staged(loop.loop.body.scope.start, loop.loop.body.scope.end)
        staged, self.staged = self.staged, set()
        return staged

    def _without_microbatch(self) -> set[int]:
        """What is zero in all layers of a stage where zeros come back to the first of them."""
        backward, body = self._nest.backward, self._nest.backward.loop.body.scope
        carries = (*backward.states, *backward.totals)
        coming = {c.inside: int(self._program.operands_of(c.op)[1]) if self._length > 1 else c.inside for c in carries}
        return zeros_of(self._program, range(body.start, body.end), coming)

    # ---- stacks of all layers

    def take_rows(self) -> None:
        """Brings what layers take rows of into stages."""
        for loop in (self._nest.forward, self._nest.backward):
            for value in loop.row_reads.values():
                if value not in self._nest.forward.stack_of and value not in self._rows:
                    self._rows[value] = tagged(self.in_stages(self.values[value]), STAGES)

    def in_stages(self, stack: ir.Value) -> ir.Value:
        """A stack of layers [L, ...] as [stages, layers of a run, ...], or [stages, runs, layers of a run, ...]."""
        make, ticks, type_, known = self.make, self._ticks, self.make.type_of(stack), splat_of(stack)
        count, *rest = type_.shape
        if known is not None:
            runs = (ticks.repeats,) if ticks.repeats > 1 else ()
            return make.constant(known, type_.dtype, (ticks.stages, *runs, self._length, *rest))
        if count < self._layers:
            none = [0] * len(rest)
            stack = make.pad(stack, make.constant(0, type_.dtype), [0, *none], [self._layers - count, *none])
        if ticks.repeats == 1:
            return make.reshape(stack, (ticks.stages, self._length, *rest))
        runs = make.reshape(stack, (ticks.repeats, ticks.stages, self._length, *rest))
        return make.transpose(runs, [1, 0, *range(2, len(rest) + 3)])

    def in_order(self, array: ir.Value) -> ir.Value:
        """What `in_stages` makes of a stack, as a stack."""
        make, shape, array = self.make, self.make.type_of(array).shape, tagged(array, EXCHANGED)
        if self._ticks.repeats > 1:
            array = make.transpose(array, [1, 0, *range(2, len(shape))])
        rest = shape[2 + (self._ticks.repeats > 1) :]
        stack = make.reshape(array, (self._layers, *rest))
        all_ = self._layers == self._nest.layers
        return stack if all_ else make.slice(stack, [0] * (1 + len(rest)), (self._nest.layers, *rest))

    # ---- layers

    def layers(self, loop: LayerLoop, at: At) -> dict[int, ir.Value]:
        """Runs the layers of all stages on what is held; what they leave, by the value that the loop left."""
        kind, make = (FORWARD, self.make) if loop is self._nest.forward else (BACKWARD, self.make)
        states = {c.op: self.held[kind, c.inside] for c in loop.states}
        totals = {c.op: self.zeros(self.staged_type(self._program.type_of(c.inside))) for c in loop.totals}
        carried = states | totals | {s.carry.op: self._first_of(s) for s in loop.stacks}
        outer, self.staged = self.staged, self._staged_in[loop.loop.op]

        def turn(number: ir.Value, held: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return [*self._layer(loop, Number(make, number), at, dict(zip(carried, held, strict=True))).values()]

        if self._length == 1:
            with self.inner_scope():
                left = turn(make.constant(0, "i32"), [*carried.values()])
        else:
            left = self.counted_loop(self._length, [*carried.values()], turn)
        self.staged = outer
        of_carry = dict(zip(carried, left, strict=True))
        self.held.update({(kind, c.inside): of_carry[c.op] for c in loop.states})
        if kind == FORWARD:
            self.held.update({(RESIDUAL, s.carry.after): of_carry[s.carry.op] for s in loop.stacks})
        else:
            self.held.update({(LAYERS, value): of_carry[op] for op, value in self._by_row.items()})
        return {carry.after: of_carry[carry.op] for carry in loop.loop.carries if carry.op in of_carry}

    def _first_of(self, stack: StackWrite) -> ir.Value:
        """What is carried of a stack before the first of a stage's layers: its slots, its sum, or nothing yet."""
        if stack.carry.op in self._by_row:
            return self.held[LAYERS, stack.carry.after]
        if stack in self._nest.forward.stacks:
            return self.held[RESIDUAL, stack.carry.after]
        type_ = self._program.type_of(stack.carry.inside)
        return self.zeros(TensorType((self.stages, self._length, *type_.shape[1:]), type_.dtype))

    def _layer(self, loop: LayerLoop, turn: Number, at: At, carried: Mapping[int, ir.Value]) -> dict[int, ir.Value]:
        """One layer of each stage, the turn-th of its run from the first on or from the last: what is carried on."""
        program, length, nest = self._program, self._length, self._nest
        kind = FORWARD if loop is nest.forward else BACKWARD
        row = turn if kind == FORWARD else turn * -1 + (length - 1)
        layer = (at.run * self.stages + self.stage()) * length + row
        counter = layer if kind == FORWARD else layer * -1 + (nest.layers - 1)
        self.values[loop.counter.inside] = self.make.convert(counter.value, program.type_of(loop.counter.inside).dtype)
        handed_on = (*loop.states, *loop.totals)
        self.values.update({c.inside: carried[c.op] for c in handed_on})
        self.values.update({v: self.held[kind, v] for v in nest.travelling[kind == BACKWARD]})
        written = dict(carried)

        def take(op: int, value: int) -> None:
            self.values[program.results_of(op)[0]] = self._row_of(value, at, row)

        def write(stack: StackWrite) -> None:
            written[stack.carry.op] = self._with_row(stack, written[stack.carry.op], at, row)

        self.instead.update({op: lambda op=op, value=value: take(op, value) for op, value in loop.row_reads.items()})
        self.instead.update({stack.op: lambda stack=stack: write(stack) for stack in loop.stacks})
        self.range(loop.loop.body.scope.start, loop.loop.body.scope.end)
        left = {c.op: self.given(int(program.operand_ptr[c.op]) + 1, c.inside) for c in handed_on}
        if self._layers > nest.layers:
            there, shape_of = layer.is_in(nest.layers), lambda op: self.make.type_of(left[op]).shape
            left = {op: self.make.select(self.along(there, shape_of(op)), left[op], carried[op]) for op in left}
        return written | left

    def _row_of(self, value: int, at: At, row: Number) -> ir.Value:
        """The layers' rows of an array that they take rows of: [stages, 1, ...]."""
        if value in self._nest.forward.stack_of:
            return self._rows_at(self.held[RESIDUAL, value], at.slot, row)
        if self._ticks.repeats > 1:
            return self._rows_at(self._rows[value], at.run, row)
        return self.window(self._rows[value], 1, row)

    def _with_row(self, stack: StackWrite, array: ir.Value, at: At, row: Number) -> ir.Value:
        """A stack with the row that layers write: added to a sum, put into its slot, or into a stack of this tick."""
        new = self.values[stack.row] if stack.row in self.staged else self.for_all(self.values[stack.row])
        make, (stages, *rest), rank = self.make, self.make.type_of(new).shape, len(self.make.type_of(array).shape)
        if stack.carry.op in self._by_row:
            return self._added(array, make.reshape(new, (stages, *rest[1:])), at, row)
        if stack in self._nest.forward.stacks:
            new = make.reshape(new, (stages, 1, *rest))
            return make.dynamic_update_slice(array, new, self.starts(rank, {1: at.slot, 2: row}))
        return make.dynamic_update_slice(array, new, self.starts(rank, {1: row}))

    def _rows_at(self, array: ir.Value, at: Number, row: Number | None) -> ir.Value:
        """Of [stages, places, layers, ...] each stage's rows at a place of its own, or one of them."""
        make, (stages, _, length, *rest) = self.make, self.make.type_of(array).shape
        numbers = [at] if row is None else [at, row]
        starts = make.pad(self._places(numbers), make.constant(0, "i32"), [0, 0], [0, len(rest) + 2 - len(numbers)])
        count = length if row is None else 1
        return make.reshape(make.windows(array, starts, (1, count, *rest)), (stages, count, *rest))

    # ---- gradients of layers

    def _added(self, total: ir.Value, new: ir.Value, at: At, row: Number | None) -> ir.Value:
        """Sums of layers' gradients with those of the runs that stages are at: of all their layers, or of a row."""
        make, repeats = self.make, self._ticks.repeats
        new = make.convert(new, make.type_of(total).dtype)
        if repeats > 1:
            places = self._places([at.run] if row is None else [at.run, row])
            return added_at(total, new, [1] if row is None else [1, 2], places, is_batched=True)
        if row is None:
            return make.binary("add", total, new)
        return added_at(total, new, [1], make.reshape(row.value, [1]), is_batched=False)

    def _places(self, numbers: Sequence[Number]) -> ir.Value:
        """[stages, n]: numbers side by side."""
        whole = self.stage()
        columns = [self.make.reshape(whole.like(number), (self.stages, 1)) for number in numbers]
        return self.make.concatenate(columns, 1)

    def first_sums(self) -> dict[tuple[str, int], ir.Value]:
        """Zeros to which layers add."""
        found, stacks = dict[tuple[str, int], ir.Value](), self._nest.backward.stack_of
        for value, dtype in self._nest.summed.items():
            shape = self._program.type_of(value).shape
            zeros = self.make.constant(0, dtype, shape if value in stacks else (self.stages, *shape))
            found[LAYERS, value] = self.in_stages(zeros) if value in stacks else zeros
        return found

    def add_layers(self, left: Mapping[int, ir.Value], at: At) -> None:
        """Adds up what layers leave for sums; what is added up row by row is there already."""
        make, stacks = self.make, self._nest.backward.stack_of
        followed = {c.after: int(self._program.operands_of(c.op)[1]) for c in self._nest.backward.totals}
        for value in self._nest.summed.keys() - self._by_row.values():
            new, key = left[value], (LAYERS, value)
            if (stacks[value].row if value in stacks else followed[value]) not in self._zeros:
                type_ = make.type_of(new)
                new = make.select(self.along(at.there, type_.shape), new, self.zeros(type_))
            if value in stacks:
                self.held[key] = self._added(self.held[key], new, at, None)
            else:
                self.add(key, make.convert(new, make.type_of(self.held[key]).dtype))

    def sums_of_layers(self) -> None:
        """What layers have added up, where the loop left it for one microbatch, and what is linear in it."""
        make, nest = self.make, self._nest
        for value in nest.summed:
            held = self.held[LAYERS, value]
            is_stack = value in nest.backward.stack_of
            self.values[value] = self.in_order(held) if is_stack else reduced(held, 0, SUM_CODE)
        wide = {value: make.type_of(self.values[value]).dtype for value in nest.summed}
        for op in nest.behind:
            spec, read = self._program.spec(op), self._program.operands_of(op).tolist()
            [dtype] = {wide[value] for value in read if value in wide}
            own = next(t.dtype for value, t in zip(read, spec.operands, strict=True) if value in wide)
            operands = [
                make.convert(self.values[v], dtype) if t.dtype == own else self.values[v]
                for v, t in zip(read, spec.operands, strict=True)
            ]
            made = self.local(op, operands, [TensorType(t.shape, dtype) for t in spec.results]).clone()
            self.values.update(zip(self._program.results_of(op), made, strict=True))
            wide |= dict.fromkeys(self._program.results_of(op), dtype)

    # ---- values

    def add(self, key: tuple[str, int], term: ir.Value) -> None:
        """Adds to a sum that is held."""
        self.held[key] = self.make.binary("add", self.held[key], term)

    def zeros(self, type_: TensorType) -> ir.Value:
        """Zeros of a type."""
        return self.make.constant(0, type_.dtype, type_.shape)

    def stage(self) -> Number:
        """The number of each stage."""
        return Number(self.make, self.make.iota(TensorType((self.stages,), "i32"), 0))

    def starts(self, rank: int, at: Mapping[int, Number]) -> list[ir.Value]:
        """Where a window begins: at a place of some dims, and of the others at 0."""
        return [at[d].value if d in at else self.make.constant(0, "i32") for d in range(rank)]

    def window(self, array: ir.Value, dim: int, at: Number) -> ir.Value:
        """One index of a dim, which stays, with length 1."""
        shape = self.make.type_of(array).shape
        sizes = [1 if d == dim else size for d, size in enumerate(shape)]
        return self.make.dynamic_slice(array, self.starts(len(shape), {dim: at}), sizes)
