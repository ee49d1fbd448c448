"""Runs a schedule: tactic by tactic, each on what the earlier ones left, with a report after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autopart.api.metadata import TacticReport, report_tactic
from autopart.api.tactics import Tactic, blamed
from autopart.core.errors import PartitionError
from autopart.core.mesh import Mesh
from autopart.core.partitioning import Partitioning
from autopart.core.program import Program
from autopart.spmd.device_local import DeviceLocal, LoweringOptions, Statics, lower


@dataclass(frozen=True)
class Scheduled:
    """The state after the last tactic, its device-local program, and the report of each tactic."""

    partitioning: Partitioning
    device_local: DeviceLocal
    reports: tuple[TacticReport, ...]


def run_schedule(
    program: Program, mesh: Mesh, schedule: Sequence[Tactic], options: LoweringOptions = LoweringOptions()
) -> Scheduled:
    """Applies each tactic in order. An empty schedule leaves everything replicated.

    Errors name the tactic that caused them and its place in the schedule.
    """
    partitioning = Partitioning(program, mesh)
    statics = Statics.of(program)
    lowered = lower(partitioning, options, statics)
    reports = []
    for position, tactic in enumerate(schedule, 1):
        if not isinstance(tactic, Tactic):
            raise TypeError(f"a schedule holds tactics such as ap.ManualPartition, not {tactic!r}")
        try:
            actions = tactic.act(partitioning)
        except PartitionError as error:
            raise blamed(error, tactic, position, len(schedule)) from None
        lowered = lower(partitioning, options, statics)
        reports.append(report_tactic(tactic.name, actions, partitioning, lowered, None, None, {}))
    return Scheduled(partitioning, lowered, tuple(reports))
