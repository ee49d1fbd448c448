"""Seconds of a collective, by kind, wiring and the mesh axes it spans.

With m bytes per device before, S bytes of the whole array, n devices in the group, W bytes/s one way, a the latency:

                    switch                                    torus, g chips in each of k dimensions
    all_gather      (n-1) a + (n-1)/n S/W                     sum(hops) a + (n-1)/n S/sum(links W)
    reduce_scatter  the same                                  the same
    all_reduce      twice                                     twice
    all_to_all      a + (n-1)/n m/W                           sum(hops) a + max(g) m/(8 W) in rings, /(4 W) in lines
    all_permute     a + m/W                                   max(hops) a + m/W

hops is g/2 and links 2 in a ring, g-1 and 1 in a line. Switches with measured curves use `CollectiveCurve` instead,
and GPU nodes the fastest of NCCL's algorithms at each size (`hardware/nccl.py`).
A group over several fabrics works hierarchically: reduce within the chip and the fast fabric, exchange the shards
over the network, gather back. all_slice moves nothing.

Formulas: collective algorithms as in the scaling book and NCCL's tuning; they are the kernels below, which search
calls, and the Python functions call the same kernels.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import math

import numpy as np

from autopart.base.errors import MeshError, UnknownNameError
from autopart.base.jit.kernels import kernel
from autopart.costmodel.hardware.fabric import (
    ALL_GATHER,
    ALL_PERMUTE,
    ALL_REDUCE,
    ALL_SLICE,
    ALL_TO_ALL,
    COLLECTIVE_KINDS,
    REDUCE_SCATTER,
)
from autopart.costmodel.hardware.links import AXIS, DIMENSION, FABRIC, FAST, RING, SIZE, STRIDE, Links


@kernel
def curve_s(kind: int, n: float, inner: float, whole_bytes: float, row: np.ndarray) -> float:
    """Seconds through a switch, by one `CollectiveCurve.row()`.

    `whole_bytes` is S for gathers and reductions, m for all_to_all and all_permute. Behind each of the n places of the
    switch are `inner` devices of the group, between which another stage works.
    """
    wire, local, steps, levels = whole_bytes, 0.0, 0.0, 0.0
    if kind != ALL_PERMUTE:
        wire, local, steps, levels = whole_bytes * (n - 1) / n, whole_bytes / n, n - 1.0, math.floor(math.log2(n))
    if kind == ALL_REDUCE:
        wire, steps, levels = 2 * wire, 2 * steps, 2 * levels
    launch_s = row[0] + (row[7] if inner == 1 else 0.0)
    step_s = max(row[1], row[9] + row[10] * (inner - 1))
    fast_s = max(wire * max(row[2], inner * row[11]), min(wire, row[6]) * row[5])
    return launch_s + step_s * steps + row[8] * levels + fast_s + local * row[3] + math.sqrt(row[4] * wire)


@kernel
def _torus_s(
    kind: int,
    n: float,
    whole_bytes: float,
    mask: int,
    segments: np.ndarray,
    link_bytes_per_s: float,
    hop_s: float,
) -> float:
    """Seconds through the torus; `whole_bytes` as in `curve_s`."""
    all_hops, max_hops, links, congestion = 0.0, 0.0, 0.0, 0.0
    for i in range(segments.shape[0]):
        if segments[i, FABRIC] != FAST or not mask >> int(segments[i, AXIS]) & 1:
            continue
        first, g, stride = True, 1.0, np.inf
        for j in range(segments.shape[0]):
            same = segments[j, FABRIC] == FAST and segments[j, DIMENSION] == segments[i, DIMENSION]
            if same and mask >> int(segments[j, AXIS]) & 1:
                first = first and j >= i
                g *= segments[j, SIZE]
                stride = min(stride, segments[j, STRIDE])
        if not first:
            continue
        ring = segments[i, RING] > 0 and g * stride == segments[i, RING]
        hops = g * stride / 2 if ring else (g - 1) * stride
        all_hops += hops
        max_hops = max(max_hops, hops)
        links += (2 if ring else 1) / stride
        congestion = max(congestion, g * stride / (8 if ring else 4))
    if kind == ALL_TO_ALL:
        return all_hops * hop_s + congestion * whole_bytes / link_bytes_per_s
    if kind == ALL_PERMUTE:
        return max_hops * hop_s + whole_bytes / link_bytes_per_s
    rounds = 2 if kind == ALL_REDUCE else 1
    return rounds * (all_hops * hop_s + (n - 1) / n * whole_bytes / (links * link_bytes_per_s))


@kernel
def _stage_s(
    kind: int,
    fabric: int,
    n: float,
    inner: float,
    whole_bytes: float,
    mask: int,
    segments: np.ndarray,
    fabrics: np.ndarray,
    curves: np.ndarray,
) -> float:
    """One fabric's part of a collective, by the fastest of the ways to do it; `inner` as in `curve_s`."""
    if fabrics[fabric, 0] == 2:
        return _torus_s(kind, n, whole_bytes, mask, segments, fabrics[fabric, 1], fabrics[fabric, 2])
    in_switch = kind == ALL_REDUCE and 0 < fabrics[fabric, 3] <= n
    ways, seconds = curves[fabric, 5 if in_switch else kind], np.inf
    for way in range(ways.shape[0]):
        if ways[way, 0] == np.inf:
            break
        seconds = min(seconds, curve_s(kind, n, inner, whole_bytes, ways[way]))
    return seconds


@kernel
def _along(fabric: int, mask: int, segments: np.ndarray) -> float:
    """Devices of a group along one fabric."""
    n = 1.0
    for i in range(segments.shape[0]):
        if segments[i, FABRIC] == fabric and mask >> int(segments[i, AXIS]) & 1:
            n *= segments[i, SIZE]
    return n


@kernel
def saved_s(
    kind: int, bytes_in: float, held: float, mask: int, segments: np.ndarray, fabrics: np.ndarray, curves: np.ndarray
) -> float:
    """What a collective saves by running as one with others, which send `held` bytes: latency, and a pipeline's fill.

    No less where more are held: seconds are concave in bytes. Arguments as of `collective_s`.
    """
    alone = collective_s(kind, bytes_in, mask, segments, fabrics, curves)
    others = collective_s(kind, held, mask, segments, fabrics, curves)
    return alone + others - collective_s(kind, bytes_in + held, mask, segments, fabrics, curves)


@kernel
def collective_s(
    kind: int, bytes_in: float, mask: int, segments: np.ndarray, fabrics: np.ndarray, curves: np.ndarray
) -> float:
    """Seconds of one collective; the arrays are those of `Links`.

    kind      code of `COLLECTIVE_KINDS`
    bytes_in  bytes on each device before it
    mask      bit a is set for every mesh axis a of the group
    """
    outermost, group = -1, 1.0
    for fabric in range(3):
        n = _along(fabric, mask, segments)
        group *= n
        outermost = fabric if n > 1 else outermost
    if kind == ALL_SLICE or bytes_in <= 0 or outermost < 0:
        return 0.0
    seconds, part, inner = 0.0, bytes_in * group if kind == ALL_GATHER else bytes_in, 1.0
    for fabric in range(outermost + 1):
        n = _along(fabric, mask, segments)
        if n == 1:
            continue
        if kind == ALL_PERMUTE:
            seconds = max(seconds, _stage_s(kind, fabric, n, 1.0, bytes_in, mask, segments, fabrics, curves))
        elif kind == ALL_TO_ALL:
            seconds += _stage_s(kind, fabric, n, inner, bytes_in, mask, segments, fabrics, curves)
        elif kind == ALL_REDUCE and fabric < outermost:
            seconds += _stage_s(REDUCE_SCATTER, fabric, n, inner, part, mask, segments, fabrics, curves)
            seconds += _stage_s(ALL_GATHER, fabric, n, inner, part, mask, segments, fabrics, curves)
            part /= n
        else:
            seconds += _stage_s(kind, fabric, n, inner, part, mask, segments, fabrics, curves)
            part /= n
        inner *= n
    return seconds


def collective_seconds(links: Links, kind: str, bytes_in: float, axes: tuple[str, ...] | str) -> float:
    """Seconds of the collective `kind` of `bytes_in` bytes per device (before it) over mesh `axes`.

    Raises `UnknownNameError` for an unknown kind, `MeshError` for an unknown axis or negative bytes.
    """
    if kind not in COLLECTIVE_KINDS:
        raise UnknownNameError(f'no collective is called "{kind}"', hint=", ".join(COLLECTIVE_KINDS))
    if not bytes_in >= 0:
        raise MeshError(f"{kind} of {bytes_in} bytes", why="bytes are zero or more")
    names = (axes,) if isinstance(axes, str) else axes
    mask = sum({1 << links.mesh.index(a) for a in names})
    code = COLLECTIVE_KINDS.index(kind)
    return float(collective_s(code, float(bytes_in), mask, links.segments, links.fabrics, links.curves))
