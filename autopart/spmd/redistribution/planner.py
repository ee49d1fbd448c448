"""The cheapest redistribution: candidates over every prime decomposition, priced, and written out as typed steps."""

from __future__ import annotations

from functools import lru_cache

from autopart.spmd.redistribution.axis_search import shortest_path, split_gathers
from autopart.spmd.redistribution.candidates import candidates
from autopart.spmd.redistribution.collective_cost import CollectiveCost, named_cost
from autopart.spmd.redistribution.planned_steps import PlannedStep
from autopart.spmd.redistribution.planning_problem import PlanningProblem, on_whole_axes, problems
from autopart.spmd.redistribution.pricing import Price, StepPricing
from autopart.spmd.redistribution.step import Plan
from autopart.spmd.redistribution.to_typed_steps import typed_steps
from autopart.spmd.redistribution.types import DistributedType


@lru_cache(maxsize=1 << 16)
def plan(
    source: DistributedType,
    target: DistributedType,
    *,
    element_bytes: float = 4,
    cost: str | CollectiveCost = "elements",
) -> Plan:
    """The cheapest sequence of collectives from `source` to `target` that the planner knows of.

    cost  "elements" (Figure 11 of the paper), or an object with `step_cost`, such as `AlphaBeta`; of equal costs, the
          sequence of fewest collectives, then of fewest bytes sent
    No step leaves a device with more elements than the larger of source and target. On meshes whose axes are all
    powers of one prime, no sequence costs less by Figure 11. Plans are cached by the arguments.

    Raises `DistributedTypeError` where meshes or shapes differ, or the target awaits a reduction the source does not.

    >>> mesh = {"x": 4}
    >>> print(plan(DistributedType.parse("[2{x}8, 8]", mesh), DistributedType.parse("[8, 2{x}8]", mesh)))
    [2{x}8, 8] -> [8, 2{x}8] on {x:4}: cost 16, height 1
      all_to_all {0 -> 1} <"x">  [8, 2{x}8]
    """
    best = _cheapest(source, target, element_bytes, named_cost(cost))
    if best is None:
        raise AssertionError(
            f"no candidate from {source} to {target}: an all_to_all per prime and an all_permute is one"
        )
    price, problem, planned = best
    steps = tuple(typed_steps(problem, planned))
    largest = max(source.local_elements, target.local_elements)
    heights = [max(s.source.local_elements, s.target.local_elements) for s in steps]
    return Plan(source, target, steps, price[0], max(heights) / largest if steps and largest else 1.0)


def _cheapest(
    source: DistributedType, target: DistributedType, element_bytes: float, model: CollectiveCost
) -> tuple[Price, PlanningProblem, list[PlannedStep]] | None:
    best: tuple[Price, PlanningProblem, list[PlannedStep]] | None = None

    def offer(problem: PlanningProblem, pricing: StepPricing, steps: list[PlannedStep]) -> None:
        nonlocal best
        price = pricing.sequence(steps)
        if best is None or price < best[0]:
            best = (price, problem, steps)

    for problem in problems(source, target):
        pricing = StepPricing(problem, element_bytes, model)
        for steps in candidates(problem):
            offer(problem, pricing, steps)
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
    return best
