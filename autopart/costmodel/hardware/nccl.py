"""NCCL's collectives between GPU nodes, as curves of a network: what its own tuning model says of each algorithm.

    scalar, 8 nodes of 8     tree, LL      inside 8: as measured, between nodes 2 * 3 levels of 5.0 us
    1 GB, 8 nodes of 8       ring, Simple  14 steps of 14 + 7 * 3.4 us, and all of the network's rate

A collective takes the algorithm and protocol that is fastest at its size. Numbers are those of `src/graph/tuning.cc` in
NVIDIA/nccl (5067397c, June 2026): `hwLatencies`, `baseLatencies`, `llMaxBws`, the overhead of a message of
`getNetOverhead`, and the shares of a bus that protocols and trees reach. Left out: its corrections of trees by powers
of two of the size, which have steps; NVLS trees and PAT, which not every system has; and limits by channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from autopart.costmodel.hardware.fabric import CollectiveCurve, Network

TREE_SHARE = 0.92
"""Of the network's rate, what a tree reaches."""

LL_NODE_BYTES_PER_S = 20.4e9
"""All devices of a node together, by protocol LL between three nodes and more, with CPUs of Intel (AMD: 19.0)."""


class _Protocol(NamedTuple):
    """How a message is sent.

    launch_s         more than LL takes to begin
    level_s          of a tree between nodes; also a message whose latency nothing hides: of nodes with one device
    ring_s           a step of a ring between nodes, among others; `inside_s`: one inside a node
    message_s        posting one to the network
    ring_share, tree_share   of the network's rate
    node_bytes_per_s         at most, all devices of a node together
    """

    launch_s: float
    level_s: float
    ring_s: float
    inside_s: float
    message_s: float
    ring_share: float
    tree_share: float
    node_bytes_per_s: float = float("inf")


LL = _Protocol(0.0, 5.0e-6, 2.7e-6, 1.0e-6, 1.0e-6, 0.5, TREE_SHARE / 3.8, LL_NODE_BYTES_PER_S)
LL128 = _Protocol(7.4e-6, 8.5e-6, 4.0e-6, 1.9e-6, 1.0e-6, 0.92, TREE_SHARE * 120 / 128)
SIMPLE = _Protocol(1.8e-6, 14e-6, 14e-6, 3.4e-6, 3.0e-6, 1.0, TREE_SHARE)


COMPLETION_S = 3e-6
"""What completing a message adds by protocol Simple where its latency is given."""


def nccl_network(
    bytes_per_s: float, inside: Mapping[str, CollectiveCurve], name: str = "ib", message_s: float | None = None
) -> Network:
    """The network between nodes of GPUs, each with `bytes_per_s` one way.

    `inside` has the measured curves inside a node: a collective between nodes alone takes their launch. `message_s` is
    the latency of a message where it is another than InfiniBand's.
    """
    alone = {kind: curve.launch_s for kind, curve in inside.items()}

    def ring(p: _Protocol, kind: str) -> CollectiveCurve:
        return CollectiveCurve(
            p.launch_s, p.level_s, bytes_per_s * p.ring_share, alone_s=alone[kind], ring_s=p.ring_s,
            inside_s=p.inside_s, node_bytes_per_s=p.node_bytes_per_s,
        )  # fmt: skip

    def tree(p: _Protocol) -> CollectiveCurve:
        return CollectiveCurve(
            p.launch_s, 0.0, bytes_per_s * p.tree_share, alone_s=alone["all_reduce"], level_s=p.level_s,
            node_bytes_per_s=p.node_bytes_per_s,
        )  # fmt: skip

    def pairs(p: _Protocol, kind: str) -> CollectiveCurve:
        each = p.message_s if kind == "all_to_all" else 0.0
        return CollectiveCurve(
            p.launch_s + p.level_s, each, bytes_per_s * p.ring_share, alone_s=alone[kind], ring_s=each, inside_s=each,
            node_bytes_per_s=p.node_bytes_per_s,
        )  # fmt: skip

    every = (LL, LL128, SIMPLE)
    if message_s is not None:
        slow = (message_s, message_s, message_s + COMPLETION_S)
        every = tuple(p._replace(level_s=s, ring_s=s) for p, s in zip(every, slow, strict=True))
    rings = {kind: tuple(ring(p, kind) for p in every) for kind in ("all_gather", "reduce_scatter", "all_reduce")}
    rings["all_reduce"] += tuple(tree(p) for p in every)
    sends = {kind: tuple(pairs(p, kind) for p in (every[0], every[2])) for kind in ("all_to_all", "all_permute")}
    return Network(bytes_per_s, every[2].level_s, name, algorithms={**rings, **sends})
