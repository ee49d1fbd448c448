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
from typing import Any, cast

from autopart.core.doors.jax_internals import ir, stablehlo
from autopart.core.op import MUL, REDUCTION_NAMES, SUM, WHOLE, OpSpec, TensorType, splat_value
from autopart.core.ops.rule import localize
from autopart.core.ops.rules.reduce import identity
from autopart.core.program import Program
from autopart.spmd.emission.local_op import MlirLocalOp, splat_of
from autopart.spmd.emission.program_writer import ProgramWriter
from autopart.spmd.emission.reductions import REDUCERS
from autopart.spmd.microbatch.interleaving import Interleaving, finest
from autopart.spmd.microbatch.loop_plan import LoopPlan, Unit


class _NeedsStretch(Exception):
    """An op's rule asks where in the whole its tile begins, so a tile must be one stretch."""


def microbatched(plan: LoopPlan, steps: int) -> Program:
    """The program with the plan's loops over `steps` microbatches."""
    try:
        return _Sequential(plan, finest(plan, steps)).program()
    except _NeedsStretch:
        return _Sequential(plan, Interleaving(steps, 1)).program()


class _Step:
    """The position of a microbatch, for rules that ask for it."""

    def __init__(self, steps: int, step: ir.Value):
        self._steps, self._step = steps, step

    def axis_size(self, axis: int) -> int:
        return self._steps

    def axis_position(self, axis: int) -> ir.Value:
        return self._step


class _Sequential(ProgramWriter):
    """Emits the program."""

    def __init__(self, plan: LoopPlan, interleaving: Interleaving):
        super().__init__(plan.partitioning.program)
        self._plan, self._rows = plan, interleaving
        self._taken: ChainMap[tuple[int, int], ir.Value] = ChainMap()
        self._step: ir.Value | None = None
        self._inside: set[int] = set()
        self._barrier: list[int] = []
        self._last_part = _last_parts(plan)
        self._joined = {int(self._program.value_op[v]) for v in plan.joined}
        nothing = OpSpec("", {}, (), ())
        self._make = MlirLocalOp(nothing, None, (), (), (), (), (), _Step(0, cast(ir.Value, None)))

    def main(self) -> None:
        """See `ProgramWriter.main`."""
        for number in range(self._plan.loops):
            self._whole(number)
            self._loop_over_steps(number)
        self._whole(self._plan.loops)

    def part_of_barrier(self, op: int) -> None:
        """See `ProgramWriter.part_of_barrier`."""
        self._barrier.append(op)
        if op == self._last_part[op]:
            joined, self._barrier = self._barrier, []
            self.barrier(joined)

    def _units(self, place: int, looped: bool) -> list[Unit]:
        plan = self._plan
        return [u for u, at in zip(plan.units, plan.place, strict=True) if at == place and u.looped == looped]

    def _whole(self, place: int) -> None:
        for unit in self._units(place, looped=False):
            if unit.start not in self._joined:
                self.range(unit.start, unit.end)

    # ---- the loop over microbatches

    def _loop_over_steps(self, number: int) -> None:
        leaving, make = self._plan.leaving[number], self._make

        def turn(step: ir.Value, held: Sequence[ir.Value]) -> Sequence[ir.Value]:
            self._step = step
            for unit in self._units(number, looped=True):
                self._inside.update(range(self._program.result_ptr[unit.start], self._program.result_ptr[unit.end]))
                self.range(unit.start, unit.end)
            left = [self._kept(v, before, step) for v, before in zip(leaving, held, strict=True)]
            self._step = None
            self._inside.clear()
            return left

        kept = [self._kept_type(v) for v in leaving]
        results = self.counted_loop(self._rows.steps, [make.constant(0, t.dtype, t.shape) for t in kept], turn)
        for value, result in zip(leaving, results, strict=True):
            self.values[value] = make.reshape(result, self._program.type_of(value).shape)

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
        left, dim, code = self.values[value], self._plan.tiled(value), self._plan.parts.get(value, 0)
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
            self.op(op)
        return self.values[value]

    def _is_first(self) -> ir.Value:
        assert self._step is not None
        return self._make.compare(self._step, self._make.constant(0, "i32"), "EQ")

    # ---- ops

    def op(self, op: int) -> None:
        """See `ProgramWriter.op`."""
        kind, operands = self._program.spec(op).kind, self._operands(op)
        results = self.tagged(op, operands[0]) if kind == "tag" else self._results(op, kind, operands)
        self.values.update(zip(self._program.results_of(op), results, strict=True))

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
            outputs = [self.type_of(v) for v in self._program.results_of(op)]
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
        type_, dim = self.type_of(value), self._plan.tiled(value)
        if spec.attributes["iota_dimension"] != dim:
            return self._make.iota(type_, spec.attributes["iota_dimension"])
        return self._make.convert(self._rows.rows(self._make, type_, dim, cast(ir.Value, self._step)), type_.dtype)

    # ---- what ops read

    def type_of(self, value: int) -> TensorType:
        """See `ProgramWriter.type_of`."""
        type_ = self._program.type_of(value)
        return self._rows.tile_type(type_, self._plan.tiled(value)) if value in self._inside else type_

    def _operands(self, op: int) -> list[ir.Value]:
        first, last = self._program.operand_ptr[op : op + 2].tolist()
        return [self.read(use) for use in range(first, last)]

    def read(self, use: int) -> ir.Value:
        """What an entry of `operands` reads: a value, its microbatch, or in the loop a part of it."""
        program, plan = self._program, self._plan
        value, op = int(program.operands[use]), int(program.use_op[use])
        if self._step is None:
            return self.values[value]
        position = use - int(program.operand_ptr[op])
        mapping, way = plan.mapping(op), plan.passage.get(op)
        if mapping is not None and mapping.operands[position] != WHOLE:
            made = plan.tiled(value) if value in self._inside else WHOLE
            return self.values[value] if made != WHOLE else self._microbatch(value, mapping.operands[position])
        if way is not None and way.parts[position] and not (value in self._inside and value in plan.parts):
            return self._as_part(self.values[value], way.code)
        return self.values[value]

    def _microbatch(self, value: int, dim: int) -> ir.Value:
        if (value, dim) not in self._taken:
            self._taken[value, dim] = self._take(self.values[value], dim)
        return self._taken[value, dim]

    def _take(self, whole: ir.Value, dim: int) -> ir.Value:
        return self._rows.take(self._make, whole, dim, cast(ir.Value, self._step))

    def _as_part(self, whole: ir.Value, code: int) -> ir.Value:
        """A value that is whole, as parts that combine to it: itself, but of sums and products only once."""
        if code not in (SUM, MUL):
            return whole
        type_, known = self._make.type_of(whole), splat_of(whole)
        neutral = identity(code, type_.dtype)
        if known is not None and known == neutral:
            return whole
        return self._make.select(self._is_first(), whole, self._make.constant(neutral, type_.dtype, type_.shape))

    @contextmanager
    def inner_scope(self) -> Generator[None]:
        """See `ProgramWriter.inner_scope`; the same holds for what is taken out of arrays."""
        self._taken = self._taken.new_child()
        with super().inner_scope():
            yield
        self._taken = self._taken.parents


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
