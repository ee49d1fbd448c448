"""A simple correct sequence of collectives between two layouts: reduce, exchange, gather, slice."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DistributedType:
    """Global shape, mesh axes per dim (outermost first), pending reductions as (axis, code)."""

    shape: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    pending: tuple[tuple[str, int], ...]
    mesh: tuple[tuple[str, int], ...]

    @staticmethod
    def of(shape: Any, axes: Any, mesh: Any, pending: Any = ()) -> DistributedType:
        """From axes per dim, outermost first."""
        return DistributedType(tuple(shape), tuple(map(tuple, axes)), tuple(pending), tuple(mesh.items()))

    @property
    def local_shape(self) -> tuple[int, ...]:
        """What one device holds."""
        sizes = dict(self.mesh)
        return tuple(n // math.prod(sizes[a] for a in axes) for n, axes in zip(self.shape, self.axes, strict=True))


@dataclass(frozen=True)
class Step:
    """One collective over one axis; `other` is the dim that an all_to_all tiles."""

    kind: str
    mesh_axes: tuple[str, ...]
    dim: int
    other: int
    code: int
    source: DistributedType
    target: DistributedType

    def text(self) -> str:
        """As PartIR:HLO writes it."""
        return f'{self.kind} <"{self.mesh_axes[0]}"> {{{self.dim}}}'


@dataclass(frozen=True)
class Plan:
    """The steps from source to target."""

    source: DistributedType
    target: DistributedType
    steps: tuple[Step, ...]


@functools.lru_cache(maxsize=65536)
def plan(source: DistributedType, target: DistributedType, *, element_bytes: float = 4, cost: Any = "elements") -> Plan:
    """Reduces what is pending, then gathers and slices dim by dim."""
    steps: list[Step] = []
    here = source

    def go(kind: str, axis: str, dim: int, other: int, code: int, axes: tuple, pending: tuple) -> None:
        nonlocal here
        after = DistributedType(here.shape, axes, pending, here.mesh)
        steps.append(Step(kind, (axis,), dim, other, code, here, after))
        here = after

    def replaced(dim: int, axes: tuple[str, ...]) -> tuple:
        return (*here.axes[:dim], axes, *here.axes[dim + 1 :])

    for axis, code in source.pending:
        rest = tuple(p for p in here.pending if p[0] != axis)
        dim = next((d for d, axes in enumerate(target.axes) if axes == (*here.axes[d], axis)), -1)
        if dim >= 0:
            go("reduce_scatter", axis, dim, -1, code, replaced(dim, (*here.axes[dim], axis)), rest)
        else:
            go("all_reduce", axis, 0, -1, code, here.axes, rest)
    for dim in range(len(source.shape)):
        shared = 0
        for a, b in zip(here.axes[dim], target.axes[dim], strict=False):
            if a != b:
                break
            shared += 1
        for axis in reversed(here.axes[dim][shared:]):
            to = next((d for d, axes in enumerate(target.axes) if d != dim and axes == (*here.axes[d], axis)), -1)
            kept = here.axes[dim][:-1]
            if to >= 0:
                moved = list(replaced(dim, kept))
                moved[to] = (*moved[to], axis)
                go("all_to_all", axis, dim, to, 0, tuple(moved), here.pending)
            else:
                go("all_gather", axis, dim, -1, 0, replaced(dim, kept), here.pending)
    for dim in range(len(source.shape)):
        for axis in target.axes[dim][len(here.axes[dim]) :]:
            go("all_slice", axis, dim, -1, 0, replaced(dim, (*here.axes[dim], axis)), here.pending)
    return Plan(source, target, tuple(steps))
