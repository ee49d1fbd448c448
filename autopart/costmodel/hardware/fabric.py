"""How devices are wired: the words a `Device` entry uses to describe its interconnect.

    TPU v5e     Torus      chips of one core in a 16 x 16 torus, 45 GB/s per link and direction
                Network    the data-center network between slices
    H100        Switch     8 devices, each with 450 GB/s into an NVLink switch, with fitted collective curves
                Network    InfiniBand between nodes

Fabrics are ordered inner to outer: `CHIP` (the cores of a chip), `FAST` (ICI or NVLink), `NETWORK`. A mesh axis is cut
into segments, each on one fabric (`links.py`); `compiled/links/collective_seconds.py` has the seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autopart.base.arguments import shown
from autopart.base.errors import PartitionError

CHIP, FAST, NETWORK = 0, 1, 2
"""Fabric numbers, inner to outer: within a chip; ICI, NVLink or host memory; the network between slices or nodes."""

ANY_NUMBER = 1 << 30
"""More devices than any mesh has: the domain of a switch that has room for all."""

COLLECTIVE_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_permute", "all_slice")
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, ALL_PERMUTE, ALL_SLICE = range(6)
"""Codes of the collectives, indices of `COLLECTIVE_KINDS`; all_slice keeps a part and moves nothing."""


class DeviceError(PartitionError):
    """A device entry with a number that is missing, zero, negative or without its source."""


def positive(owner: str, **numbers: object) -> None:
    """Raises `DeviceError` unless every number is above zero and finite."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise DeviceError(f"{owner}: {name} is {shown(value)}", why="it must be a positive, finite number")


@dataclass(frozen=True)
class CollectiveCurve:
    """Seconds of one collective through a switch, against group size n and bytes.

        launch + step * steps + wire / W + local / C + sqrt(ramp * wire),   or wire / W_slow while wire < slow_below

    `wire` is what each device sends, `local` the shard it copies to itself; the square root is what is left of the
    pipeline's fill after its chunk size has been chosen best. Point-to-point sends start with few channels: up to
    `slow_below_bytes` they run at `slow_bytes_per_s`.

    Between nodes, of each of which `inner` devices take part:

    alone_s           launch of a collective that has no stage inside a node: inner = 1
    level_s           each level of a tree over n nodes, twice in an all_reduce
    ring_s, inside_s  a step of a ring over all devices takes ring_s + inside_s (inner - 1), if that exceeds `step_s`
    node_bytes_per_s  what the devices of a node send at most together
    """

    launch_s: float
    step_s: float
    wire_bytes_per_s: float
    local_bytes_per_s: float = float("inf")
    ramp_s2_per_byte: float = 0.0
    slow_bytes_per_s: float = float("inf")
    slow_below_bytes: float = 0.0
    alone_s: float = 0.0
    level_s: float = 0.0
    ring_s: float = 0.0
    inside_s: float = 0.0
    node_bytes_per_s: float = float("inf")

    def __post_init__(self) -> None:
        positive("a collective's curve", wire_bytes_per_s=self.wire_bytes_per_s)
        latencies = (self.launch_s, self.step_s, self.level_s)
        if min(latencies) < 0 or sum(latencies) <= 0:
            raise DeviceError(
                "a collective's curve: no latency",
                why=f"launch_s={self.launch_s}, step_s={self.step_s}, level_s={self.level_s}",
            )

    def row(self) -> tuple[float, ...]:
        """The numbers in the order the kernels read them, bandwidths as seconds per byte."""
        wire_s, local_s, slow_s = 1 / self.wire_bytes_per_s, 1 / self.local_bytes_per_s, 1 / self.slow_bytes_per_s
        inside = (self.launch_s, self.step_s, wire_s, local_s, self.ramp_s2_per_byte, slow_s, self.slow_below_bytes)
        return (*inside, self.alone_s, self.level_s, self.ring_s, self.inside_s, 1 / self.node_bytes_per_s)


@dataclass(frozen=True)
class Switch:
    """`domain` devices, each with `bytes_per_s` one way into a non-blocking switch.

    `curves` maps collective kinds to fitted curves; a kind without one runs at `efficiency` of `bytes_per_s` with
    `latency_s` per step. "all_reduce_in_switch" is the curve of reductions done by the switch itself, taken from
    `in_switch_group` devices on.
    """

    domain: int
    bytes_per_s: float
    latency_s: float
    efficiency: float = 1.0
    curves: Mapping[str, CollectiveCurve] = field(default_factory=dict)
    in_switch_group: int = 0

    def __post_init__(self) -> None:
        positive("switch", domain=self.domain, bytes_per_s=self.bytes_per_s, latency_s=self.latency_s)
        positive("switch", efficiency=self.efficiency)
        known = {*COLLECTIVE_KINDS, "all_reduce_in_switch"}
        if unknown := set(self.curves) - known:
            raise DeviceError(f"switch: no collective is called {sorted(unknown)[0]!r}", hint=", ".join(sorted(known)))

    def curve(self, kind: str) -> CollectiveCurve:
        """The fitted curve of `kind`, or plain alpha-beta: direct for all_to_all and all_permute, else a ring."""
        direct = kind in ("all_to_all", "all_permute")
        launch_s, step_s = (self.latency_s, 0.0) if direct else (0.0, self.latency_s)
        return self.curves.get(kind) or CollectiveCurve(launch_s, step_s, self.efficiency * self.bytes_per_s)

    def algorithms_of(self, kind: str) -> tuple[CollectiveCurve, ...]:
        """Ways to do `kind`, of which the fastest is taken at each size: here one."""
        return (self.curve(kind),)


@dataclass(frozen=True)
class Torus:
    """A pod of `pod` chips, each with a link of `bytes_per_s` one way to either neighbour in every dimension.

    A dimension of length L closes to a ring when L is a multiple of `wrap_multiple`; shorter slices are lines.
    """

    pod: tuple[int, ...]
    bytes_per_s: float
    hop_s: float
    wrap_multiple: int

    def __post_init__(self) -> None:
        positive("torus", bytes_per_s=self.bytes_per_s, hop_s=self.hop_s, wrap_multiple=self.wrap_multiple)
        for length in self.pod:
            positive("torus", pod=length)

    def wraps(self, length: int) -> bool:
        """Whether a slice `length` chips long closes to a ring in that dimension."""
        return length > 2 and length % self.wrap_multiple == 0


@dataclass(frozen=True)
class Network:
    """The network between slices or nodes: `bytes_per_s` one way per device, `latency_s` per message.

    `algorithms` maps collective kinds to curves, of which the fastest is taken at each size (`nccl.py`); a kind without
    them is a ring of messages, and all_to_all and all_permute one message.
    """

    bytes_per_s: float
    latency_s: float
    name: str = "dcn"
    algorithms: Mapping[str, tuple[CollectiveCurve, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive("network", bytes_per_s=self.bytes_per_s, latency_s=self.latency_s)
        if unknown := set(self.algorithms) - set(COLLECTIVE_KINDS):
            hint = ", ".join(COLLECTIVE_KINDS)
            raise DeviceError(f"network: no collective is called {sorted(unknown)[0]!r}", hint=hint)

    def algorithms_of(self, kind: str) -> tuple[CollectiveCurve, ...]:
        """Ways to do `kind`: any number of devices behind one switch."""
        return self.algorithms.get(kind) or (Switch(ANY_NUMBER, self.bytes_per_s, self.latency_s).curve(kind),)
