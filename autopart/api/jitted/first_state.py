"""The layouts that donated state has in programs of several shapes, one beside the other.

step = ap.jit(train_step, mesh, [auto], donate_argnums=0)
state = step(state, batch_8)          params/w whole
state = step(state, batch_4096)       params/w [data]       moved at every change of shapes: a LayoutWarning
ap.jit(..., state="as first")         the second program takes the plan of the first, where its axes divide it
"""

from __future__ import annotations

from collections.abc import Iterator

from autopart.api.jitted.lowered import Lowered
from autopart.api.plan.plan_check import Spec, spec_text
from autopart.base.errors import PartitionWarning
from autopart.base.units import bytes_text
from autopart.base.user_line import warn
from autopart.core.op import TensorType
from autopart.spmd.run import input_layouts, named_axes


class LayoutWarning(PartitionWarning):
    """State lies otherwise in the program of one shape than in that of another, so that calls in turn move it."""


def warn_of_moves(function: str, first: Lowered, now: Lowered) -> None:
    """Warns of state of the first program that lies otherwise in this one."""
    known = {name: (type_, spec) for name, type_, spec in _tied(first)}
    moved: list[tuple[float, str]] = []
    for name, type_, spec in _tied(now):
        before = known.get(name, (None, spec))
        if before[0] == type_ and before[1] != spec:
            moved.append((type_.bytes, f"{name} is {spec_text(spec)} here, and {spec_text(before[1])}"))
    if moved:
        total, (_, example) = bytes_text(sum(size for size, _ in moved)), max(moved)
        arrays = "an array lies" if len(moved) == 1 else f"{len(moved)} arrays lie"
        warn(
            f"{function}: a call with these shapes moves {total} of state that calls with others leave elsewhere"
            f"\n  why  {arrays} otherwise: {example} in the first program"
            '\n  try  state="as first", which plans these shapes as the first ones',
            LayoutWarning,
        )


def _tied(lowered: Lowered) -> Iterator[tuple[str, TensorType, Spec]]:
    """(name, type, layout) of the arguments that the program updates."""
    program, layouts = lowered.traced.program, input_layouts(lowered.program)
    for place in sorted(set(program.ties.values())):
        type_ = program.type_of(program.arguments[place])
        yield program.argument_names[place], type_, named_axes(lowered.mesh, layouts[place])
