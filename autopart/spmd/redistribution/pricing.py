"""What a sequence of planned steps costs, and how sequences of equal cost compare."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autopart.spmd.redistribution.collective_cost import CollectiveCost, Elements, sent_share
from autopart.spmd.redistribution.planned_steps import PlannedStep, group_axes, group_size
from autopart.spmd.redistribution.planning_problem import PlanningProblem
from autopart.spmd.redistribution.primes import PrimeLayout, ways

Price = tuple[float, int, float, int]
"""(cost, collectives that communicate, elements sent, steps): the smaller the better."""


class StepPricing:
    """Prices the planned steps of one problem. A price that was computed once is looked up."""

    def __init__(self, problem: PlanningProblem, element_bytes: float, model: CollectiveCost):
        self._axes = problem.axes
        self._source = problem.source
        self._elements = math.prod(problem.source_type.shape)
        self._element_bytes = element_bytes
        self._model = model
        self._known: dict[tuple[str, int, int, frozenset[int]], float] = {}

    @property
    def tells_axes_apart(self) -> bool:
        """False for Figure 11, which counts elements whatever the axis."""
        return not isinstance(self._model, Elements)

    def local(self, layout: PrimeLayout) -> int:
        """Elements per device."""
        return self._elements // ways(layout, self._axes.sizes)

    def step(self, here: PrimeLayout, step: PlannedStep, devices: tuple[int, ...] | None = None) -> float:
        """The cost of a step from `here`, where tiles are placed under the device map `devices`."""
        before, after = self.local(here), self.local(step.after)
        parts = group_axes(self._axes, here, devices, step) if self.tells_axes_apart else frozenset[int]()
        key = (step.kind, before, after, parts)
        if key not in self._known:
            self._known[key] = self._model.step_cost(step.kind, before, after, self._element_bytes, self._spans(parts))
        return self._known[key]

    def sequence(self, steps: Sequence[PlannedStep]) -> Price:
        """The price of steps that begin at the source."""
        cost, talking, sent = 0, 0, 0.0
        here, devices = self._source, None
        for step in steps:
            if step.kind != "all_slice":
                cost += self.step(here, step, devices)
                talking += 1
                sent += sent_share(step.kind, group_size(self._axes, here, step)) * self.local(here)
            here, devices = step.after, step.devices
        return cost, talking, sent, len(steps)

    def _spans(self, parts: frozenset[int]) -> tuple[tuple[str, int], ...]:
        sizes: dict[str, int] = {}
        for a in sorted(parts):
            sizes[self._axes.axes[a].name] = sizes.get(self._axes.axes[a].name, 1) * self._axes.sizes[a]
        return tuple(sizes.items())
