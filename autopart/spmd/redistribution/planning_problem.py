"""A redistribution problem in numbers: layouts of prime axes, room per dim, axes that are free or pending."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout, cuts_of, decompositions, valuations, whole_axes
from autopart.spmd.redistribution.types import DistributedType, DistributedTypeError


@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """From `source` to `target` over one prime decomposition of the mesh.

    room[dim][k]  how often the k-th prime divides the dim's global size
    free          prime axes that neither tile the source nor are pending in it
    reductions    (code, prime axes) to be done, in this order
    """

    axes: PrimeAxes
    source_type: DistributedType
    target_type: DistributedType
    source: PrimeLayout
    target: PrimeLayout
    room: tuple[tuple[int, ...], ...]
    free: frozenset[int]
    reductions: tuple[tuple[int, frozenset[int]], ...]

    @cached_property
    def pending(self) -> frozenset[int]:
        """Prime axes of all reductions to be done."""
        return frozenset(a for _, parts in self.reductions for a in parts)

    @cached_property
    def unused_by_target(self) -> frozenset[int]:
        """Prime axes that do not tile the target and are not pending in it."""
        used = {a for dim in self.target for a in dim}
        return (self.free | self.pending | {a for dim in self.source for a in dim}) - used


def problems(source: DistributedType, target: DistributedType) -> list[PlanningProblem]:
    """The problem over each way to cut the axes into primes. Raises `DistributedTypeError` where it is none."""
    _check(source, target)
    return [_over(axes, source, target) for axes in decompositions(source.mesh, cuts_of(source, target))]


def on_whole_axes(source: DistributedType, target: DistributedType) -> PlanningProblem:
    """The problem over mesh axes that are whole unless source or target cut them."""
    return _over(whole_axes(source.mesh, cuts_of(source, target)), source, target)


def _over(axes: PrimeAxes, source: DistributedType, target: DistributedType) -> PlanningProblem:
    before, after = axes.layout(source), axes.layout(target)
    kept = {p for axis, _ in target.pending for p in axes.parts(axis)}
    reductions: list[tuple[int, frozenset[int]]] = []
    for axis, code in reversed(source.pending):
        parts = frozenset(axes.parts(axis)) - kept
        if not parts:
            continue
        if reductions and reductions[-1][0] == code:
            parts |= reductions.pop()[1]
        reductions.append((code, parts))
    taken = {a for dim in before for a in dim} | kept
    taken.update(p for axis, _ in source.pending for p in axes.parts(axis))
    room = tuple(tuple(valuations(n, axes.primes)) for n in source.shape)
    free = frozenset(range(len(axes.axes))) - taken
    return PlanningProblem(axes, source, target, before, after, room, free, tuple(reductions))


def _check(source: DistributedType, target: DistributedType) -> None:
    if source.mesh != target.mesh:
        raise DistributedTypeError(
            f"source and target are on different meshes: {dict(source.mesh)} and {dict(target.mesh)}",
            hint="one mesh for both; an array can be moved to another mesh with jax.device_put",
        )
    if source.shape != target.shape:
        raise DistributedTypeError(
            f"source and target have different shapes: {source.shape} and {target.shape}",
            why="a redistribution neither makes nor drops data",
        )
    missing = [p for p in target.pending if p not in source.pending]
    if missing or (target.pending and len({code for _, code in source.pending}) > 1):
        raise DistributedTypeError(
            f"no collective leaves {target} to be reduced", why=f"the source is {source}", hint="a target without it"
        )
