"""The step from a tile to the stretch that a use reads of it: all_permutes between neighbours, or a local slice.

    [{"x"},{}] on {x:4}, dim 0 of 8, rows that read one more on each side

    tiles         | 0 1 | 2 3 | 4 5 | 6 7 |
    all_permute     . ->  1 ->  3 ->  5         the last of each tile goes on
    all_permute     2 <-  4 <-  6 <-  .         the first of each tile goes back
    stretches      .012  1234  3456  567.       zeros outside

It comes after a plan that leaves the tile. Or the plan leaves the dim whole, gathered if it was tiled, and every device
slices its stretch: the gather stays where it costs less than the pieces. `with_stretches` takes what costs less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from autopart.core.stretch import Stretch
from autopart.spmd.redistribution.collective_cost import CollectiveCost, named_cost
from autopart.spmd.redistribution.forms import EmittedCost
from autopart.spmd.redistribution.ordered_rounds import OrderedRound, ordered_rounds
from autopart.spmd.redistribution.rounds import Round, rounds_of
from autopart.spmd.redistribution.step import Plan, Step, spanned_axes
from autopart.spmd.redistribution.types import DistributedType, SubAxis


@dataclass(frozen=True, kw_only=True)
class StretchStep(Step):
    """From the tile of one dim, or all of it, to the stretch that a use reads.

    dim      the dim; `order` are the axes that tile it, outermost first
    stretch  what iterations read of it
    read     local shape before: of dims that came before, the stretch
    whole    the dim is whole before, and every device slices
    """

    dim: int
    stretch: Stretch
    order: tuple[SubAxis, ...]
    read: tuple[int, ...]
    whole: bool

    @cached_property
    def ways(self) -> int:
        """Devices along the dim."""
        return math.prod(a.size for a in self.order)

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """The pieces that move; none where the dim is whole, or for elements in any order (`ordered`)."""
        in_pieces = not self.whole and not self.stretch.order
        return rounds_of(self.stretch, self.target.shape[self.dim], self.ways) if in_pieces else ()

    @cached_property
    def ordered(self) -> tuple[tuple[OrderedRound, ...], tuple[tuple[int, ...], ...]]:
        """Of elements in any order, the messages that move, and where each device then finds its own."""
        if not self.whole:
            return ordered_rounds(self.stretch.order, self.target.shape[self.dim], self.ways)
        share = len(self.stretch.order) // self.ways
        return (), tuple(self.stretch.order[p * share : (p + 1) * share] for p in range(self.ways))

    @cached_property
    def left_shape(self) -> tuple[int, ...]:
        """Local shape afterwards."""
        shape = list(self.read)
        shape[self.dim] = self.stretch.length(self.ways)
        return tuple(shape)

    @property
    def collectives(self) -> int:
        """One per round in which something moves."""
        return len(self.moved_elements)

    @property
    def largest_elements(self) -> int:
        """Of all its collectives."""
        return sum(self.moved_elements)

    @cached_property
    def moved_elements(self) -> tuple[int, ...]:
        """Elements that a device sends in each all_permute."""
        others = math.prod(self.read) // self.read[self.dim]
        rounds = self.ordered[0] if self.stretch.order else self.rounds
        return tuple(each.length * others for each in rounds if each.moves)

    def text(self) -> str:
        """`all_permute {1: 4 of 2 from -1} <"x">`: stretches of 4, of tiles of 2, the first from one before."""
        first, length = self.stretch.first(self.ways, 0), self.stretch.length(self.ways)
        first = "a list" if self.stretch.order else first
        axes = f" <{self._names(self.axes)}>" if self.axes else ""
        return f"{self.kind} {{{self.dim}: {length} of {self.read[self.dim]} from {first}}}{axes}"


def with_stretches(
    plan_to: Callable[[DistributedType], Plan],
    target: DistributedType,
    stretches: Iterable[tuple[int, Stretch]],
    element_bytes: float,
    cost: str | CollectiveCost,
    forms: EmittedCost | None,
) -> Plan:
    """The plan to `target`, and from there to the stretches of some dims: of all ways to do that, what costs least.

    `plan_to` plans from the source. Each dim is reached by all_permutes, or made whole and sliced; of equal costs, by
    fewer collectives, then by the former.
    """
    dims = tuple(stretches)
    offers = []
    for whole in itertools.product((False, True), repeat=len(dims)):
        between = whole_on(target, [dim for (dim, _), is_whole in zip(dims, whole, strict=True) if is_whole])
        plan = plan_to(between)
        steps = stretch_steps(between, target, dims, whole)
        if forms is not None:
            price = sum(forms.emitted_cost(step, element_bytes) for step in (*plan.steps, *steps))
        else:
            price = plan.cost + sum(_cost(step, element_bytes, named_cost(cost)) for step in steps)
        count = sum(step.collectives for step in (*plan.steps, *steps) if step.kind != "all_slice")
        offers.append((price, count, whole, replace(plan, target=target, steps=(*plan.steps, *steps), cost=price)))
    return min(offers, key=lambda offer: offer[:3])[3]


def whole_on(target: DistributedType, dims: list[int]) -> DistributedType:
    """The type with these dims whole."""
    return replace(target, axes=tuple(() if d in dims else axes for d, axes in enumerate(target.axes)))


def stretch_steps(
    between: DistributedType, target: DistributedType, dims: tuple[tuple[int, Stretch], ...], whole: tuple[bool, ...]
) -> tuple[StretchStep, ...]:
    """From `between`, with `whole` dims whole, to the stretches: one step per dim; the type changes with the last."""
    steps, read = [], between.local_shape
    for number, ((dim, stretch), is_whole) in enumerate(zip(dims, whole, strict=True)):
        after = target if number + 1 == len(dims) else between
        order = tuple(reversed(target.axes[dim]))
        made = StretchStep(
            "all_permute", between, after, between, (), (), spanned_axes(order, target.mesh),
            dim=dim, stretch=stretch, order=order, read=read, whole=is_whole,
        )  # fmt: skip
        steps.append(made if made.collectives else replace(made, kind="all_slice", axes=()))
        read = made.left_shape
    return tuple(steps)


def _cost(step: StretchStep, element_bytes: float, model: CollectiveCost) -> float:
    return sum(model.step_cost("all_permute", n, n, element_bytes, step.spanned) for n in step.moved_elements)
