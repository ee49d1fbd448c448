"""`Lowered.what_if`: what another decision would cost, beside the plan at hand.

    print(lowered.what_if({"params/wq": 1}, axis="model"))         another_program.py has all else

    what if params/wq is tiled on dim 1 along "model", after the plan's own decisions?
      step         12.1 ms -> 9.87 ms (-18.4 %)
      peak         4.2 GB -> 3.1 GB (-26.2 %)
      all_reduce   290 -> 418 (+128)
      params/wq    [-, -] -> [-, model]

The decision is taken after those of the plan, as one more tactic would. Where one of those stands against it (the axis
tiles the value on another dim already, or keeps it whole), it takes that one's place: it stands before the action which
that comes from, and what of the plan is then no longer legal is given up and listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autopart.api.tactics.manual import ManualPartition
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tracing.names import Keys
from autopart.base.errors import TileError
from autopart.base.html import lines_html, table_html
from autopart.base.quoting import one_line, short_place
from autopart.base.units import bytes_text, change_text, seconds_text
from autopart.core.ops.ops_table import factor_text
from autopart.core.table.actions import Action, text_of
from autopart.core.table.conflicts import Conflict, conflicts
from autopart.core.table.decision_history import DecisionHistory
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import COLLECTIVES, DeviceLocal
from autopart.spmd.run import input_layouts, named_axes, output_layouts

SHOWN = 8
"""Lines that the text spends on each of: layouts that change, failures, conflicts, actions given up."""

Spec = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Failure:
    """A part of the decision that cannot be: of which value, along which axis, and why."""

    name: str
    axis: str
    why: str


@dataclass(frozen=True)
class WhatIf:
    """The plan at hand and the one that another decision would make of it; pairs are (before, after).

    actions        what the decision does, as text
    before         the action of the plan before which it is taken, since what comes from that stands against it; ""
                   where it is taken after the whole plan
    step_s, peak_bytes   estimates for one device; None where nothing prices the program
    collectives    kind -> counts, of the kinds that are there before or after
    layouts        full name of an argument or output -> mesh axes of each dim, of those that change
    fails          parts of the decision that no plan could take: a dim that the axis does not divide
    conflicts      ops that several mappings fit afterwards, and did not before
    given_up       actions of the plan that are no longer legal
    place          where another program is compared, what becomes of the schedule in it
    """

    actions: tuple[str, ...]
    before: str
    step_s: tuple[float, float] | None
    peak_bytes: tuple[float, float] | None
    collectives: Mapping[str, tuple[int, int]]
    layouts: Mapping[str, tuple[Spec, Spec]]
    fails: tuple[Failure, ...]
    conflicts: tuple[str, ...]
    given_up: tuple[str, ...]
    place: str = ""

    @property
    def step_delta_s(self) -> float | None:
        """Seconds that a step takes longer; negative where it is faster."""
        return None if self.step_s is None else self.step_s[1] - self.step_s[0]

    @property
    def peak_delta_bytes(self) -> float | None:
        """Bytes that the peak is higher."""
        return None if self.peak_bytes is None else self.peak_bytes[1] - self.peak_bytes[0]

    @property
    def collective_deltas(self) -> dict[str, int]:
        """Kind -> how many more there are, of the kinds whose number changes."""
        return {kind: after - before for kind, (before, after) in self.collectives.items() if after != before}

    def rows(self) -> list[tuple[str, str]]:
        """(what, change) of each figure and layout, as text."""
        found = [("step", change_text(*self.step_s, seconds_text))] if self.step_s else []
        found += [("peak", change_text(*self.peak_bytes, bytes_text))] if self.peak_bytes else []
        for kind, (before, after) in self.collectives.items():
            more = f" ({after - before:+d})" if after != before else " (no change)"
            found.append((kind, (f"{before} -> {after}" if after != before else str(before)) + more))
        changed = list(self.layouts.items())
        found += [(one_line(n), f"{spec_text(before)} -> {spec_text(after)}") for n, (before, after) in changed[:SHOWN]]
        return found + ([("layouts", f"and {len(changed) - SHOWN} more change")] if len(changed) > SHOWN else [])

    def remarks(self) -> list[str]:
        """Lines about what fails, what is given up, and where propagation stops."""
        groups: list[tuple[str, Sequence[str]]] = [
            ("fails", [f'{one_line(f.name)} along "{one_line(f.axis)}": {one_line(f.why)}' for f in self.fails]),
            ("given up", list(map(one_line, self.given_up))),
            ("conflict", list(map(one_line, self.conflicts))),
        ]
        lines: list[str] = []
        for label, texts in groups:
            lines += [f"{label}: {text}" for text in texts[:SHOWN]]
            lines += [f"{label}: and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
        return lines

    def __str__(self) -> str:
        place = f"before {one_line(self.before)} of the plan" if self.before else "after the plan's own decisions"
        place = self.place or place
        named = ", ".join(self.actions[:4]) + (f" and {len(self.actions) - 4} more" if len(self.actions) > 4 else "")
        rows = self.rows()
        width = max((len(what) for what, _ in rows), default=0)
        head = f"what if {named}, {place}?" if self.actions else "nothing of this can be decided:"
        return "\n".join([head, *(f"  {w:{width}}  {text}" for w, text in rows), *(f"  {r}" for r in self.remarks())])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return lines_html([str(self).splitlines()[0]]) + table_html(["", ""], self.rows()) + lines_html(self.remarks())


def spec_text(spec: Spec) -> str:
    """Mesh axes of each dim, `[batch, -, model+data]`; trailing dims that are whole are left out, as jax does."""
    return "[" + ", ".join("+".join(map(one_line, axes)) or "-" for axes in spec) + "]"


def what_if(scheduled: Scheduled, inputs: Mapping[str, Any], axis: str | Sequence[str]) -> WhatIf:
    """Compares; see the module. Raises as `ManualPartition` does for names and axes that are not there."""
    tactic, present = ManualPartition(inputs, axis), scheduled.partitioning
    changed, given_up, before = present.copy(), (), ""
    asked = _taken(tactic, changed)
    if asked.fails:
        alone = Partitioning(present.program, present.mesh)
        impossible = {(f.name, f.axis): f for f in _taken(tactic, alone).fails}
        blocked = [f for f in asked.fails if (f.name, f.axis) not in impossible]
        if blocked:
            place = _place_of(scheduled, [asked.value_of[f.name] for f in blocked])
            before = text_of(scheduled.actions[place], Keys(present.program))
            changed = Partitioning(present.program, present.mesh)
            changed.apply_all(scheduled.actions[:place])
            asked = _taken(tactic, changed)
            given_up = _replayed(changed, scheduled.actions[place:])
        asked = replace(asked, fails=[impossible.get((f.name, f.axis), f) for f in asked.fails])
    changed.propagate(tactic.axes)
    after = lower_for_device(changed, scheduled.device_local.options) if asked.actions else scheduled.device_local
    return _compared(scheduled, changed, after, asked, before, given_up)


@dataclass(frozen=True)
class _Taken:
    """Of a decision, the actions that were legal, the parts that were not, and the value of each name."""

    actions: list[Action]
    fails: list[Failure]
    value_of: dict[str, int]


def _taken(tactic: ManualPartition, partitioning: Partitioning) -> _Taken:
    """Takes what is legal; nothing is propagated yet."""
    taken = _Taken([], [], {})
    for named, axis, asked in tactic.asked(partitioning):
        taken.value_of[named.name] = named.value
        if isinstance(asked, str):
            taken.fails.append(Failure(named.name, axis, asked))
            continue
        try:
            partitioning.apply(asked)
            taken.actions.append(asked)
        except TileError as error:
            taken.fails.append(Failure(named.name, axis, error.why or error.what))
    return taken


def _place_of(scheduled: Scheduled, values: Sequence[int]) -> int:
    """The first action of the plan from which what these values are now comes; 0 where that is not known."""
    partitioning, history = (
        scheduled.partitioning,
        DecisionHistory(scheduled.partitioning.program, scheduled.partitioning.mesh, scheduled.actions),
    )
    found: list[int] = []
    for value in values:
        for axis in partitioning.mesh.axis_names:
            cause, kept = history.tiled_by(value, axis), history.kept_by(value, axis)
            found += [number for number in (cause.action if cause else None, kept) if number is not None]
    return min(found, default=0)


def _replayed(partitioning: Partitioning, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Takes those of the actions that are legal; returns the others."""
    given_up: list[Action] = []
    for action in actions:
        try:
            partitioning.apply(action)
        except TileError:
            given_up.append(action)
    return tuple(given_up)


def _compared(
    scheduled: Scheduled,
    changed: Partitioning,
    after: DeviceLocal,
    asked: _Taken,
    before_action: str,
    given_up: Sequence[Action],
) -> WhatIf:
    before, name_of = scheduled.device_local, Keys(changed.program)
    now, then = scheduled.estimate, scheduled.price(after)
    known = {conflict.op for conflict in conflicts(scheduled.partitioning)}
    fresh = Counter(_conflict_text(conflict) for conflict in conflicts(changed) if conflict.op not in known)
    return WhatIf(
        actions=tuple(text_of(a, name_of) for a in asked.actions),
        before=before_action,
        step_s=(now.step_s, then.step_s) if now and then else None,
        peak_bytes=(now.peak_bytes, then.peak_bytes) if now and then else None,
        collectives=both_counts(before, after),
        layouts=changed_layouts(before, after),
        fails=tuple(asked.fails),
        conflicts=tuple(f"{n} x {text}" if n > 1 else text for text, n in fresh.items()),
        given_up=tuple(text_of(a, name_of) for a in given_up),
    )


def both_counts(before: DeviceLocal, after: DeviceLocal) -> dict[str, tuple[int, int]]:
    """Kind -> how many collectives there are, of the kinds that one of the programs has."""
    old, new = before.collectives(), after.collectives()
    return {kind: (old[kind], new[kind]) for kind in COLLECTIVES if old[kind] or new[kind]}


def _conflict_text(conflict: Conflict) -> str:
    ways = " or ".join(map(factor_text, conflict.candidates))
    where = f"  at {short_place(conflict.where)}" if conflict.where else ""
    return f'{conflict.kind} on "{conflict.axis}": {ways}{where}'


def changed_layouts(before: DeviceLocal, after: DeviceLocal) -> dict[str, tuple[Spec, Spec]]:
    """Of the arguments and outputs that both programs have, those that lie elsewhere, by full name."""
    old, new = _layouts(before), _layouts(after)
    return {name: (spec, new[name]) for name, spec in old.items() if new.get(name, spec) != spec}


def _layouts(local: DeviceLocal) -> dict[str, Spec]:
    program = local.program
    names = [*program.argument_names, *(f"outputs/{n}".rstrip("/") for n in program.output_names)]
    layouts = [*input_layouts(local), *output_layouts(local)]
    return {name: named_axes(local.mesh, layout) for name, layout in zip(names, layouts, strict=True)}
