"""Runs a schedule: tactic by tactic, each on what the earlier ones left, with a report after each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autopart.api.explained.metadata import TacticReport, report_tactic
from autopart.api.tactics.tactic import SCHEDULE, Tactic, TacticContext, run_tactics
from autopart.api.tracing.names import Keys
from autopart.base.arguments import check
from autopart.base.errors import BlockedError
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.estimate import CostModel, Estimate, estimate_of, priced_by
from autopart.costmodel.flop_shares import AxisUse, axis_uses, op_flop
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import DeviceLocal, LoweringContext, LoweringOptions

Pricing = Callable[[DeviceLocal], Estimate | None]
"""What a lowering of the program at hand costs; None where the mesh names no device and no cost model is given."""


@dataclass(frozen=True)
class Scheduled:
    """The state after the last tactic, its device-local program and estimate, each tactic's report, and all actions.

    `uses` says of each mesh axis what it is used for in the end, and which share of the flop it divides. `price` is
    what estimated it: it prices any other lowering of the program too, or says None where nothing does.
    """

    partitioning: Partitioning
    device_local: DeviceLocal
    reports: tuple[TacticReport, ...]
    estimate: Estimate | None
    uses: tuple[AxisUse, ...] = ()
    actions: tuple[Action, ...] = ()
    price: Pricing = field(default=lambda lowered: None, repr=False, compare=False)


def run_schedule(
    program: Program,
    mesh: Mesh,
    schedule: Sequence[Tactic],
    options: LoweringOptions = LoweringOptions(),
    cost_model: CostModel | None = None,
    strict: bool = False,
) -> Scheduled:
    """Applies each tactic in order. An empty schedule leaves everything replicated.

    After each tactic the program is lowered and, where the mesh names a device or a cost model is given, priced. Errors
    name the tactic that caused them and its place in the schedule. `strict` raises `BlockedError` where a tactic leaves
    a conflict, or an op that blocks propagation, and where the whole schedule leaves an axis that tiles arguments but
    divides (almost) no flop of the program.
    """
    check("schedule", schedule=(schedule, SCHEDULE))
    partitioning = Partitioning(program, mesh)
    statics = LoweringContext.of(program)
    price, flop, keys = _pricing(program, mesh, cost_model), op_flop(program), Keys(program)

    def outcome() -> tuple[DeviceLocal, Estimate | None, tuple[AxisUse, ...]]:
        lowered = lower_for_device(partitioning, options, statics)
        return lowered, price(lowered), axis_uses(flop, partitioning, lowered)

    reports: list[TacticReport] = []
    taken: list[Action] = []
    used_by: dict[str, tuple[Tactic, TacticContext]] = {}
    left = None
    for tactic, context, did in run_tactics(partitioning, schedule, TacticContext(options, cost_model)):
        taken += did.actions
        left = lowered, estimate, uses = outcome()
        used_by = {use.axis: (tactic, context) for use in uses if use.users} | used_by
        reports.append(report_tactic(tactic.name, did, partitioning, lowered, estimate, uses, keys))
        if strict:
            _check_unblocked(reports[-1], tactic, context)
    lowered, estimate, uses = left or outcome()
    if strict:
        _check_busy(uses, used_by)
    return Scheduled(partitioning, lowered, tuple(reports), estimate, uses, tuple(taken), price)


def _check_busy(uses: tuple[AxisUse, ...], used_by: Mapping[str, tuple[Tactic, TacticContext]]) -> None:
    """Raises where an axis is used and divides nothing; asked at the end, since a later tactic may put it to use."""
    idle = [use for use in uses if use.is_idle]
    if idle:
        tactic, context = used_by[idle[0].axis]
        raise context.blamed(
            BlockedError(
                f"strict mode: {len(idle)} mesh {'axes divide' if len(idle) > 1 else 'axis divides'} next to no work",
                why="\n       ".join(map(str, idle)),
                hint="tile a dim that the ops compute over, not one that a loop walks along: for k microbatches, "
                "x.reshape(-1, k, d).swapaxes(0, 1) and not x.reshape(k, -1, d)",
            ),
            tactic,
        )


def replayed(program: Program, scheduled: Scheduled, actions: Sequence[Action]) -> Scheduled:
    """The same schedule on another program: `actions` name that program's values; reports and estimate stay."""
    partitioning = Partitioning(program, scheduled.partitioning.mesh)
    partitioning.apply_all(actions)
    local = lower_for_device(partitioning, scheduled.device_local.options)
    return dataclasses.replace(scheduled, partitioning=partitioning, device_local=local, actions=tuple(actions))


def _check_unblocked(report: TacticReport, tactic: Tactic, context: TacticContext) -> None:
    lines = [f"conflict: {conflict}" for conflict in report.conflicts]
    lines += [f"{kind} blocks propagation: {where[0]}" for kind, where in report.unpartitioned.items()]
    if lines:
        raise context.blamed(
            BlockedError(
                f"strict mode: {len(lines)} places where propagation stops",
                why="\n       ".join(lines[:8]),
                hint="order the tactics, tag a value and decide about it, or register a rule for the op",
            ),
            tactic,
        )


def _pricing(program: Program, mesh: Mesh, cost_model: CostModel | None) -> Pricing:
    if cost_model is not None:
        return lambda lowered: priced_by(cost_model, lowered, mesh)
    if mesh.device is None:
        return lambda lowered: None
    simulator = Simulator.of(program, mesh)
    return lambda lowered: estimate_of(simulator, lowered)
