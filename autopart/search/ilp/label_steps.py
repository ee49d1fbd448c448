"""Seconds between any two labels of a type: single collectives, and the cheapest sequences of them.

    (1, 2) -> (0, 0)    all_gather over a and b at once                        one step
    (1, 0) -> (0, 2)    all_gather over a, then a slice over b; or a permutation, where a and b are equal
    (17, 1) -> (1, 2)   an all_to_all over b, then a reduce_scatter over a; or the other way round

A step changes some axes, all of them alike: it gathers, exchanges, reduces whole, reduces into tiles, slices, or
permutes tiles of equal size. Its seconds are those of the simulator's collective over these axes of the bytes that a
device has before. Any axes may go together and labels say nothing of orders, so there are more steps here than a
lowering has, and a sequence never costs more than the plan that a lowering makes. A lowering also moves parts of axes:
where axes of unlike sizes change places, the least is an exchange of the smaller tile over one of them, or where tiles
become whole, the bytes that a device has to be sent (`growth_rates`), and the least latency (`least_latencies.py`).

    (3, 1) -> (0, 2) on {a: 16, b: 2}    what b exchanges is small, but each device gets 15 tiles along a: no less
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopart.base.jit.kernels import allocating_kernel
from autopart.core.layout import LAST_TILE
from autopart.core.op import TensorType
from autopart.costmodel.compiled.links.collective_seconds import collective_s
from autopart.costmodel.hardware.fabric import ALL_GATHER, ALL_PERMUTE, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from autopart.costmodel.hardware.links import AXIS, SIZE, Links
from autopart.search.ilp.labels import Label, is_pending, local_dims, ways
from autopart.search.ilp.least_latencies import least_latencies

USE, DEF, PLAN, WAIT = 0, 1, 2, 3
"""Rows of a table: a move before a use at least, one from an op to its only reader, and a move as plans usually are;
one from an op to where the value waits."""

SLICE, MIXED = -1, -2
"""In place of a collective's kind: a step that moves nothing, and what no single step does."""


def move_seconds(type_: TensorType, labels: Sequence[Label], links: Links, *, sequences: bool) -> np.ndarray:
    """float64[3, labels, labels]: rows `USE`, `DEF` and `PLAN`; infinite where the target awaits what the source does
    not. Without `sequences`, what takes several steps costs nothing in the first two, and all its axes' moves in turn
    are not known to the third: it is infinite there."""
    sizes, device = links.mesh.axis_sizes, links.device
    whole = float(np.prod(np.array(type_.shape, np.float64))) * type_.element_bytes
    held = np.array([whole / ways(label, sizes) for label in labels])
    codes = np.array(labels, np.int64).reshape(len(labels), len(sizes))
    leading = np.array([_leading(type_, label, sizes) for label in labels], np.int64)
    rate = device.hbm_bytes_per_s * device.hbm_efficiency
    copies = np.array([device.launch_s, rate, float(device.strided_collectives)])
    grown = growth_rates(np.array(sizes, np.float64), whole, links.segments, links.fabrics, links.curves)
    latency = least_latencies(links)
    found = np.full((3, len(labels), len(labels)), np.inf)
    _fill(
        codes, np.array(sizes, np.float64), held, leading, copies, grown, latency, links.segments, links.fabrics,
        links.curves, found,
    )  # fmt: skip
    if sequences:
        for table in found:
            _close(table)
        return found
    awaits = np.array([[is_pending(c) for c in label] for label in labels]).reshape(codes.shape)
    lacks = ((codes[:, None, :] != codes[None, :, :]) & awaits[None, :, :]).any(axis=2)
    for table in found[:PLAN]:
        table[np.isinf(table) & ~lacks] = 0.0
    return found


@allocating_kernel
def growth_rates(
    sizes: np.ndarray, whole: float, segments: np.ndarray, fabrics: np.ndarray, curves: np.ndarray
) -> np.ndarray:
    """float64[2, masks of axes]: seconds for each byte by which a device's part grows along these axes, at least; and
    for each byte that a gather or a reduction over them adds or takes away where one of them has parts, in and between
    chips or along a line, since a lowering may do that part by part, with fewer hops; infinite elsewhere.

    Only gathers make parts grow. One over other axes helps where a permutation of what it starts from changes their
    places with these, and one over more axes than these either does that, or makes what is cut away again. Any part of
    an axis may go alone, so an axis within and between chips counts as its fastest part. Time is at most proportional
    to bytes, latency apart, so the rate is that of the largest array, of `whole` bytes.
    """
    axes, masks = len(sizes), 1 << len(sizes)
    rates, swapped = np.full((2, masks), np.inf), np.inf
    gathered, parts = np.full((masks, 2), np.inf), np.ones(masks)
    for mask in range(1, masks):
        for a in range(axes):
            if mask >> a & 1:
                parts[mask] *= sizes[a]
        for which in range(-1, segments.shape[0]):
            used = segments if which < 0 else segments[which : which + 1]
            n = 1.0
            for i in range(used.shape[0]):
                if mask >> int(used[i, AXIS]) & 1:
                    n *= used[i, SIZE]
            if n == 1:
                continue
            bytes_ = max(1.0, whole / n)
            least = collective_s(ALL_GATHER, 1e-6, mask, used, fabrics, curves)
            link_s = collective_s(ALL_GATHER, bytes_, mask, used, fabrics, curves) - least
            gathered[mask, 0] = min(gathered[mask, 0], link_s / bytes_ / (n - 1))
            least = collective_s(ALL_PERMUTE, 1e-6, mask, used, fabrics, curves)
            swapped = min(swapped, (collective_s(ALL_PERMUTE, bytes_, mask, used, fabrics, curves) - least) / bytes_)
        gathered[mask, 1] = gathered[mask, 0] * (parts[mask] - 1)
        for a in range(axes):
            if mask >> a & 1 and sizes[a] > 3:
                rates[1, mask] = gathered[mask, 0]
    for wanted in range(1, masks):
        for mask in range(1, masks):
            if parts[mask] == 1:
                continue
            if parts[mask & wanted] > 1:
                rates[0, wanted] = min(rates[0, wanted], gathered[mask, 1] / (parts[mask & wanted] - 1))
            if mask & ~wanted:
                rates[0, wanted] = min(rates[0, wanted], gathered[mask, 0] + swapped / (parts[mask] - 1))
        if rates[0, wanted] == np.inf:
            rates[0, wanted] = 0.0
    return rates


def _leading(type_: TensorType, label: Label, sizes: Sequence[int]) -> int:
    """The first dim of which a device holds more than one element: a collective along it needs no copy."""
    dims = local_dims(type_.shape, label, sizes)
    return next((d for d, n in enumerate(dims) if n > 1), 0)


@allocating_kernel
def _fill(
    codes: np.ndarray,
    sizes: np.ndarray,
    held: np.ndarray,
    leading: np.ndarray,
    copies: np.ndarray,
    grown: np.ndarray,
    latency: np.ndarray,
    segments: np.ndarray,
    fabrics: np.ndarray,
    curves: np.ndarray,
    found: np.ndarray,
) -> None:
    """The steps between labels: codes int64[labels, axes], sizes float64[axes], held float64[labels] bytes, leading
    int64[labels] dims; copies: seconds of a launch, bytes/s of memory, 1.0 if collectives work along any dim in place;
    grown: see `growth_rates`; latency: see `least_latencies`.
    """
    labels, axes = codes.shape
    for i in range(labels):
        for j in range(labels):
            kind, mask, dims = MIXED, 0, 0
            for a in range(axes):
                s, t = codes[i, a], codes[j, a]
                if s == t:
                    continue
                mask |= 1 << a
                own = MIXED
                if t > LAST_TILE:
                    own = MIXED
                elif s > LAST_TILE:
                    own = ALL_REDUCE if t == 0 else REDUCE_SCATTER
                elif s == 0:
                    own = SLICE
                else:
                    own = ALL_GATHER if t == 0 else ALL_TO_ALL
                if t > LAST_TILE or (kind != MIXED and own != kind and dims >= 0):
                    dims = -1
                kind = own
                if dims >= 0:
                    dims |= 1 << (t if s > LAST_TILE or s == 0 else s)
            if mask == 0:
                found[:, i, j] = 0.0
                continue
            if dims >= 0 and kind == SLICE:
                found[:, i, j] = 0.0
                continue
            if dims >= 0:
                link_s = collective_s(kind, held[i], mask, segments, fabrics, curves)
                found[0, i, j] = found[1, i, j] = found[2, i, j] = link_s
                if kind in (ALL_REDUCE, REDUCE_SCATTER):
                    found[1, i, j] -= min(link_s, collective_s(kind, 1.0, mask, segments, fabrics, curves))
                if kind in (ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER) and grown[1, mask] < np.inf:
                    n = 1.0
                    for a in range(axes):
                        n *= sizes[a] if mask >> a & 1 else 1.0
                    moved = (n - 1) * held[i] if kind == ALL_GATHER else (1 - 1 / n) * held[i]
                    moved *= 2.0 if kind == ALL_REDUCE else 1.0
                    by_parts = grown[1, mask] * moved + latency[mask] * (2.0 if kind == ALL_REDUCE else 1.0)
                    found[0, i, j], found[1, i, j] = min(link_s, by_parts), min(found[1, i, j], by_parts)
                along = 1 << 1 + (leading[j] if kind == ALL_GATHER else leading[i])
                if kind == ALL_TO_ALL:
                    found[2, i, j] += 2 * copies[0] + 2 * (held[i] + held[j]) / copies[1]
                elif kind != ALL_REDUCE and dims != along and (copies[2] == 0 or dims & (dims - 1) != 0):
                    found[2, i, j] += copies[0] + 2 * max(held[i], held[j]) / copies[1]
            tiles, unlike, size, whole, parts = True, False, 0.0, 0, 1.0
            for a in range(axes):
                if codes[i, a] == codes[j, a]:
                    continue
                if codes[i, a] > LAST_TILE or codes[j, a] > LAST_TILE:
                    tiles = False
                unlike = unlike or (size > 0 and sizes[a] != size)
                size = sizes[a]
                if codes[j, a] == 0:
                    whole |= 1 << a
                    parts *= sizes[a]
            if tiles and unlike and codes[i].max() > 0 and codes[j].max() > 0:
                bytes_, least = min(held[i], held[j]), np.inf
                for a in range(axes):
                    if mask >> a & 1:
                        for step in (ALL_PERMUTE, ALL_TO_ALL):
                            link_s = collective_s(step, bytes_, 1 << a, segments, fabrics, curves)
                            least = min(least, link_s - collective_s(step, 1.0, 1 << a, segments, fabrics, curves))
                least = max(least, grown[0, whole] * held[j] * (1 - 1 / parts)) + latency[0]
                found[0, i, j], found[1, i, j] = min(found[0, i, j], least), min(found[1, i, j], least)
            if tiles and held[i] == held[j]:
                link_s = collective_s(ALL_PERMUTE, held[i], mask, segments, fabrics, curves)
                for row in range(3):
                    found[row, i, j] = min(found[row, i, j], link_s)


@allocating_kernel
def _close(table: np.ndarray) -> None:
    """Puts in each place of float64[labels, labels] the cheapest sequence (Floyd and Warshall)."""
    labels = table.shape[0]
    for k in range(labels):
        for i in range(labels):
            first = table[i, k]
            if first < np.inf:
                for j in range(labels):
                    both = first + table[k, j]
                    if both < table[i, j]:
                        table[i, j] = both
