"""The forms of a step: sequences of collectives that do what one does, and the cheapest of them.

    all_gather [{"x"}, {"y"}]        one gather along a new leading dim, then a copy of the whole result
    all_gather [{}, {"y"}]           a gather of each dim, the minor dim first: no copy, and a latency more
    all_gather [{"x"}, {}]
    all_gather [{"x"}, {}]           or the major dim first
    all_gather [{}, {"y"}]

A gather and a reduce_scatter over several dims may be taken apart by dim, in any order and grouping. An all_to_all from
one dim to another may be stacked: what it leaves then stands in order if it joins the major dim. Figure 11 knows only
what moves between devices; a cost that knows the copies too has `emitted_cost`, and forms are chosen by that.

A reduce_scatter over all devices is an all_reduce on v3 (`scatters_to_all`), and two are not, one axis after the other.

Some reduce_scatters are emitted as an all_reduce and a slice (`sums_and_slices`). On one device that is what they are,
whatever the program says, and of a reduce_scatter the compiler first copies the whole array, to make its dim the major
one. On another the compiler makes a reduce_scatter of the two, and one of many, where reduce_scatters stay apart: small
ones share a latency.

An all_reduce goes through a group of devices twice. Of few bytes, where all that counts is the latency, it is quicker
to gather the parts and to reduce them on each device (`other_ways`): the extremes and positions of an argmax over a
vocabulary, for each token that is decoded. NCCL reduces few bytes in one kernel, so on GPUs that is no quicker, and
moves as many times the bytes as there are devices (`gathers_parts`). Sums stay what they are: the order in which they
are added would be another, and the compiler makes one all_reduce of many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, TypeGuard

from autopart.core.op import AND, MAX, MIN, OR
from autopart.spmd.redistribution import rules
from autopart.spmd.redistribution.collective_cost import CollectiveCost
from autopart.spmd.redistribution.step import Step, spanned_axes
from autopart.spmd.redistribution.types import DistributedType, SubAxis

ORDERLESS = (MAX, MIN, AND, OR)
"""Reductions whose result is the same to the bit, in whatever order the parts come."""

Part = tuple[tuple[int, tuple[SubAxis, ...]], ...]
"""Some of the (dim, axes) that a step changes, done by one collective."""

MOST_DIMS = 3
"""Over more dims than these, a step is taken apart dim by dim, minor dim first, or not at all."""


class EmittedCost(CollectiveCost, Protocol):
    """A cost of collectives that also knows what a device copies for them."""

    @property
    def in_place(self) -> bool:
        """Whether collectives work along any dim in place, as the compiler lays it out."""
        ...

    def emitted_cost(self, step: Step, element_bytes: float) -> float:
        """The cost of a step as it is emitted: its collective and its local copies."""
        ...

    @property
    def gathers_parts(self) -> bool:
        """Whether an all_reduce may be emitted as a gather of the parts."""
        ...

    def scatters_to_all(self, step: Step) -> bool:
        """Whether the device makes an all_reduce of the step since it is over all devices."""
        ...

    def sums_and_slices(self, step: Step, element_bytes: float) -> bool:
        """Whether a reduce_scatter is better emitted as an all_reduce and a slice."""
        ...


def counts_copies(cost: object) -> TypeGuard[EmittedCost]:
    """Whether a cost knows local copies."""
    return hasattr(cost, "emitted_cost")


@lru_cache(maxsize=1 << 14)
def cheapest_form(step: Step, element_bytes: float, cost: EmittedCost) -> tuple[float, tuple[Step, ...]]:
    """(cost, steps) of the cheapest form; of equal costs, that of fewest collectives, then the first of `forms`."""
    best: tuple[float, tuple[Step, ...]] | None = None
    for form in forms(step, cost.scatters_to_all(step)):
        priced = [_cheaper_of(one, element_bytes, cost) for one in form]
        total = sum(price for price, _ in priced)
        if best is None or (total, len(form)) < (best[0], len(best[1])):
            best = (total, tuple(one for _, one in priced))
    assert best is not None
    return best


def forms(step: Step, scatters_to_all: bool = False) -> Iterator[tuple[Step, ...]]:
    """Sequences of steps that do what `step` does, each on some of its dims; the step itself first.

    One that is an all_reduce since it `scatters_to_all` is taken apart by axis too.
    """
    yield (step,)
    if scatters_to_all and step.view.devices is None:
        yield _axis_by_axis(step)
    changed = step.gathered if step.kind == "all_gather" else step.sliced
    if step.kind not in ("all_gather", "reduce_scatter") or len(changed) < 2 or step.view.devices is not None:
        return
    minor_first = tuple(reversed(changed))
    parts = _partitions(minor_first) if len(changed) <= MOST_DIMS else [tuple((c,) for c in minor_first)]
    for sequence in parts:
        if len(sequence) > 1:
            yield _taken_apart(step, sequence)


def _cheaper_of(step: Step, element_bytes: float, cost: EmittedCost) -> tuple[float, Step]:
    """(cost, step): the step as it is or in the cheapest of its other ways; as it is, where that costs the same. A
    reduce_scatter may be whole."""
    price = cost.emitted_cost(step, element_bytes)
    if step.kind == "reduce_scatter" and step.target.devices is None and cost.sums_and_slices(step, element_bytes):
        return price, replace(step, slices=True)
    for other in other_ways(step, cost.gathers_parts):
        cheaper = cost.emitted_cost(other, element_bytes)
        if cheaper < price:
            price, step = cheaper, other
    return price, step


def other_ways(step: Step, gathers_parts: bool = True) -> Iterator[Step]:
    """The same collective, emitted otherwise: an all_to_all stacked, or an all_reduce as a gather of the parts.

    A gather of one element a device is no other way: the TPU compiler makes an all_reduce of it.
    """
    if step.kind == "all_to_all" and not step.stacked:
        yield replace(step, stacked=True)
    if gathers_parts and step.kind == "all_reduce" and step.code in ORDERLESS and step.source.local_elements > 1:
        yield replace(step, gathers=True)


def _partitions(changed: Part) -> Iterator[tuple[Part, ...]]:
    """The ways to do the changes one after the other, some at once; dim by dim in the given order first."""
    for order in itertools.permutations(changed):
        yield tuple((change,) for change in order)
    for size in range(2, len(changed)):
        for together in itertools.combinations(changed, size):
            rest = tuple(c for c in changed if c not in together)
            for others in _partitions(rest):
                for place in range(len(others) + 1):
                    yield (*others[:place], tuple(sorted(together)), *others[place:])


def _taken_apart(step: Step, sequence: tuple[Part, ...]) -> tuple[Step, ...]:
    steps, here, view = [], step.source, step.view
    for number, part in enumerate(sequence):
        after = step.target if number + 1 == len(sequence) else _after(step, view, part)
        axes = spanned_axes(tuple(a for _, own in part for a in own), step.source.mesh)
        gathered, sliced = (part, ()) if step.kind == "all_gather" else ((), part)
        steps.append(Step(step.kind, here, after, view, gathered, sliced, axes, step.code, len(part) > 1))
        here = view = after
    return tuple(steps)


def _axis_by_axis(step: Step) -> tuple[Step, ...]:
    """Over one axis after the other, the major one of a dim first: none of them is over all devices."""
    return _taken_apart(step, tuple(((dim, (axis,)),) for dim, axes in step.sliced for axis in reversed(axes)))


def _after(step: Step, view: DistributedType, part: Part) -> DistributedType:
    rule = rules.all_gather if step.kind == "all_gather" else rules.reduce_scatter
    return rule(view, dict(part))
