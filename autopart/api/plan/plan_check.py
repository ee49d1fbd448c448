"""Is this the mesh that a plan was made for, and did everything come to lie where the plan says?

    PlanError: the plan leads elsewhere in this program: 1 array would lie otherwise than it says
      why  params/w2 would be whole, was [ - | model]

A program may differ where the plan decides nothing: in an input that is new, or that the plan leaves whole
(`other_program.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autopart.api.plan.other_program import OtherProgram, listed
from autopart.api.tracing.names import OUTPUTS
from autopart.base.errors import CONTINUED, PlanError
from autopart.core.mesh import Mesh
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import LoweringOptions
from autopart.spmd.run import input_layouts, named_axes, output_layouts

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan

Spec = tuple[tuple[str, ...], ...]
"""Names of the axes that tile each dim, outermost first, up to the last dim that is tiled."""


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


def check_layouts(plan: Plan, other: OtherProgram, partitioning: Partitioning, options: LoweringOptions) -> None:
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
    outputs = {
        o.partition("/")[2]: n.partition("/")[2] for o, n in other.renamed.items() if o.startswith(f"{OUTPUTS}/")
    }
    lines: list[str] = []
    for what, planned, names, layouts in sides:
        here = dict(zip(names, layouts, strict=True))
        for array in planned:
            name = (outputs if what else other.renamed).get(array.name, array.name)
            if name not in here:
                continue
            was, now = _along(array.spec, axes), _along(named_axes(mesh, here[name]), axes)
            if was != now:
                lines.append(f"{what}{name} would be {spec_text(now)}, was {spec_text(was)}")
    if lines:
        raise PlanError(
            f"the plan leads elsewhere in this program: {len(lines)} arrays would lie otherwise than it says",
            why=listed(lines),
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
