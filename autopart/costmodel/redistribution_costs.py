"""What a redistribution costs: the seconds of its steps, and the memory its steps need in between.

[{B},{}] -> all_gather -> [{},{}] -> all_slice -> [{},{M}]      one priced step; the whole array is in between
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autopart.costmodel.collectives import RedistributionSeconds
from autopart.costmodel.links import Links
from autopart.spmd.redistribution import Plan


@dataclass(frozen=True)
class StepCost:
    """One collective: kind, mesh axes, seconds, and bytes of the larger of its operand and result on a device."""

    kind: str
    mesh_axes: tuple[str, ...]
    seconds: float
    bytes: float


@dataclass(frozen=True)
class PlanCost:
    """Collectives of a redistribution (all_slice, which moves nothing, is left out), and their totals.

    extra_bytes   the most that intermediate arrays take besides source and target
    """

    steps: tuple[StepCost, ...]
    seconds: float
    extra_bytes: float


def plan_cost(plan: Plan, element_bytes: float, links: Links) -> PlanCost:
    """Prices a redistribution plan on the links of a mesh."""
    price, steps, extra = RedistributionSeconds(links.mesh), [], 0.0
    for number, step in enumerate(plan.steps):
        before, after = math.prod(step.source.local_shape), math.prod(step.target.local_shape)
        inner = (before if number > 0 else 0) + (after if number + 1 < len(plan.steps) else 0)
        extra = max(extra, inner * element_bytes)
        if step.kind != "all_slice":
            axes = tuple((axis, links.mesh.shape[axis]) for axis in step.mesh_axes)
            seconds = price.step_cost(step.kind, before, after, element_bytes, axes)
            steps.append(StepCost(step.kind, tuple(step.mesh_axes), seconds, max(before, after) * element_bytes))
    return PlanCost(tuple(steps), sum(s.seconds for s in steps), extra)
