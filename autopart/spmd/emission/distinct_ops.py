"""Ops on local shapes, each distinct one made once.

    %3 = dot_general %x, %w      its rule makes it
    %4 = dot_general %y, %v      equal attributes, loops and layouts: a clone of %3 on other operands
    %5 = constant 0              one per program, or per region that needs it

A deep model repeats few distinct ops; cloning one is several times quicker than asking its rule again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

from autopart.core.doors.jax_internals import ir
from autopart.core.ops.rule import localize
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.local_op import AxisPositions, MlirLocalOp, reusable
from autopart.spmd.emission.walk import Walk
from autopart.spmd.for_xla.compiled_right import is_watched


class DistinctOps:
    """Emits the ops of a device-local program at MLIR's current insertion point.

    `watched` lists, in order, what was emitted of the kinds that XLA compiles wrongly in some surroundings
    (`spmd/for_xla/compiled_right.py`).
    """

    def __init__(self, local: DeviceLocal, walk: Walk[ir.Value], positions: AxisPositions):
        self._local, self._walk, self._positions = local, walk, positions
        self._specs, self._sources = local.program.specs, local.program.source.representatives
        self._op_spec: list[int] = local.program.op_spec.tolist()
        self._nests = local.nests
        self._native: list[int] = local.native.tolist()
        self._required: list[int] = local.required.tolist()
        self._stretch: list[int] = local.stretch.tolist()
        self._constants: list[dict[int, list[ir.Value]]] = [{}]
        self._emitted: dict[tuple[object, ...], tuple[ir.Operation, bool]] = {}
        self.watched: list[ir.Operation] = []

    @contextmanager
    def region(self) -> Generator[None]:
        """Constants that are made inside are not seen after it."""
        self._constants.append({})
        yield
        self._constants.pop()

    def emit(self, op: int, kind: str, operands: Sequence[ir.Value], uses: range, values: range) -> list[ir.Value]:
        """The op's local results; `uses` are the entries of `operands` it reads, `values` those it defines."""
        spec, nest = self._op_spec[op], self._nests[op]
        if kind == "constant" and not nest:
            return self._constant(op, spec)
        key = (spec, *nest, *self._required[uses.start : uses.stop], *self._native[values.start : values.stop])
        if key in self._emitted:
            first, watched = self._emitted[key]
            again = _again(first, operands)
            if watched:
                self.watched.append(again)
            return cast("list[ir.Value]", again.results)
        local_op = self._local_op(op, operands)
        results = localize(local_op)
        self.watched += filter(is_watched, local_op.made)
        emitted = reusable(local_op, results)
        if emitted is not None:
            self._emitted[key] = emitted, is_watched(emitted)
        return results

    def _constant(self, op: int, spec: int) -> list[ir.Value]:
        for known in self._constants:
            if spec in known:
                return known[spec]
        self._constants[-1][spec] = made = localize(self._local_op(op, []))
        return made

    def _local_op(self, op: int, operands: Sequence[ir.Value]) -> MlirLocalOp:
        local, spec, walk = self._local, self._op_spec[op], self._walk
        return MlirLocalOp(
            self._specs[spec],
            self._sources[spec],
            local.table.of[spec],
            self._nests[op],
            operands,
            [local.read_type(walk.operand(use), self._required[use], self._stretch[use]) for use in walk.uses(op)],
            [local.local_type(value, self._native[value]) for value in walk.results(op)],
            self._positions,
        )


def _again(emitted: ir.Operation, operands: Sequence[ir.Value]) -> ir.Operation:
    """The same op on other operands."""
    op = emitted.clone()
    slots = op.operands
    for position, value in enumerate(operands):
        slots[position] = value
    return op
