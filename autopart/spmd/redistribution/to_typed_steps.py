"""From planned steps, which lead from layout to layout, to typed steps, which lead from type to type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from autopart.spmd.redistribution.planned_steps import PlannedStep, group_axes
from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout
from autopart.spmd.redistribution.step import Step, spanned_axes
from autopart.spmd.redistribution.types import DistributedType, SubAxis, merged

Pending = tuple[tuple[SubAxis, int], ...]
Side = list[tuple[int, tuple[int, ...]]]
Change = tuple[tuple[int, tuple[SubAxis, ...]], ...]
"""(dim, axes minor to major) of each dim that a collective changes."""


def typed_steps(
    over: PrimeAxes, source: DistributedType, target: DistributedType, steps: Sequence[PlannedStep]
) -> Iterator[Step]:
    """The steps that were planned from source to target `over` parts of axes, as typed steps."""
    here, layout, pending = source, over.layout(source), source.pending
    for number, step in enumerate(steps):
        if step.parts:
            pending = _still(over, pending, step.parts)
        after = target if number + 1 == len(steps) else _type(source, over, step.after, pending, step.devices)
        seen = layout if step.view is None else step.view
        view = here if step.devices in (None, here.devices) else _type(source, over, seen, here.pending, step.devices)
        gathered, sliced = ((), ()) if step.kind in ("all_permute", "all_reduce") else _changes(over, seen, step.after)
        parts = group_axes(over, layout, here.devices, step)
        axes = spanned_axes(tuple(over.axes[a] for a in parts), over.mesh)
        yield Step(step.kind, here, after, view, gathered, sliced, axes, step.code, _on_several_dims(gathered, sliced))
        here, layout = after, step.after


def _on_several_dims(gathered: Change, sliced: Change) -> bool:
    """Whether no collective does it along one dim: several dims change, or axes come in another order than they go."""
    turned = gathered and sliced and gathered[0][1] != sliced[0][1]
    return len(gathered) > 1 or len(sliced) > 1 or bool(turned)


def _type(
    source: DistributedType, over: PrimeAxes, layout: PrimeLayout, pending: Pending, devices: tuple[int, ...] | None
) -> DistributedType:
    axes = tuple(over.minor_first(parts) for parts in layout)
    return DistributedType(source.shape, axes, over.mesh, pending, devices)


def _still(axes: PrimeAxes, pending: Pending, done: frozenset[int]) -> Pending:
    """`pending` without the axes that are done."""
    left = []
    for axis, code in pending:
        rest = [a for a in reversed(axes.parts(axis)) if a not in done]
        left += [(part, code) for part in merged([axes.axes[a] for a in rest])]
    return tuple(left)


def _changes(axes: PrimeAxes, before: PrimeLayout, after: PrimeLayout) -> tuple[Change, Change]:
    """(dim, axes minor to major) taken away and added, both cut into the same pieces."""
    taken = [(d, s[len(t) :]) for d, (s, t) in enumerate(zip(before, after, strict=True)) if len(s) > len(t)]
    added = [(d, t[len(s) :]) for d, (s, t) in enumerate(zip(before, after, strict=True)) if len(t) > len(s)]
    joined = set.intersection(*(_neighbours(axes, side) for side in (taken, added) if side))
    gone, come = (tuple((d, _pieces(axes, parts, joined)) for d, parts in side) for side in (taken, added))
    return gone, come


def _neighbours(axes: PrimeAxes, side: Side) -> set[tuple[int, int]]:
    """Pairs (major, minor) of neighbouring parts of one mesh axis that stand next to each other."""
    pairs = {pair for _, parts in side for pair in itertools.pairwise(parts)}
    return {(a, b) for a, b in pairs if len(merged((axes.axes[b], axes.axes[a]))) == 1}


def _pieces(axes: PrimeAxes, parts: tuple[int, ...], joined: set[tuple[int, int]]) -> tuple[SubAxis, ...]:
    pieces: list[SubAxis] = []
    for k, a in enumerate(parts):
        axis = axes.axes[a]
        if k and (parts[k - 1], a) in joined:
            major = pieces.pop()
            axis = SubAxis(axis.name, major.size * axis.size, axis.stride)
        pieces.append(axis)
    return tuple(reversed(pieces))
