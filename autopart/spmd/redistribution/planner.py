"""The cheapest redistribution: candidates over every prime decomposition, priced, and written out as typed steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from autopart.spmd.redistribution.axis_search import shortest_path, split_gathers
from autopart.spmd.redistribution.candidates import candidates
from autopart.spmd.redistribution.collective_cost import CollectiveCost, Elements, named_cost
from autopart.spmd.redistribution.forms import EmittedCost, cheapest_form, counts_copies
from autopart.spmd.redistribution.planned_steps import PlannedStep
from autopart.spmd.redistribution.planning_problem import PlanningProblem, on_whole_axes, problems
from autopart.spmd.redistribution.pricing import Price, StepPricing
from autopart.spmd.redistribution.primes import PrimeAxes
from autopart.spmd.redistribution.shape_classes import Shrunk, shrunk
from autopart.spmd.redistribution.step import Plan, Step
from autopart.spmd.redistribution.to_typed_steps import typed_steps
from autopart.spmd.redistribution.types import DistributedType


@lru_cache(maxsize=1 << 16)
def plan(
    source: DistributedType,
    target: DistributedType,
    *,
    element_bytes: float = 4,
    cost: str | CollectiveCost = "elements",
    forms: EmittedCost | None = None,
) -> Plan:
    """The cheapest sequence of collectives from `source` to `target` that the planner knows of.

    cost  "elements" (Figure 11 of the paper), or an object with `step_cost`, such as `AlphaBeta`; of equal costs, the
          sequence of fewest collectives, then of fewest bytes sent
    forms  by what the form of each step is chosen (`forms.py`); None is `cost` where it counts local copies, else every
          step stays one collective. The cost of the plan is by `cost` all the same
    No step leaves a device with more elements than the larger of source and target. On meshes whose axes are all
    powers of one prime, no sequence costs less by Figure 11. Plans are cached by the arguments.

    Raises `DistributedTypeError` where meshes or shapes differ, or the target awaits a reduction the source does not.

    >>> mesh = {"x": 4}
    >>> print(plan(DistributedType.parse("[2{x}8, 8]", mesh), DistributedType.parse("[8, 2{x}8]", mesh)))
    [2{x}8, 8] -> [8, 2{x}8] on {x:4}: cost 16, height 1
      all_to_all {0 -> 1} <"x">  [8, 2{x}8]
    """
    model = named_cost(cost)
    price, over, planned = _planned(source, target, element_bytes, model)
    steps = tuple(typed_steps(over, source, target, planned))
    chooser = forms if forms is not None else model if counts_copies(model) else None
    if chooser is not None:
        emitted = tuple(f for step in steps for f in cheapest_form(step, element_bytes, chooser)[1])
        if emitted != steps and not counts_copies(model):
            price = sum(_cost(step, element_bytes, model) for step in emitted)
        steps = emitted
    largest = max(source.local_elements, target.local_elements)
    heights = [max(s.source.local_elements, s.target.local_elements) for s in steps]
    return Plan(source, target, steps, price, max(heights) / largest if steps and largest else 1.0)


def _cost(step: Step, element_bytes: float, model: CollectiveCost) -> float:
    before, after = step.source.local_elements, step.target.local_elements
    return model.step_cost(step.kind, before, after, element_bytes, step.spanned)


def _planned(
    source: DistributedType, target: DistributedType, element_bytes: float, model: CollectiveCost
) -> tuple[float, PrimeAxes, list[PlannedStep]]:
    """(cost, parts of axes, steps over them); by Figure 11 planned once for all shapes whose dims can be cut alike."""
    if not isinstance(model, Elements):
        price, problem, steps = _cheapest(source, target, element_bytes, model)
        return price[0], problem.axes, steps
    small = shrunk(source, target)
    price, over, steps = _by_elements(small.source, small.target)
    return price * small.times, over, _restored(small, steps)


@lru_cache(maxsize=1 << 16)
def _by_elements(source: DistributedType, target: DistributedType) -> tuple[float, PrimeAxes, tuple[PlannedStep, ...]]:
    price, problem, steps = _cheapest(source, target, 1, Elements())
    return price[0], problem.axes, tuple(steps)


def _restored(small: Shrunk, steps: Sequence[PlannedStep]) -> list[PlannedStep]:
    """The steps of the array whose dims were left out."""
    return [
        step._replace(
            after=small.restored(step.after), view=step.view if step.view is None else small.restored(step.view)
        )
        for step in steps
    ]


def _cheapest(
    source: DistributedType, target: DistributedType, element_bytes: float, model: CollectiveCost
) -> tuple[Price, PlanningProblem, list[PlannedStep]]:
    best: tuple[Price, PlanningProblem, list[PlannedStep]] | None = None

    def offer(problem: PlanningProblem, pricing: StepPricing, steps: list[PlannedStep]) -> None:
        nonlocal best
        price = pricing.sequence(steps)
        if counts_copies(model) and (best is None or price < best[0]):
            emitted = [cheapest_form(step, element_bytes, model) for step in _typed(problem, steps)]
            price = (sum(cost for cost, _ in emitted), *price[1:])
        if best is None or price < best[0]:
            best = (price, problem, steps)

    for problem in problems(source, target):
        pricing = StepPricing(problem, element_bytes, model)
        for steps in candidates(problem):
            offer(problem, pricing, steps)
            if not pricing.tells_axes_apart and _is_one_exchange(steps):
                break
            if pricing.tells_axes_apart:
                for split in split_gathers(problem, steps):
                    offer(problem, pricing, split)
    if best is not None and best[0][0] > 0:
        problem = on_whole_axes(source, target)
        pricing = StepPricing(problem, element_bytes, model)
        if pricing.tells_axes_apart:
            steps = shortest_path(problem, pricing, best[0][0])
            if steps is not None:
                offer(problem, pricing, steps)
    if best is None:
        raise AssertionError(
            f"no candidate from {source} to {target}: an all_to_all per prime and an all_permute is one"
        )
    return best


def _is_one_exchange(steps: list[PlannedStep]) -> bool:
    """Whether an all_to_all leaves the target, and nothing else is moved: no sequence costs less by Figure 11.

    Whatever moves something last leaves the target or more, and costs what it leaves at least; and no single
    collective moves fewer axes, as each that is exchanged is on another dim of the target.
    """
    return [s.kind for s in steps if s.kind != "all_slice"] == ["all_to_all"] == [s.kind for s in steps[-1:]]


def _typed(p: PlanningProblem, steps: list[PlannedStep]) -> Iterator[Step]:
    return typed_steps(p.axes, p.source_type, p.target_type, steps)
