"""A collective during planning: the layout it leads to, and between which devices it moves data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout
from autopart.spmd.redistribution.types import device_strides


class PlannedStep(NamedTuple):
    """One collective to the layout `after`.

    parts    axes it reduces, for reduce_scatter and all_reduce
    view     for an all_to_all under another device map: the layout before it, rewritten under `devices`
    """

    kind: str
    after: PrimeLayout
    parts: frozenset[int] = frozenset()
    code: int = 0
    view: PrimeLayout | None = None
    devices: tuple[int, ...] | None = None


def taken(before: PrimeLayout, after: PrimeLayout) -> tuple[int, ...]:
    """Axes by which dims are shorter after than before."""
    return tuple(a for s, t in zip(before, after, strict=True) for a in s[len(t) :])


def group_size(axes: PrimeAxes, here: PrimeLayout, step: PlannedStep) -> int:
    """Devices of a group; 2 for an all_permute."""
    if step.kind in ("reduce_scatter", "all_reduce"):
        return math.prod([axes.sizes[a] for a in step.parts])
    if step.kind == "all_permute":
        return 2
    return math.prod([axes.sizes[a] for a in taken(step.view or here, step.after)])


def group_axes(
    axes: PrimeAxes, here: PrimeLayout, devices: tuple[int, ...] | None, step: PlannedStep
) -> frozenset[int]:
    """Axes along which the devices of a group differ, for a step from `here` under the device map `devices`."""
    if step.kind in ("reduce_scatter", "all_reduce"):
        return step.parts
    if step.kind == "all_slice":
        return frozenset(taken(step.after, here))
    if step.kind == "all_permute":
        if devices is not None:
            return frozenset(a for dim in (*here, *step.after) for a in dim)
        return _displaced(axes, here, step.after)
    parts = taken(step.view or here, step.after)
    return frozenset(parts) if step.devices is None else _physical(axes, parts, step.devices)


def _displaced(axes: PrimeAxes, before: PrimeLayout, after: PrimeLayout) -> frozenset[int]:
    """Axes that do not cut the same dim into the same tiles before and after."""

    def places(layout: PrimeLayout) -> dict[int, tuple[int, int]]:
        found = {}
        for dim, parts in enumerate(layout):
            outer = 1
            for a in parts:
                found[a] = (dim, outer)
                outer *= axes.sizes[a]
        return found

    one, other = places(before), places(after)
    return frozenset(a for a in (*one, *other) if one.get(a) != other.get(a))


def _physical(axes: PrimeAxes, parts: Sequence[int], devices: tuple[int, ...]) -> frozenset[int]:
    """Axes along which devices differ in groups along `parts` of a device map."""
    strides = device_strides(axes.mesh)
    weight = [strides[a.name] * a.stride for a in axes.axes]
    points, mapped = np.arange(len(devices)), np.array(devices)
    leader = points.copy()
    for a in parts:
        leader -= points // weight[a] % axes.sizes[a] * weight[a]
    first = mapped[leader]
    return frozenset(
        a for a, w in enumerate(weight) if np.any(mapped // w % axes.sizes[a] != first // w % axes.sizes[a])
    )
