"""Typed collectives: what each collective makes of a distributed type (Figure 8 of the paper, on several axes at once).

    all_gather(t, {0: "x"})             [3{x}12, 12]      ->  [12, 12]
    all_slice(t, {0: "x"})              [12, 12]          ->  [3{x}12, 12]
    all_to_all(t, {0: "x"}, {1: "x"})   [3{x}12, 12]      ->  [12, 3{x}12]
    all_permute(t, u)                   [3{x}12, 2{y}12]  ->  [3{y1,y2}12, 2{..}12] of equal local shape
    reduce_scatter(t, {0: "x"})         [12] sum{x}       ->  [3{x}12]
    all_reduce(t, ("x",))               [12] sum{x}       ->  [12]

Axes are given minor to major, and only the minor end of a dim changes. A rule that does not apply raises
`DistributedTypeError`. The planner does not go through here: `verify` holds its plans to these rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from autopart.spmd.redistribution.step import Plan, Step
from autopart.spmd.redistribution.types import DistributedType, DistributedTypeError, SubAxis, merged

Changes = Mapping[int, Iterable[str | SubAxis] | str]
"""Axes per dim, minor to major: names (one name, or several) or parts of axes."""


def all_gather(type_: DistributedType, taken: Changes) -> DistributedType:
    """T-ALLGATHER: the minor axes of some dims go; their tiles are put together."""
    return _checked(replace(type_, axes=_without(type_, taken)))


def all_slice(type_: DistributedType, added: Changes) -> DistributedType:
    """T-DYNSLICE: axes that nothing uses yet cut some dims further."""
    return _checked(replace(type_, axes=_with(type_, type_.axes, added)))


def all_to_all(type_: DistributedType, taken: Changes, added: Changes) -> DistributedType:
    """T-ALLTOALL: axes move from the minor end of some dims to that of others."""
    gone, come = ([a for axes in c.values() for a in _axes(type_, axes)] for c in (taken, added))
    if set(_pieces(gone, come)) != set(_pieces(come, gone)) or set(taken) & set(added):
        raise DistributedTypeError(
            f"an all_to_all of {type_} takes {taken} and adds {added}",
            why="it adds the axes that it takes, to other dims",
        )
    return _checked(replace(type_, axes=_with(type_, _without(type_, taken), added)))


def all_permute(type_: DistributedType, target: DistributedType) -> DistributedType:
    """T-PERMUTE: any type of the same local and global shape."""
    if type_.local_shape != target.local_shape or type_.shape != target.shape or type_.pending != target.pending:
        raise DistributedTypeError(
            f"an all_permute from {type_} to {target}", why=f"local shapes {type_.local_shape} and {target.local_shape}"
        )
    return _checked(target)


def reduce_scatter(type_: DistributedType, added: Changes) -> DistributedType:
    """Reductions pending on some axes are done, and those axes cut some dims further."""
    done = [a for axes in added.values() for a in _axes(type_, axes)]
    return all_slice(all_reduce(type_, done), added)


def all_reduce(type_: DistributedType, done: Iterable[str | SubAxis]) -> DistributedType:
    """Reductions pending on some axes are done; the reduction, and those after it in the type, must be of one kind."""
    waiting = [axis for axis, _ in type_.pending]
    gone = set(_pieces(_axes(type_, done), waiting))
    pending = [(piece, code) for axis, code in type_.pending for piece in _pieces([axis], gone)]
    codes = [code for u, code in pending if u in gone]
    if len(codes) != len(gone):
        raise DistributedTypeError(f"{type_} does not wait for all of {tuple(done)} to be reduced")
    last = [code for _, code in pending][-1:]
    first = min((n for n, (u, _) in enumerate(pending) if u in gone), default=len(pending))
    if {code for _, code in pending[first:]} - set(last):
        raise DistributedTypeError(f"{type_} has another reduction to do first")
    left: list[tuple[SubAxis, int]] = []
    for axis, code in type_.pending:
        left += [(part, code) for part in merged([u for u in _pieces([axis], gone) if u not in gone])]
    return _checked(replace(type_, pending=tuple(left)))


def verify(plan: Plan) -> None:
    """Raises `DistributedTypeError` where a step is not typed by its rule, or the plan not a way from source to target.

    Also where a type on the way is not well-formed, a view moves data, or a device ever holds more than the larger of
    source and target.
    """
    here, bound = plan.source, max(plan.source.local_elements, plan.target.local_elements)
    for step in plan.steps:
        if step.source != here:
            raise DistributedTypeError(f"{step.text()} continues from {step.source}", why=f"the array is {here}")
        if not np.array_equal(step.view.base_offsets(), step.source.base_offsets()):
            raise DistributedTypeError(f"{step.view} places tiles differently from {step.source}")
        if (found := result(step)) != step.target:
            raise DistributedTypeError(f"{step.text()} leads from {step.view} to {found}, not {step.target}")
        if step.target.local_elements > bound:
            raise DistributedTypeError(f"{step.target} is larger than both {plan.source} and {plan.target}")
        here = step.target
    if here != plan.target:
        raise DistributedTypeError(f"the plan leads to {here}, not to {plan.target}")


def result(step: Step) -> DistributedType:
    """The type after a step, by its rule."""
    _checked(step.view)
    taken, added = dict(step.gathered), dict(step.sliced)
    if step.kind == "all_gather":
        return all_gather(step.view, taken)
    if step.kind == "all_slice":
        return all_slice(step.view, added)
    if step.kind == "all_to_all":
        return all_to_all(step.view, taken, added)
    if step.kind == "reduce_scatter":
        return reduce_scatter(step.view, added)
    if step.kind == "all_reduce":
        return all_reduce(step.view, step.axes)
    return all_permute(step.view, step.target)


def _checked(type_: DistributedType) -> DistributedType:
    type_.check()
    return type_


def _axes(type_: DistributedType, axes: Iterable[str | SubAxis] | str) -> tuple[SubAxis, ...]:
    sizes = dict(type_.mesh)
    names = (axes,) if isinstance(axes, str | SubAxis) else tuple(axes)
    return tuple(a if isinstance(a, SubAxis) else SubAxis(a, sizes.get(a, 0)) for a in names)


def _pieces(axes: Iterable[SubAxis], cuts: Iterable[SubAxis]) -> list[SubAxis]:
    """`axes` (each minor to major) cut wherever one of `cuts` begins or ends."""
    marks: dict[str, set[int]] = {}
    for cut in cuts:
        marks.setdefault(cut.name, set()).update((cut.stride, cut.stride * cut.size))
    pieces = []
    for axis in axes:
        end = axis.stride * axis.size
        inside = sorted(m for m in marks.get(axis.name, ()) if axis.stride < m < end and m % axis.stride == 0)
        pieces += [SubAxis(axis.name, hi // lo, lo) for lo, hi in pairwise([axis.stride, *inside, end])]
    return pieces


def _without(type_: DistributedType, taken: Changes) -> tuple[tuple[SubAxis, ...], ...]:
    dims = list(type_.axes)
    for dim, axes in taken.items():
        gone = _axes(type_, axes)
        kept = _after_minor_end(dims[dim], merged(gone))
        if kept is None:
            raise DistributedTypeError(f"{gone} is not the minor end of dim {dim} of {type_}")
        dims[dim] = kept
    return tuple(dims)


def _after_minor_end(have: tuple[SubAxis, ...], gone: tuple[SubAxis, ...]) -> tuple[SubAxis, ...] | None:
    """`have` less its minor end `gone`, the last of which may be the minor part of an axis; None where it is not."""
    if not gone:
        return have
    if len(gone) > len(have) or have[: len(gone) - 1] != gone[:-1]:
        return None
    axis, part = have[len(gone) - 1], gone[-1]
    if (axis.name, axis.stride) != (part.name, part.stride) or axis.size % part.size:
        return None
    return merged((SubAxis(axis.name, axis.size // part.size, axis.stride * part.size), *have[len(gone) :]))


def _with(type_: DistributedType, dims: tuple[tuple[SubAxis, ...], ...], added: Changes) -> tuple:
    result = list(dims)
    for dim, axes in added.items():
        result[dim] = merged((*_axes(type_, axes), *result[dim]))
    return tuple(result)
