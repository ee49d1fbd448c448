"""The plan of a lowered program: what its tactics did, in a canonical order, under names that last."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence

from autopart.api.plan.canonical_actions import canonical_actions
from autopart.api.plan.code_lines import code_lines
from autopart.api.plan.dim_roles import dim_roles
from autopart.api.plan.plan import Plan, PlanArray, PlanStep
from autopart.api.plan.plan_check import options_of
from autopart.api.plan.rewrites import REWRITES, rewriting_tactic
from autopart.api.plan.value_keys import ValueKeys
from autopart.api.tactics.schedule import Scheduled
from autopart.core.program import Program
from autopart.core.table.actions import Action, row_of
from autopart.spmd.device_local import COLLECTIVES
from autopart.spmd.run import input_layouts, named_axes, output_layouts


def plan_of(scheduled: Scheduled) -> Plan:
    """The plan of what a schedule did. Raises `PlanError` where a tactic cannot be written as data."""
    local, mesh = scheduled.device_local, scheduled.device_local.mesh
    program, estimate, count = local.program, scheduled.estimate, local.collectives()
    parts = list(_parts(scheduled))
    inputs = zip(program.argument_names, program.arguments, input_layouts(local), strict=True)
    outputs = zip(program.output_names, program.outputs, output_layouts(local), strict=True)

    roles = dim_roles(scheduled.partitioning)

    def array(name: str, value: int, layout: int, dims: tuple[str, ...] = ()) -> PlanArray:
        return PlanArray(name, str(program.type_of(value)), named_axes(mesh, layout), dims)

    return Plan(
        axes=tuple(mesh.shape.items()),
        device=mesh.device,
        links=mesh.links,
        program=program.fingerprint,
        options=options_of(local.options),
        steps=tuple(_steps(program, scheduled, canonical_actions(program, mesh, local.options, parts))),
        inputs=tuple(array(name, value, layout, roles[value]) for name, value, layout in inputs),
        outputs=tuple(array(*each) for each in outputs),
        collectives={kind: count[kind] for kind in COLLECTIVES},
        step_s=float(estimate.step_s) if estimate else None,
        peak_bytes=float(estimate.peak_bytes) if estimate else None,
        made_by=_version(),
        lines=code_lines(local),
    )


def _version() -> str:
    try:
        return importlib.metadata.version("autopart")
    except importlib.metadata.PackageNotFoundError:
        return "autopart, not installed"


def _parts(scheduled: Scheduled) -> Iterator[Sequence[Action]]:
    """The actions of each tactic."""
    left = iter(scheduled.actions)
    for report in scheduled.reports:
        yield [next(left) for _ in report.actions]


def _steps(program: Program, scheduled: Scheduled, parts: Sequence[Sequence[Action]]) -> Iterator[PlanStep]:
    """A step for each tactic that did anything."""
    keys = ValueKeys(program)
    for report, actions in zip(scheduled.reports, parts, strict=True):
        rows = tuple(tuple(row_of(action, lambda v: tuple(keys.key_of(v)))) for action in actions)
        for kind in (kind for kind in REWRITES if kind in report.report):
            rewriting_tactic(kind, report.report[kind], report.name)
            yield PlanStep(report.name, (), (kind, dict(report.report[kind])))
        if rows:
            yield PlanStep(report.name, rows)
