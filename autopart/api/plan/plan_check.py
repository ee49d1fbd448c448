"""Is this the mesh, and the program, that a plan was made for, and did everything come to lie where the plan says?

    PlanError: the plan is of another program: 1 of its 12 inputs is not there, 1 has another type
      why  params/w2 is missing
           x is f32[16,8], was f32[32,8]

A program may differ where the plan decides nothing: in an input that is new, or that the plan leaves whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autopart.core.errors import CONTINUED, PlanError
from autopart.core.mesh import Mesh
from autopart.core.partitioning import Partitioning
from autopart.core.program import Program
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import LoweringOptions
from autopart.spmd.run import input_layouts, named_axes, output_layouts

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan, PlanArray

Spec = tuple[tuple[str, ...], ...]
"""Names of the axes that tile each dim, outermost first, up to the last dim that is tiled."""

LISTED = 8
"""Differences that an error lists."""


def check_options(plan: Plan, options: LoweringOptions) -> None:
    """Raises `PlanError` where the program is lowered in another way than the plan was."""
    if options_of(options) != dict(plan.options):
        raise PlanError(
            "the plan was made with other options",
            why=f"{dict(plan.options)}, and not {options_of(options)}",
            hint="options=plan.lowering_options()",
        )


def options_of(options: LoweringOptions) -> dict[str, Any]:
    """The settings as plain data; an object that prices redistributions as its `repr`."""
    plain = dict(vars(options))
    cost = plain["redistribution_cost"]
    plain["redistribution_cost"] = cost if isinstance(cost, str) else repr(cost)
    return plain


def check_mesh(plan: Plan, mesh: Mesh) -> None:
    """Raises `PlanError` unless the mesh has the plan's axes. Devices may differ: they cost, and do not lay out."""
    if plan.axes != tuple(mesh.shape.items()):
        wanted = ", ".join(f"{name}={size}" for name, size in plan.axes)
        raise PlanError(
            f"the plan is of another mesh: {wanted}, and this one is {mesh}",
            why=CONTINUED.join(_mesh_differences(dict(plan.axes), mesh.shape)),
            hint=f"ap.Mesh({dict(plan.axes)}), or plan for this mesh",
        )


def _mesh_differences(planned: dict[str, int], here: dict[str, int]) -> Iterator[str]:
    for name, size in planned.items():
        if name not in here:
            yield f'axis "{name}" is missing'
        elif here[name] != size:
            yield f'axis "{name}" has size {here[name]}, was {size}'
    yield from (f'axis "{name}" is new' for name in here if name not in planned)
    if list(planned) != list(here) and planned == here:
        yield f"the axes stand in another order: {', '.join(here)}, was {', '.join(planned)}"


def check_program(plan: Plan, program: Program) -> None:
    """Raises `PlanError` where an input that the plan decides about is missing or has another type."""
    if plan.program == program.fingerprint:
        return
    here: dict[str, list[str]] = {}
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        here.setdefault(name, []).append(str(program.type_of(value)))
    decided = _decided(plan)
    missing = [a.name for a in decided if a.name not in here]
    other = [(a, here[a.name][0]) for a in decided if a.name in here and a.type not in here[a.name]]
    if missing or other:
        lines = [f"{name} is missing" for name in missing] + [f"{a.name} is {now}, was {a.type}" for a, now in other]
        counts = [f"{len(missing)} of its {len(plan.inputs)} inputs missing"] if missing else []
        counts += [f"{len(other)} of another type"] if other else []
        raise PlanError(
            f"the plan is of another program: {', '.join(counts)}",
            why=_listed(lines),
            hint="the program it was made for, or plan this one",
        )


def _decided(plan: Plan) -> list[PlanArray]:
    """Inputs that are tiled in the end, or named by an action."""
    keys: list[Any] = [part for step in plan.steps for row in step.actions for part in row[1:2]]
    named = {key[1] for key in keys if isinstance(key, (list, tuple)) and len(key) > 1 and key[0] == "argument"}
    return [a for a in plan.inputs if a.spec or a.name in named]


def check_layouts(plan: Plan, partitioning: Partitioning, options: LoweringOptions) -> None:
    """Raises `PlanError` where an input or output that the plan knows has come to lie elsewhere than it says.

    Only axes that the plan acts along are compared: tactics beside it may tile along others.
    """
    axes = {part for step in plan.steps for row in step.actions for part in row[1:] if isinstance(part, str)}
    local = lower_for_device(partitioning, options)
    program, mesh = partitioning.program, partitioning.mesh
    sides = [
        ("", plan.inputs, program.argument_names, input_layouts(local)),
        ("output ", plan.outputs, program.output_names, output_layouts(local)),
    ]
    lines: list[str] = []
    for what, planned, names, layouts in sides:
        here = dict(zip(names, layouts, strict=True))
        for array in planned:
            if array.name not in here:
                continue
            was, now = _along(array.spec, axes), _along(named_axes(mesh, here[array.name]), axes)
            if was != now:
                lines.append(f"{what}{array.name} would be {spec_text(now)}, was {spec_text(was)}")
    if lines:
        raise PlanError(
            f"the plan leads elsewhere in this program: {len(lines)} arrays would lie otherwise than it says",
            why=_listed(lines),
            hint="the program was edited where the plan reaches, or autopart has changed: plan it anew",
        )


def _along(spec: Spec, axes: set[str]) -> Spec:
    """What the axes tile of an array."""
    dims = [tuple(axis for axis in dim if axis in axes) for dim in spec]
    while dims and not dims[-1]:
        dims.pop()
    return tuple(dims)


def spec_text(spec: Spec) -> str:
    """A layout as readers see it: [data,fsdp | - | model], or "whole"."""
    return "[" + " | ".join(",".join(dim) or "-" for dim in spec) + "]" if spec else "whole"


def _listed(lines: list[str]) -> str:
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return CONTINUED.join([*lines[:LISTED], *more])
