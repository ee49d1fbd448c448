"""How a step is emitted: one collective, and what a device moves by itself before and after it.

    all_gather [{"x"}, {"y"}], tile 3 x 2048, x:4 and y:2
        gather           8 x 3 x 2048       along a new leading dim: the tiles, one after the other
        regroup   read   4 x 2 x 3 x 2048
               written   4 x 3 x 2 x 2048   x before dim 0, y before dim 1: a copy of the whole result
                result   12 x 4096

A step on one dim works along that dim, unless it is `stacked`; a step on several dims always is. An all_to_all that is
not leaves out dims of size 1. An all_reduce that `gathers` puts the parts side by side along a new last dim, and the
device reduces them over that: of a gather of rows along a new leading dim the TPU compiler makes an all_reduce, if a
reduction made the rows. The emitter turns an emission into StableHLO, the cost model counts its copies: both read it
here, so that neither can know of another form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autopart.spmd.redistribution.step import Step
from autopart.spmd.redistribution.types import SubAxis

Shape = tuple[int, ...]
Atoms = list[tuple[int, SubAxis]]
"""(dim, axis) of the pieces by which a step cuts or joins dims, dims ascending, major axis first."""


@dataclass(frozen=True)
class Regroup:
    """A local reshape, transpose and reshape.

    read     the shape that is transposed
    order    the dims of `read`, as they stand afterwards
    result   the shape after all
    """

    read: Shape
    order: tuple[int, ...]
    result: Shape

    @cached_property
    def written(self) -> Shape:
        """`read`, transposed."""
        return tuple(self.read[d] for d in self.order)

    @cached_property
    def moves(self) -> bool:
        """Whether elements change places: dims of size 1 may stand anywhere."""
        kept = [d for d in self.order if self.read[d] > 1]
        return kept != sorted(kept)


@dataclass(frozen=True)
class Emission:
    """One collective between two regroupings.

    shape  of the collective's result
    dims   the dims it works along: all_gather, split, concat or scatter
    order  axes of a group of devices, the last varying fastest
    """

    shape: Shape
    dims: dict[str, int] = field(default_factory=dict)
    order: tuple[SubAxis, ...] = ()
    before: Regroup | None = None
    after: Regroup | None = None


def emission(step: Step) -> Emission:
    """How `step` is emitted, on a value of shape `step.source.local_shape`."""
    if step.kind == "all_gather":
        return _all_gather(step)
    if step.kind == "all_to_all":
        return _all_to_all(step)
    if step.kind == "reduce_scatter":
        return _reduce_scatter(step)
    if step.gathers:
        return _all_gather_of_parts(step)
    return Emission(step.target.local_shape, order=step.axes)


def reordered(how: Emission, shape: Shape, order: Sequence[int]) -> Emission:
    """The same on an array of `shape` with its dims in another order; unless several dims change, or that of the
    collective is none of `order[:-2]`."""
    dims = list(how.dims.values())
    if how.before is not None or how.after is not None or len(dims) != 1 or dims[0] not in order[:-2]:
        return how
    here, there = (tuple(of[d] for d in order) for of in (shape, how.shape))
    back = tuple(order.index(d) for d in range(len(order)))
    before, after = Regroup(shape, tuple(order), here), Regroup(there, back, how.shape)
    return Emission(there, {kind: order.index(dim) for kind, dim in how.dims.items()}, how.order, before, after)


def _all_gather(step: Step) -> Emission:
    atoms = _atoms(step.gathered)
    here, order = step.source.local_shape, tuple(a for _, a in atoms)
    if not step.stacked:
        return Emission(step.target.local_shape, {"all_gather": atoms[0][0]}, order)
    shape = (math.prod(a.size for a in order), *here)
    before = Regroup((1, *here), tuple(range(len(here) + 1)), (1, *here))
    return Emission(shape, {"all_gather": 0}, order, before, _join(here, atoms, order))


def _all_gather_of_parts(step: Step) -> Emission:
    here = step.source.local_shape
    before = Regroup((*here, 1), tuple(range(len(here) + 1)), (*here, 1))
    shape = (*here, math.prod(a.size for a in step.axes))
    return Emission(shape, {"all_gather": len(here)}, step.axes, before)


def _all_to_all(step: Step) -> Emission:
    pieces, joined = _atoms(step.sliced), _atoms(step.gathered)
    order = tuple(a for _, a in pieces)
    if not step.stacked:
        return _in_place(step, pieces[0][0], joined[0][0], order)
    here = list(step.source.local_shape)
    for dim, axis in pieces:
        here[dim] //= axis.size
    shape = (math.prod(a.size for a in order), *here)
    before, after = _split(tuple(here), pieces, shape), _join(tuple(here), joined, order)
    return Emission(shape, {"split": 0, "concat": 0}, order, before, after)


def _in_place(step: Step, split: int, concat: int, order: tuple[SubAxis, ...]) -> Emission:
    """An all_to_all without dims of size 1, for which the TPU compiler takes rows out of their tiles."""
    source, target = step.source.local_shape, step.target.local_shape
    kept = [d for d, size in enumerate(source) if size > 1 or d in (split, concat)]
    dims = {"split": kept.index(split), "concat": kept.index(concat)}
    if len(kept) == len(source):
        return Emission(target, dims, order)
    here, there = (tuple(shape[d] for d in kept) for shape in (source, target))
    in_order = tuple(range(len(kept)))
    return Emission(there, dims, order, Regroup(here, in_order, here), Regroup(there, in_order, target))


def _reduce_scatter(step: Step) -> Emission:
    pieces = _atoms(step.sliced)
    here, order = step.target.local_shape, tuple(a for _, a in pieces)
    if not step.stacked:
        return Emission(here, {"scatter": pieces[0][0]}, order)
    shape = (math.prod(a.size for a in order), *here)
    after = Regroup((1, *here), tuple(range(len(here) + 1)), here)
    return Emission((1, *here), {"scatter": 0}, order, _split(here, pieces, shape), after)


def _atoms(part: Sequence[tuple[int, tuple[SubAxis, ...]]]) -> Atoms:
    return [(dim, axis) for dim, axes in part for axis in reversed(axes)]


def _split(tile: Shape, pieces: Atoms, result: Shape) -> Regroup:
    """Brings the pieces of all dims to the front, in their order: [pieces..., *tile]."""
    shape, front, back = [], {}, []
    for dim, size in enumerate(tile):
        for number, (own, axis) in enumerate(pieces):
            if own == dim:
                front[number] = len(shape)
                shape.append(axis.size)
        back.append(len(shape))
        shape.append(size)
    return Regroup(tuple(shape), (*(front[n] for n in range(len(pieces))), *back), result)


def _join(tile: Shape, joined: Atoms, order: Sequence[SubAxis]) -> Regroup:
    """[count, *tile] with its leading dim, made of the axes of `order`, distributed over the dims of `joined`."""
    places, result = [], list(tile)
    for dim in range(len(tile)):
        for own, axis in joined:
            if own == dim:
                places.append(order.index(axis))
                result[dim] *= axis.size
        places.append(len(order) + dim)
    return Regroup((*(a.size for a in order), *tile), tuple(places), tuple(result))
