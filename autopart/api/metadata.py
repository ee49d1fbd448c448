"""What a schedule did, tactic by tactic.

    tactic  actions  all_reduce  all_gather  reduce_scatter  all_to_all  all_permute  step_s  peak_bytes
    BP            2         290           0               0           0            0  ...
    MP          129         418           0               0           0            0  ...

Each row describes the program after its tactic, so a strategy shows what it adds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from autopart.api.schedule_code import schedule_code
from autopart.core.partitioning import Action, Atomic, Partitioning, Propagate, ShareGathers, Tile
from autopart.costmodel.estimate import Estimate
from autopart.spmd.device_local import COLLECTIVES, DeviceLocal


@dataclass(frozen=True)
class TacticReport:
    """The program after one tactic.

    actions              what the tactic did, as text ("tile<params/w, 0, batch>")
    collectives          kind -> count, an op in a loop counted by trip count
    collectives_by_axis  axes ("batch" or "batch,model") -> kind -> count
    conflicts            ops that several mappings would fit, as text
    unpartitioned        op kinds that blocked propagation -> source lines, or op numbers where the module has none
    step_s, peak_bytes   estimates for one device; None where the mesh names no device
    report               whatever an automatic tactic says about its search
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


@dataclass(frozen=True)
class Metadata:
    """One report per tactic, and where inputs and outputs live.

    in_specs, out_specs map full names ("params/w", "outputs/0") to the mesh axes of each dim.
    """

    mesh: Mapping[str, int]
    device: str | None
    tactics: tuple[TacticReport, ...]
    in_specs: Mapping[str, tuple[tuple[str, ...], ...]]
    out_specs: Mapping[str, tuple[tuple[str, ...], ...]]

    def __str__(self) -> str:
        header = ["tactic", "actions", *COLLECTIVES]
        timed = any(t.step_s is not None for t in self.tactics)
        rows = [
            [t.name, str(len(t.actions)), *(str(t.collectives[k]) for k in COLLECTIVES)]
            + ([_seconds(t.step_s), _bytes(t.peak_bytes)] if timed else [])
            for t in self.tactics
        ]
        header += ["step", "peak"] if timed else []
        widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
        lines = [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
            for r in [header, *rows]
        ]
        last = self.tactics[-1] if self.tactics else None
        if last and last.conflicts:
            lines.append(f"{len(last.conflicts)} conflicts, the first: {last.conflicts[0]}")
        if last and last.unpartitioned:
            kinds = ", ".join(f"{kind} ({len(where)})" for kind, where in last.unpartitioned.items())
            lines.append(f"ops that block propagation: {kinds}")
        return "\n".join(lines)

    def as_schedule(self) -> str:
        """Python code of the manual tactics that take the same actions, so that a found schedule can be kept and read.

        Values that have no name are called by their number, `"%123"`: those hold for this very program.
        """
        return schedule_code(self)

    def to_json(self) -> str:
        """Everything as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Metadata:
        """The metadata that `to_json` wrote."""
        data = json.loads(text)
        reports = [
            TacticReport(
                **{
                    **t,
                    "actions": tuple(t["actions"]),
                    "conflicts": tuple(t["conflicts"]),
                    "unpartitioned": {k: tuple(v) for k, v in t["unpartitioned"].items()},
                }
            )
            for t in data["tactics"]
        ]
        specs = {
            key: {name: tuple(map(tuple, dims)) for name, dims in data[key].items()}
            for key in ("in_specs", "out_specs")
        }
        return Metadata(**{**data, **specs, "tactics": tuple(reports)})


def report_tactic(
    name: str,
    actions: list[Action],
    partitioning: Partitioning,
    lowered: DeviceLocal,
    estimate: Estimate | None,
    report: Mapping[str, Any] = MappingProxyType({}),
) -> TacticReport:
    """The row of a tactic, from the state it left behind."""
    program, count = partitioning.program, lowered.collectives()
    blocked = {
        kind: tuple(program.where(op) or f"op {op}" for op in ops) for kind, ops in partitioning.unpartitioned().items()
    }
    return TacticReport(
        name=name,
        actions=tuple(describe(action, partitioning) for action in actions),
        collectives={kind: count[kind] for kind in COLLECTIVES},
        collectives_by_axis=lowered.collectives_by_axis(),
        conflicts=tuple(map(str, partitioning.conflicts())),
        unpartitioned=blocked,
        step_s=estimate.step_s if estimate else None,
        peak_bytes=estimate.peak_bytes if estimate else None,
        report=dict(report),
    )


def describe(action: Action, partitioning: Partitioning) -> str:
    """An action as the paper writes it, with the value's name."""
    match action:
        case Tile(value, dim, axis):
            return f"tile<{partitioning.program.value_name(value)}, {dim}, {axis}>"
        case Atomic(value, axis):
            return f"atomic<{partitioning.program.value_name(value)}, {axis}>"
        case Propagate(axis):
            return f"propagate<{axis}>"
        case ShareGathers(within):
            return f"share_gathers<{within}>"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _bytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e9:.3g} GB"
