"""What a redistribution costs: the seconds of its steps, and the memory its steps need in between.

[{B},{}] -> all_gather -> [{},{}] -> all_slice -> [{},{M}]      one priced step; the whole array is in between
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from autopart.base.jit.kernels import kernel
from autopart.core.op import SUM
from autopart.costmodel.compiled.links.collective_seconds import saved_s
from autopart.costmodel.compiled.links.redistribution_seconds import RedistributionSeconds, is_whole
from autopart.costmodel.compiled.sizes import held_elements
from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.hardware.fabric import ALL_GATHER, ALL_REDUCE, COLLECTIVE_KINDS
from autopart.costmodel.hardware.links import Links
from autopart.spmd.redistribution import Plan
from autopart.spmd.redistribution.emission import Shape, emission
from autopart.spmd.redistribution.local_copies import local_copies
from autopart.spmd.redistribution.step import Step


@dataclass(frozen=True)
class StepCost:
    """One collective: kind, mesh axes, seconds, and bytes of the larger of its operand and result on a device.

    copy_s, copied_bytes   its local copies: seconds, and bytes they read and write; not in `seconds`
    count                  how many collectives it is: one, or the pieces of a stretch; `bytes` are of all
    """

    kind: str
    mesh_axes: tuple[str, ...]
    seconds: float
    bytes: float
    copy_s: float
    copied_bytes: float
    count: int = 1


@dataclass(frozen=True)
class PlanCost:
    """Collectives of a redistribution (all_slice, which moves nothing, is left out), and their totals.

    seconds       on the links
    extra_bytes   the most that arrays in between take besides source and target
    combinable    above zero for a single collective that may run as one with others: `_combination`
    counted_bytes what counts against the bytes of a combined collective
    sent_bytes    on a device before it, as its seconds depend on them
    saved_s       the most that it saves by running as one with others
    copy_s        seconds of local copies, which move `copied_bytes` through memory
    as_output     copies that are made where the array replaces a donated argument (`layout_copies.py`): 0, 1 or 2
    spellings     so many equal redistributions of one value need no barrier to be kept apart (`Step.spellings`)
    """

    steps: tuple[StepCost, ...]
    seconds: float
    extra_bytes: float
    combinable: int
    counted_bytes: float
    sent_bytes: float
    saved_s: float
    copy_s: float
    copied_bytes: float
    as_output: int
    spellings: int

    @cached_property
    def figures(self) -> tuple[float, ...]:
        """What the simulator's arrays hold of it, a row of `FIGURES`."""
        return tuple(float(getattr(self, name)) for name in FIGURES)


FIGURES = (
    "seconds", "extra_bytes", "combinable", "counted_bytes", "sent_bytes", "copy_s", "copied_bytes", "as_output",
    "spellings",
)  # fmt: skip
SECONDS, EXTRA_BYTES, COMBINABLE, COUNTED_BYTES, SENT_BYTES, COPY_S, COPIED_BYTES, AS_OUTPUT, SPELLINGS = range(
    len(FIGURES)
)
"""Where each stands among the figures."""

KINDS = len(COLLECTIVE_KINDS)

NO_STEPS = PlanCost((), 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)
"""What moves nothing."""


def plan_cost(plan: Plan, element_bytes: float, links: Links) -> PlanCost:
    """Prices a redistribution plan on the links of a mesh."""
    price, steps, device = RedistributionSeconds(links.mesh), [], links.device
    for step in plan.steps:
        if step.kind != "all_slice":
            took = price.step_seconds(step, element_bytes)
            size = step.largest_elements * element_bytes
            steps.append(
                StepCost(
                    step.emitted_as, step.mesh_axes, took.link_s, size, took.copy_s, took.copied_bytes, step.collectives
                )
            )
    before, after = (side.local_elements * element_bytes for side in (plan.source, plan.target))
    combinable = _combination(plan, links) if len(plan.steps) == 1 else 0
    counted, sent = after if device.is_xla_gpu else max(before, after), max(before, after)
    if combinable and combined_kind(combinable) == ALL_GATHER:
        sent = before
    return PlanCost(
        steps=tuple(steps),
        seconds=sum(s.seconds for s in steps),
        extra_bytes=_between_bytes(plan, element_bytes, links.device),
        combinable=combinable,
        counted_bytes=counted,
        sent_bytes=sent,
        saved_s=most_saved_s(combinable, counted, sent, links) if combinable and counted else 0.0,
        copy_s=sum(s.copy_s for s in steps),
        copied_bytes=sum(s.copied_bytes for s in steps),
        as_output=_copies_as_output(plan.steps[-1], links.device) if plan.steps else 0,
        spellings=max((step.spellings for step in plan.steps), default=0),
    )


def _copies_as_output(step: Step, device: Device) -> int:
    """Copies that are made where what `step` leaves replaces a donated argument.

    Reductions write into the argument's memory, and so does a copy of the step's own. Other collectives do not: the
    argument is copied before and the result after, or the result alone if a gather leaves it in another order.
    """
    if step.kind not in ("all_gather", "all_permute") or step.stacked:
        return 0
    granule = _granules(step.left_shape, *device.layout_tile)
    shards = step.source.local_shape
    return (
        2
        if all(_is_outermost(shards, dim) or shards[dim] % granule.get(dim, 1) == 0 for dim, _ in step.gathered)
        else 1
    )


def _granules(shape: Shape, rows: int, minor: int) -> dict[int, int]:
    """Elements of a layout tile along the last two dims, as the compiler lays an argument out.

    The last dim is the minor one, unless the other way round pads less: f32[3,3,1280,320] has columns of 1280.
    """
    if len(shape) < 2:
        return {0: minor}
    first, last = len(shape) - 2, len(shape) - 1

    def padded(columns: int, lines: int) -> int:
        return math.ceil(shape[columns] / minor) * minor * math.ceil(shape[lines] / rows) * rows

    swapped = padded(first, last) < padded(last, first)
    return {first: minor, last: rows} if swapped else {first: rows, last: minor}


def _is_outermost(shape: Shape, dim: int) -> bool:
    """True if no dim before `dim` is longer than one."""
    return math.prod(shape[:dim]) == 1


def axis_seconds(plan: Plan, element_bytes: float, links: Links, axis: str) -> float:
    """Seconds of the collectives of a plan that run over a mesh axis."""
    return sum(step.seconds for step in plan_cost(plan, element_bytes, links).steps if axis in step.mesh_axes)


def _between_bytes(plan: Plan, element_bytes: float, device: Device) -> float:
    """The most that arrays other than source and target take while one is made from the one before.

    The target's memory is counted by whoever counts the target, and can hold others until the target is made.
    """
    held = [held_elements(shape, element_bytes, device.layout_tile) for shape in _arrays(plan, device)]
    most, last = 0.0, len(held) - 1
    for made, (before, after) in enumerate(itertools.pairwise(held), 1):
        most = max(most, (before if made > 1 else 0.0) + after - held[last])
    return most * element_bytes


def _arrays(plan: Plan, device: Device) -> Iterator[Shape]:
    """Shapes of all local arrays from the source to the target: between steps, and around the copies of each."""
    yield plan.source.local_shape
    for step in plan.steps:
        before, after = local_copies(step, strided=device.strided_collectives, tiled=device.layout_tile[1] > 1)
        yield from (copy.written.shape for copy in before)
        if after:
            yield emission(step).shape
        yield from (copy.written.shape for copy in after[:-1])
        yield step.left_shape


def _combination(plan: Plan, links: Links) -> int:
    """A number for the collectives that may run as one: kind, operation and axes; 0 for anything else.

    A gather that the compiler makes an all_reduce of the whole, a sum of parts of which all but one are zeros, is one.
    XLA:GPU combines gathers as they are, too.
    """
    (step,) = plan.steps
    if step.kind not in ("all_reduce", "reduce_scatter", "all_gather") or step.gathers:
        return 0
    whole = step.kind == "all_reduce" or is_whole(step, links.device)
    if step.kind == "all_gather" and not whole and not links.device.is_xla_gpu:
        return 0
    if any(links.mesh.shape[axis] != size for axis, size in step.spanned):
        return 0
    mask = sum(1 << links.mesh.index(axis) for axis in step.mesh_axes)
    kind = ALL_REDUCE if whole else COLLECTIVE_KINDS.index(step.kind)
    return 1 + (mask * 32 + (SUM if step.kind == "all_gather" else step.code)) * KINDS + kind


@kernel
def combined_kind(combinable: int) -> int:
    """Which collective the number of `_combination` is about."""
    return (combinable - 1) % KINDS


@kernel
def combined_axes(combinable: int) -> int:
    """The mask of axes of it."""
    return (combinable - 1) // (32 * KINDS)


def most_saved_s(combinable: int, counted: float, sent: float, links: Links) -> float:
    """Seconds that a collective saves at most by running as one with others: these fill all that may be combined."""
    kind, mask, held = combined_kind(combinable), combined_axes(combinable), links.device.combine_bytes * sent / counted
    return float(saved_s(kind, sent, held, mask, links.segments, links.fabrics, links.curves))
