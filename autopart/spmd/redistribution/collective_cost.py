"""What a collective costs: the weight of an edge in the search for a redistribution.

"elements"   Figure 11 of the redistribution paper, in array elements per device:
             all_permute, all_to_all, reduce_scatter   local size before
             all_gather                                local size after
             all_reduce                                twice the local size (reduce_scatter, then all_gather)
             all_slice                                 0
AlphaBeta    seconds, from a latency and a bandwidth per mesh axis
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autopart.base.errors import UnknownNameError, closest
from autopart.spmd.redistribution.types import DistributedTypeError

KINDS = ("all_slice", "all_gather", "all_to_all", "all_permute", "reduce_scatter", "all_reduce")


class CollectiveCost(Protocol):
    """Anything that prices one collective; hashable, because plans are cached by it."""

    def step_cost(
        self, kind: str, elements_in: int, elements_out: int, element_bytes: float, axes: tuple[tuple[str, int], ...]
    ) -> float:
        """The cost of one collective of `kind` from `elements_in` to `elements_out` elements per device.

        `axes` are the (mesh axis, size) it spans; a size below the mesh axis's is a part of it.
        """
        ...


@dataclass(frozen=True)
class Elements:
    """Figure 11: elements transferred, per device. Derived in the paper's appendix B."""

    def step_cost(
        self, kind: str, elements_in: int, elements_out: int, element_bytes: float, axes: tuple[tuple[str, int], ...]
    ) -> float:
        """Elements."""
        if kind == "all_slice":
            return 0
        if kind == "all_gather":
            return elements_out
        return 2 * elements_in if kind == "all_reduce" else elements_in


@dataclass(frozen=True, init=False)
class AlphaBeta:
    """Seconds: per axis spanned a latency, and the bytes each device sends over the slowest link spanned.

    With n devices in the group and b bytes per device, a device sends (n-1)/n b in all_to_all and reduce_scatter,
    (n-1) b in all_gather, 2 (n-1)/n b in all_reduce and b in all_permute: direct exchange through a switch, and rings
    that use their bandwidth fully.
    """

    latency_s: tuple[tuple[str, float], ...]
    link_bytes_per_s: tuple[tuple[str, float], ...]

    def __init__(self, latency_s: Mapping[str, float], link_bytes_per_s: Mapping[str, float]):
        object.__setattr__(self, "latency_s", tuple(latency_s.items()))
        object.__setattr__(self, "link_bytes_per_s", tuple(link_bytes_per_s.items()))

    def step_cost(
        self, kind: str, elements_in: int, elements_out: int, element_bytes: float, axes: tuple[tuple[str, int], ...]
    ) -> float:
        """Seconds."""
        if kind == "all_slice" or not axes:
            return 0.0
        latency, bandwidth = dict(self.latency_s), dict(self.link_bytes_per_s)
        for name, _ in axes:
            if name not in latency or name not in bandwidth:
                raise DistributedTypeError(f'axis "{name}" has no latency or bandwidth', hint=closest(name, bandwidth))
        n = math.prod(size for _, size in axes)
        sent = sent_share(kind, n) * elements_in * element_bytes
        rounds = 2 if kind == "all_reduce" else 1
        return rounds * sum(latency[a] for a, _ in axes) + sent / min(bandwidth[a] for a, _ in axes)


def sent_share(kind: str, devices: int) -> float:
    """How many times its local input a device sends in a collective among `devices`."""
    others = (devices - 1) / devices
    shares = {"all_slice": 0.0, "all_gather": devices - 1.0, "all_permute": 1.0, "all_reduce": 2 * others}
    return shares.get(kind, others)


_NAMED: dict[str, CollectiveCost] = {"elements": Elements()}


def named_cost(cost: str | CollectiveCost) -> CollectiveCost:
    """The cost of that name, or `cost` itself. Raises `UnknownNameError`."""
    if not isinstance(cost, str):
        return cost
    if cost not in _NAMED:
        raise UnknownNameError(f'no redistribution cost is called "{cost}"', hint=closest(cost, _NAMED))
    return _NAMED[cost]
