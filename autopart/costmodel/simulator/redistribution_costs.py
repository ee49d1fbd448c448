"""What a redistribution costs: the seconds of its steps, and the memory its steps need in between.

[{B},{}] -> all_gather -> [{},{}] -> all_slice -> [{},{M}]      one priced step; the whole array is in between
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.hardware.links import Links
from autopart.costmodel.simulator.collective_seconds import RedistributionSeconds
from autopart.spmd.redistribution import Plan, Step


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
    combinable    above zero for a single reduction, equal for those of one kind, operation and axes
    bytes_in      bytes on a device before
    latency_s     the part of `seconds` that does not depend on bytes
    """

    steps: tuple[StepCost, ...]
    seconds: float
    extra_bytes: float
    combinable: int
    bytes_in: float
    latency_s: float

    @cached_property
    def figures(self) -> tuple[float, ...]:
        """seconds, extra_bytes, combinable, bytes_in, latency_s: a row for the simulator's arrays."""
        return (self.seconds, self.extra_bytes, self.combinable, self.bytes_in, self.latency_s)


def plan_cost(plan: Plan, element_bytes: float, links: Links) -> PlanCost:
    """Prices a redistribution plan on the links of a mesh."""
    price, steps, extra, latency_s = RedistributionSeconds(links.mesh), [], 0.0, 0.0
    for number, step in enumerate(plan.steps):
        before, after = math.prod(step.source.local_shape), math.prod(step.target.local_shape)
        inner = (before if number > 0 else 0) + (after if number + 1 < len(plan.steps) else 0)
        extra = max(extra, inner * element_bytes)
        if step.kind != "all_slice":
            axes = step.spanned
            kind, sent = (step.kind, before) if _aligned(step, links.device) else ("all_reduce", max(before, after))
            seconds = price.step_cost(kind, sent, after, element_bytes, axes)
            latency_s += min(seconds, price.step_cost(kind, 1, 1, 1, axes))
            steps.append(StepCost(step.kind, tuple(step.mesh_axes), seconds, max(before, after) * element_bytes))
    combinable = _combination(plan, links) if len(plan.steps) == 1 else 0
    bytes_in = math.prod(plan.source.local_shape) * element_bytes
    return PlanCost(tuple(steps), sum(s.seconds for s in steps), extra, combinable, bytes_in, latency_s)


def axis_seconds(plan: Plan, element_bytes: float, links: Links, axis: str) -> float:
    """Seconds of the collectives of a plan that run over a mesh axis."""
    return sum(step.seconds for step in plan_cost(plan, element_bytes, links).steps if axis in step.mesh_axes)


def _aligned(step: Step, device: Device) -> bool:
    """Whether shards are whole layout tiles; if not, XLA on TPU gathers and scatters by an all_reduce of the whole.

    Seen in programs compiled by libtpu 0.0.51 for v3: of 501 reduce_scatters those with shards of 40 or 80 rows stayed,
    those with 5, 10 or 20 rows, or with less than 128 columns, became an all_reduce and a slice.
    """
    if step.kind not in ("reduce_scatter", "all_gather"):
        return True
    rows, minor = device.layout_tile
    before, after = step.source.local_shape, step.target.local_shape
    granule = {len(before) - 1: minor, len(before) - 2: rows}
    shards = {d: min(a, b) for d, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
    return all(size % granule.get(d, 1) == 0 for d, size in shards.items())


def _combination(plan: Plan, links: Links) -> int:
    """A number for the reductions that may run as one: kind, operation and axes; 0 for anything else."""
    (step,) = plan.steps
    if step.kind not in ("all_reduce", "reduce_scatter"):
        return 0
    whole = step.kind == "all_reduce" or not _aligned(step, links.device)
    mask = sum(1 << links.mesh.index(axis) for axis in step.mesh_axes)
    return 1 + (mask * 32 + step.code) * 2 + whole
