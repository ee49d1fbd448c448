"""Why an axis tiles no dim of a value.

    kept          atomic<params/w, batch> of tactic "Z2"
    indivisible   66 is not a multiple of 4
    conflict      dot_general at model.py:41: (0, _) -> tile 0 or (_, 1) -> tile 1
    no rule       sort at model.py:12 has no mapping
    readers       dot_general at model.py:41 loops over "model" by (0, _) -> tile 0, which leaves it whole
    search        the search over "model" tiled other values
    nobody asked  no tactic decides about "model"

The first that holds is the reason: what forbids a tile stands before what merely did not ask for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autopart.base.quoting import one_line, short_place
from autopart.base.units import bytes_text
from autopart.core.op import WHOLE
from autopart.core.ops.ops_table import factor_text
from autopart.core.ops.rule import named, rule_of
from autopart.core.table.conflicts import fitting_count
from autopart.core.table.decision_history import DecisionHistory
from autopart.core.table.loop_nests import ATOMIC
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import DeviceLocal

if TYPE_CHECKING:
    from autopart.api.explained.metadata import TacticReport

HOPS, MAX_OPS = 3, 64
"""How far around a value, and at how many ops, it is looked for what stops propagation."""


@dataclass(frozen=True)
class LeftWhole:
    """The reason.

    kind   one of those in the module's picture; "one device" and "scalar" where there is nothing to divide
    why    in words
    dims   dims that a decision could tile along the axis
    """

    kind: str
    why: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True)
class WhyWhole:
    """Gives reasons for one scheduled program; `history` says which action keeps a value whole."""

    partitioning: Partitioning
    reports: Sequence[TacticReport]
    history: DecisionHistory | None = None
    _idle: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, value: int, axis: str) -> LeftWhole:
        """Why `axis` tiles no dim of `value`, which must be so."""
        program, size = self.partitioning.program, self.partitioning.mesh.shape[axis]
        shape = program.type_of(value).shape
        if size == 1:
            return LeftWhole("one device", "the axis has one device")
        if not shape:
            return LeftWhole("scalar", "it has no dims")
        if self.partitioning.state.action[value, self.partitioning.mesh.index(axis)] == ATOMIC:
            return LeftWhole("kept", f"{self._keeper(value, axis)} keeps it whole")
        why = {d: self.partitioning.why_not_tile(value, d, axis) for d in range(len(shape))}
        dims = tuple(d for d, reason in why.items() if not reason)
        if not dims:
            return LeftWhole("indivisible", "; ".join(dict.fromkeys(why.values())))
        neighbours = self._neighbours(value, axis)
        for kind, reasons in (
            ("conflict", self._conflicts(neighbours, axis)),
            ("no rule", self._ruleless(neighbours, axis)),
            ("readers", self._looping(value, axis)),
        ):
            text = next(reasons, "")
            if text:
                return LeftWhole(kind, text, dims)
        return self._unasked(axis, dims)

    def _keeper(self, value: int, axis: str) -> str:
        number = self.history.kept_by(value, axis) if self.history else None
        if number is None:
            return "a decision"
        return f'{action_text(self.reports, number)} of tactic "{tactic_of(self.reports, number).name}"'

    def _neighbours(self, value: int, axis: str) -> list[int]:
        """Ops around the value that have no loop over the axis, the nearest first."""
        program = self.partitioning.program
        found: dict[int, None] = {}
        values, seen = [value], {value}
        for _ in range(HOPS):
            before = len(found)
            for op in itertools.chain.from_iterable(self._idle_around(v, axis) for v in values):
                found[op] = None
                if len(found) == MAX_OPS:
                    return list(found)
            idle = itertools.islice(found, before, None)
            values = [v for op in idle for v in (*program.operands_of(op).tolist(), *program.results_of(op))]
            values = [v for v in dict.fromkeys(values) if v not in seen]
            seen.update(values)
        return list(found)

    def _idle_around(self, value: int, axis: str) -> tuple[int, ...]:
        """Of the op that makes a value and those that read it, but for arguments, those without a loop over the axis;
        what many arguments are near is looked at once."""
        index = self.partitioning.mesh.index(axis)
        if (value, index) not in self._idle:
            program, is_argument = self.partitioning.program, self.partitioning.graph.is_argument
            pointer, uses = program.users
            ops = np.append(program.value_op[value], program.use_op[uses[pointer[value] : pointer[value + 1]]])
            idle = ~is_argument[ops] & (self.partitioning.state.mapping[ops, index] < 0)
            self._idle[value, index] = tuple(ops[idle].tolist())
        return self._idle[value, index]

    def _conflicts(self, neighbours: Sequence[int], axis: str) -> Iterator[str]:
        program = self.partitioning.program
        for op in neighbours:
            if fitting_count(self.partitioning, op, axis) > 1:
                yield f"{self._at(op)}: several mappings fit {named(program.spec(op))}, and none was chosen"

    def _ruleless(self, neighbours: Sequence[int], axis: str) -> Iterator[str]:
        program, table = self.partitioning.program, self.partitioning.table
        for op in neighbours:
            if table.of[program.op_spec[op]] or not program.operands_of(op).size:
                continue
            beside = [v for v in (*program.operands_of(op).tolist(), *program.results_of(op))]
            if any(self.partitioning.tiled_dim(v, axis) >= 0 for v in beside):
                found = rule_of(program.spec(op))
                yield f"{self._at(op)}: {found.blocked_because or 'it has no mapping' if found else 'no rule is known'}"

    def _looping(self, value: int, axis: str) -> Iterator[str]:
        """Readers that loop over the axis by a mapping that leaves the value whole."""
        program, index = self.partitioning.program, self.partitioning.mesh.index(axis)
        pointer, uses = program.users
        for use in uses[pointer[value] : pointer[value + 1]].tolist():
            op = int(program.use_op[use])
            number = int(self.partitioning.state.mapping[op, index])
            if number < 0 or self.partitioning.graph.is_argument[op]:
                continue
            mapping = self.partitioning.table.of[program.op_spec[op]][number]
            if mapping.operands[use - int(program.operand_ptr[op])] == WHOLE:
                yield f"{self._at(op)} loops over it by {factor_text(mapping)}, which leaves this operand whole"

    def _unasked(self, axis: str, dims: tuple[int, ...]) -> LeftWhole:
        searched = [r for r in self.reports if "evaluations" in r.report]
        for report in searched:
            if axis in report.report.get("unused_axes", ()):
                remark = next((t for t in report.report.get("remarks", ()) if t.startswith(f'axis "{axis}"')), "")
                return LeftWhole("search", remark or f'tactic "{report.name}" did not use the axis', dims)
        deciding = [r for r in self.reports if any(axis in row for row in r.decisions if row[0] in ("tile", "atomic"))]
        if not deciding:
            return LeftWhole("nobody asked", "no tactic decides about this axis", dims)
        names = ", ".join(f'"{r.name}"' for r in deciding[:3])
        if any(r in searched for r in deciding):
            return LeftWhole("search", f"{names} tiled other values along it, and this one was cheaper whole", dims)
        return LeftWhole("nobody asked", f"{names} named other values, from which propagation did not reach it", dims)

    def _at(self, op: int) -> str:
        where = self.partitioning.program.where(op)
        return named(self.partitioning.program.spec(op)) + (f" at {short_place(where)}" if where else "")


@dataclass(frozen=True)
class Replicated:
    """Arguments that no axis tiles and that share the reason, for one axis.

    names   the largest first
    bytes   of all of them, which every device holds
    """

    axis: str
    kind: str
    why: str
    names: tuple[str, ...]
    bytes: float

    def __str__(self) -> str:
        more = f" and {len(self.names) - 2} more" if len(self.names) > 2 else ""
        named = ", ".join(map(one_line, self.names[:2])) + more
        return f'{named} ({bytes_text(self.bytes)}), whole on "{one_line(self.axis)}": {one_line(self.why)}'

    @property
    def fix(self) -> str:
        """What would divide them, as code; empty where nothing simple would, or a decision keeps them."""
        match self.kind:
            case "readers" | "nobody asked":
                key = self.names[0].partition("/")[0]
                return f"ap.ManualPartition({{{key!r}: ap.FIRST_DIVISIBLE_DIM}}, axis={self.axis!r})"
            case "indivisible":
                return 'uneven="pad", or another dim'
            case "conflict":
                return "lowered.conflicts, which prices each way out"
            case _:
                return ""


def replicated(
    partitioning: Partitioning, local: DeviceLocal, reports: Sequence[TacticReport]
) -> tuple[Replicated, ...]:
    """What every device holds whole: arguments that no axis tiles, by axis and reason, the most bytes first."""
    program, why = partitioning.program, WhyWhole(partitioning, reports)
    axes = [axis for axis, size in partitioning.mesh.shape.items() if size > 1]
    groups: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        type_ = program.type_of(value)
        if int(local.settled[value]) or not type_.shape:
            continue
        for axis in axes:
            left = why.of(value, axis)
            groups.setdefault((axis, left.kind, left.why), []).append((-type_.bytes, name))
    found = [
        Replicated(*key, tuple(name for _, name in sorted(members)), -sum(size for size, _ in members))
        for key, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda row: (-row.bytes, row.axis)))


def tactic_of(reports: Sequence[TacticReport], action: int) -> TacticReport:
    """The tactic that took the schedule's action of this number."""
    for report in reports:
        if action < len(report.actions):
            return report
        action -= len(report.actions)
    raise IndexError(action)


def action_text(reports: Sequence[TacticReport], action: int) -> str:
    """The schedule's action of this number, as text."""
    return [text for report in reports for text in report.actions][action]
