"""What a schedule did, tactic by tactic.

    tactic  actions  all_reduce  all_gather  reduce_scatter  all_to_all  all_permute  step_s  peak_bytes
    BP            2         290           0               0           0            0  ...
    MP          129         418           0               0           0            0  ...
    flop divided: batch 99 %, model 97 %

Each row describes the program after its tactic, so a strategy shows what it adds. Below the table stands what did not
go as one may think: axes that divide little, ops that read whole what is held in tiles, conflicts, ops without a rule.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autopart.api.as_code.schedule_code import schedule_code
from autopart.api.explained.left_whole import Replicated
from autopart.api.explained.priced_conflict import PricedConflict, Resolution
from autopart.api.tactics.tactic import TacticResult
from autopart.api.tracing.names import Keys, dead_tags
from autopart.base.errors import ArgumentError
from autopart.base.html import lines_html, table_html
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, columns, seconds_text, wrapped
from autopart.core.passes.padding.twins import twin_of
from autopart.core.program import Program
from autopart.core.table.actions import Action, Tile, row_of, text_of
from autopart.core.table.conflicts import conflicts, unpartitioned
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.flop_shares import AxisUse, divided, percent
from autopart.search.comparison import baseline_lines
from autopart.spmd.device_local import COLLECTIVES, DeviceLocal
from autopart.spmd.lowering.gathered import Gathered

if TYPE_CHECKING:
    from autopart.api.as_code.shortest_schedule import Shortest

BASELINE_LINES = 5
"""Lines that a printed table spends on named schedules; the tactic's report has all of them."""

MOSTLY_SHARE = 0.9
"""Where an axis divides less, it is said which constraints in the model may be why."""

CONFLICTS_SHOWN = 3
"""Conflicts that a printed table shows with their ways out; `Metadata.conflicts` has all of them."""

REPLICATED_LINES = 4
"""Lines that a printed table spends on what is replicated; `Metadata.replicated` has all of it."""

LEAST_SHARE = 1e-3
"""Share of a step's memory below which nothing is said of what is replicated."""

GATHERED_LINES = 8
"""Lines that a printed table spends on gathers; `Metadata.gathered` has all of them."""


@dataclass(frozen=True)
class TacticReport:
    """The program after one tactic.

    actions              what the tactic did, as text ("tile<params/w, 0, batch>")
    collectives          kind -> count of what is emitted, an op in a loop counted by trip count; XLA may make one of
                         several, and a reduce_scatter of an all_reduce that is sliced, or the reverse
    collectives_by_axis  axes ("batch" or "batch,model") -> kind -> count
    conflicts            ops that several mappings would fit, as text
    unpartitioned        op kinds that blocked propagation -> source lines, or op numbers where the module has none
    step_s, peak_bytes   estimates for one device; None where the mesh names no device
    report               whatever an automatic tactic says about its search
    flop_divided         mesh axis -> share of the program's flop (0 to 1) in ops that have a loop over the axis; empty
                         for a program without flop
    notes                axes that are used but divide less than half the flop, tags of values that nothing uses
    decisions            the actions as data: ("tile", key, dim, axis), ("atomic", key, axis), ("propagate", axis),
                         ("share_gathers", within);
                         `key` names the value, and no other, in a tactic
    """

    name: str
    actions: tuple[str, ...]
    collectives: Mapping[str, int]
    collectives_by_axis: Mapping[str, Mapping[str, int]]
    conflicts: tuple[str, ...]
    unpartitioned: Mapping[str, tuple[str, ...]]
    step_s: float | None = None
    peak_bytes: float | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    flop_divided: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decisions: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True)
class Metadata:
    """One report per tactic, and where inputs and outputs live.

    in_specs, out_specs map full names ("params/w", "outputs/0") to the mesh axes of each dim. `flop_divided` is the
    share of the flop that each axis divides in the end. `gathered` lists the ops that an axis does not divide although
    what they read is tiled along it, with the reason; gathers that a tactic asked for are not among them.
    `conflicts` are those that the schedule left, with what each way out would cost, where finding that out takes about
    a second in all (`Lowered.conflicts` prices every way). `replicated` has the arguments that no axis tiles, and why.
    `remarks` says what else could be better: state that is not donated, a pass that changes nothing, memory kinds.
    """

    mesh: Mapping[str, int]
    device: str | None
    tactics: tuple[TacticReport, ...]
    in_specs: Mapping[str, tuple[tuple[str, ...], ...]]
    out_specs: Mapping[str, tuple[tuple[str, ...], ...]]
    flop_divided: Mapping[str, float] = field(default_factory=dict)
    gathered: tuple[Gathered, ...] = ()
    conflicts: tuple[PricedConflict, ...] = ()
    replicated: tuple[Replicated, ...] = ()
    remarks: tuple[str, ...] = ()
    shortest: Shortest | None = field(default=None, repr=False, compare=False)
    """Finds the shortest decisions of each tactic; None where the program is no longer at hand."""

    def __str__(self) -> str:
        header = ["tactic", "actions", *COLLECTIVES]
        timed = any(t.step_s is not None for t in self.tactics)
        rows = [
            [one_line(t.name), str(len(t.actions)), *(str(t.collectives[k]) for k in COLLECTIVES)]
            + ([_seconds(t.step_s), _bytes(t.peak_bytes)] if timed else [])
            for t in self.tactics
        ]
        header += ["step", "peak"] if timed else []
        lines = columns([header, *rows])
        last = self.tactics[-1] if self.tactics else None
        if last:
            shares = ", ".join(f"{axis} {percent(share)}" for axis, share in self.flop_divided.items())
            lines += [f"flop divided: {shares or 'the program has none'}", *last.notes]
            lines += [line for tactic in self.tactics for line in _constraint_lines(tactic, self.flop_divided)]
        lines += [line for tactic in self.tactics for line in _referee_lines(tactic)]
        lines += [line for t in self.tactics for line in _compared_lines(t)]
        lines += _gathered_lines(self.gathered)
        if last and last.conflicts:
            lines.append(f"{len(last.conflicts)} conflicts:")
            shown = [line for conflict in self.conflicts[:CONFLICTS_SHOWN] for line in conflict.lines()]
            lines += [f"  {line}" for line in shown or map(one_line, last.conflicts[:CONFLICTS_SHOWN])]
        if last and last.unpartitioned:
            kinds = ", ".join(f"{kind} ({len(where)})" for kind, where in last.unpartitioned.items())
            lines.append(f"ops that block propagation: {kinds}")
        lines += [line for remark in self.remarks for line in wrapped(one_line(remark))]
        lines += _replicated_lines(self.replicated, last.peak_bytes if last else None)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: the tactics as a table, and below it what the text says too."""
        header = ["tactic", "actions", *COLLECTIVES, "step", "peak"]
        rows = [
            [t.name, len(t.actions), *(t.collectives[k] for k in COLLECTIVES), _seconds(t.step_s), _bytes(t.peak_bytes)]
            for t in self.tactics
        ]
        return table_html(header, rows) + lines_html(str(self).splitlines()[1 + len(self.tactics) :])

    def as_schedule(self) -> str:
        """Python code of manual tactics that lay everything out alike, so that a found schedule can be kept and read.

        As short as is found in a few seconds, and checked, where it comes from a lowered program; else of the actions
        as they are. Values without a path or a tag are named by scope, op and line; without those by their number,
        `"%123"`, which holds for this very program.
        """
        return schedule_code(self)

    def to_json(self) -> str:
        """Everything as JSON."""
        plain = dataclasses.asdict(dataclasses.replace(self, shortest=None))
        del plain["shortest"]
        return json.dumps(plain, indent=1)

    @staticmethod
    def from_json(text: str) -> Metadata:
        """The metadata that `to_json` wrote."""
        try:
            return Metadata._read(json.loads(text))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ArgumentError("this is not what Metadata.to_json writes", why=repr(error)[:200]) from None

    @staticmethod
    def _read(data: dict[str, Any]) -> Metadata:
        reports = [_read_report(row) for row in data["tactics"]]
        read: dict[str, Any] = {
            key: {name: tuple(map(tuple, dims)) for name, dims in data[key].items()}
            for key in ("in_specs", "out_specs")
        }
        read["tactics"] = tuple(reports)
        read["gathered"] = tuple(Gathered(**row) for row in data["gathered"])
        read["conflicts"] = tuple(map(_read_conflict, data.get("conflicts", ())))
        read["replicated"] = tuple(map(_read_replicated, data.get("replicated", ())))
        read["remarks"] = tuple(data.get("remarks", ()))
        return Metadata(**{**data, **read})


def _read_report(row: dict[str, Any]) -> TacticReport:
    read: dict[str, Any] = {
        "actions": tuple(row["actions"]),
        "conflicts": tuple(row["conflicts"]),
        "unpartitioned": {kind: tuple(where) for kind, where in row["unpartitioned"].items()},
        "notes": tuple(row["notes"]),
        "decisions": tuple(map(tuple, row.get("decisions", ()))),
    }
    return TacticReport(**{**row, **read})


def _read_conflict(row: dict[str, Any]) -> PricedConflict:
    read: dict[str, Any] = {"ways": tuple(Resolution(**way) for way in row["ways"])}
    return PricedConflict(**{**row, **read})


def _read_replicated(row: dict[str, Any]) -> Replicated:
    read: dict[str, Any] = {"names": tuple(row["names"])}
    return Replicated(**{**row, **read})


def report_tactic(
    name: str,
    did: TacticResult,
    partitioning: Partitioning,
    lowered: DeviceLocal,
    estimate: Estimate | None,
    uses: tuple[AxisUse, ...],
    keys: Keys,
) -> TacticReport:
    """The row of a tactic, from the state it left behind; `keys` says what a tactic calls a value."""
    program, count = partitioning.program, lowered.collectives()
    blocked = {
        kind: tuple(program.where(op) or f"op {op}" for op in ops) for kind, ops in unpartitioned(partitioning).items()
    }
    return TacticReport(
        name=name,
        actions=tuple(text_of(action, keys) for action in did.actions),
        collectives={kind: count[kind] for kind in COLLECTIVES},
        collectives_by_axis=lowered.collectives_by_axis(),
        conflicts=tuple(map(str, conflicts(partitioning))),
        unpartitioned=blocked,
        step_s=estimate.step_s if estimate else None,
        peak_bytes=estimate.peak_bytes if estimate else None,
        report=dict(did.report),
        flop_divided=divided(uses),
        notes=(
            *(str(use) for use in uses if use.is_partial),
            *map(_dead_tag, dead_tags(program)),
            *_left_whole(did.report.get("left_whole", ())),
        ),
        decisions=tuple(tuple(row_of(action, _key_of(action, partitioning.program, keys))) for action in did.actions),
    )


def _key_of(action: Action, program: Program, keys: Keys) -> Callable[[int], str]:
    """How a value is written: by name, or by number where the name may stand for its longer twin."""
    is_short = isinstance(action, Tile) and twin_of(program, action.value, action.dim) is not None
    return lambda value: f"%{value}" if is_short else keys(value)


def _dead_tag(tag: str) -> str:
    return f'tag "{tag}": nothing uses the values that carry it, so they are no part of the program'


def _left_whole(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """What was to be tiled on a dim that the axis divides and has none, by axis and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row["axis"], row["why"]), []).append(row["name"])
    return [
        f'left whole on "{axis}": {names[0]}' + (f" and {len(names) - 1} more" if len(names) > 1 else "") + f": {why}"
        for (axis, why), names in groups.items()
    ]


def _compared_lines(tactic: TacticReport) -> list[str]:
    """What a search found beside the named schedules, and what would come next."""
    baselines = tactic.report.get("baselines", ())
    if not baselines or "best" not in tactic.report:
        return []
    name, best = f"{one_line(tactic.name)} found", tactic.report["best"]
    lines = [f"{one_line(tactic.name)}, beside named schedules:"]
    lines += [f"  {line}" for line in baseline_lines(baselines, BASELINE_LINES, (name, best))]
    return lines + [f"  {one_line(remark)}" for remark in tactic.report.get("remarks", ())]


def _gathered_lines(rows: tuple[Gathered, ...]) -> list[str]:
    """Gathers by source line, kind, axis and reason, the most bytes first."""
    groups: dict[tuple[str, ...], list[Gathered]] = {}
    for row in rows:
        groups.setdefault((row.where.split(" ")[0], row.kind, row.axis, row.reason), []).append(row)
    ranked = sorted(groups.items(), key=lambda group: -sum(row.bytes for row in group[1]))
    many = "op reads" if len(rows) == 1 else "ops read"
    lines = [f"gathered because {len(rows)} {many} whole what is tiled:"] if rows else []
    for (where, kind, axis, reason), members in ranked[:GATHERED_LINES]:
        cost = bytes_text(sum(row.bytes for row in members))
        if members[0].seconds is not None:
            cost += f", {_seconds(sum(row.seconds or 0.0 for row in members))}"
        count = f"{len(members)} x " if len(members) > 1 else ""
        lines.append(f'  {count}{kind} on "{axis}", {cost}: {reason}' + (f"  at {where}" if where else ""))
    left = ranked[GATHERED_LINES:]
    return lines + ([f"  and {sum(len(members) for _, members in left)} more ops"] if left else [])


def _constraint_lines(tactic: TacticReport, flop_divided: Mapping[str, float]) -> list[str]:
    """The axes that divide little while constraints in the model keep values whole on them."""
    return [
        f'{axis}: constraints in the model keep {one_line(what)}; constraints="ignore" leaves them out'
        for axis, what in tactic.report.get("kept_whole", {}).items()
        if flop_divided.get(axis, 1.0) < MOSTLY_SHARE
    ]


def _referee_lines(tactic: TacticReport) -> list[str]:
    """What the referee of a search made of its finalists: its seconds beside the search's own."""
    verdict = tactic.report.get("referee")
    if not verdict:
        return []
    costed = [f for f in verdict["finalists"] if f["referee"]]
    count = f"{len(costed)} of {len(verdict['finalists'])} finalists"
    lines = [f"{one_line(tactic.name)}: {count} costed by {verdict['referee']}"]
    for finalist in costed:
        name = finalist["labels"][0]
        estimate, found = (_seconds(finalist[by]["step_s"]) for by in ("estimate", "referee"))
        lines.append(
            f"  {one_line(name)}  estimated {estimate}, {found}" + ("  taken" if name == verdict["chosen"] else "")
        )
    return lines


def _replicated_lines(rows: tuple[Replicated, ...], peak_bytes: float | None) -> list[str]:
    """What every device holds whole, and why, the most bytes first; nothing that is next to nothing of the memory."""
    least = LEAST_SHARE * (peak_bytes or max((row.bytes for row in rows), default=0.0))
    large = [row for row in rows if row.bytes >= least]
    lines: list[str] = []
    for row in large[:REPLICATED_LINES]:
        fix = f"      try  {one_line(row.fix)}"
        lines += wrapped(f"  {row}") + ([fix] if row.fix and fix not in lines else [])
    left = len(large) - REPLICATED_LINES
    lines += [f"  and {left} more reasons"] if left > 0 else []
    return ["left replicated:", *lines] if large else []


def _seconds(value: float | None) -> str:
    return "-" if value is None else seconds_text(value)


def _bytes(value: float | None) -> str:
    return "-" if value is None else bytes_text(value)
