"""What a plan takes of any shape of a class: its steps and their forms as arrays, priced by a kernel.

    [48, 1024, 4096] on {x:16, y:2}          48 = 16 * 3,  1024 = 32 * 32,  4096 = 32 * 128
    [1024, 512, 32000] is alike              64 * 16       16 more of 32    1000 of 32
    a local array [1, 512, 4096]             1/16 of 16 * 3, half of 32 * 32, all of 32 * 128

Arrays whose dims can be cut alike have the same plan by Figure 11 (`spmd/redistribution/shape_classes.py`), its steps
have the same forms, and each form copies the same arrays: each of their dims is so many times what no axis cuts of a
dim of the whole. So a plan is made for one shape of a class, and looked at: there what no axis cuts of a dim is a prime
of its own, which says of every number in a local shape what it is of. Dims of which axes may cut everything are told
apart, since dims of one element may stand anywhere.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from autopart.base.jit.kernels import allocating_kernel, kernel
from autopart.costmodel.compiled.links.collective_seconds import collective_s, saved_s
from autopart.costmodel.compiled.links.redistribution_seconds import (
    gather_granules,
    group_segments,
    scatter_granules,
    scatters_to_all,
    shards_of,
)
from autopart.costmodel.compiled.sizes import padded_elements
from autopart.costmodel.hardware.fabric import ALL_GATHER, ALL_REDUCE, COLLECTIVE_KINDS, REDUCE_SCATTER
from autopart.costmodel.hardware.links import Links
from autopart.spmd.redistribution import DistributedType, Step, plan
from autopart.spmd.redistribution.forms import forms, other_ways
from autopart.spmd.redistribution.local_copies import local_copies
from autopart.spmd.redistribution.shape_classes import smallest_shape

FIRST_PRIME = 1 << 20
"""The primes of dims are above any size of a mesh axis."""

ShapeClass = tuple[tuple[int, bool], ...]
"""Per dim: the largest part of it that axes may cut, and whether that leaves more than one element."""

STEP_FIELDS = np.dtype(
    [
        ("place", np.int64), ("form", np.int64), ("part", np.int64),
        ("kind", np.int64), ("mask", np.int64), ("ways_in", np.int64), ("ways_out", np.int64),
        ("segments_end", np.int64), ("shards_end", np.int64), ("held_end", np.int64),
    ],
    align=True,
)  # fmt: skip
HELD_FIELDS = np.dtype([("in_order", np.int64), ("dims_end", np.int64)], align=True)


class PlanTerms(NamedTuple):
    """A plan's steps in all their forms; make it with `plan_terms`. An `..._end` is where what belongs to a row ends.

    steps     of each form all steps, as they are and in their other ways: `place` in the plan, `form` of that, `part`
              of the form; collective, mask of axes, ways in which the array is cut before and after
    segments  float64[:, 6] of the group of each step, as `Links` has them
    shards    int64[:, 2] (dim, times): what must be whole layout tiles
    held      the local arrays that copies read and write
    dims      int64[:, 2] (dim, times) of each of them; -1: a dim of so many elements
    alone     1 for a plan of one step
    """

    steps: Any
    segments: np.ndarray
    shards: np.ndarray
    held: Any
    dims: np.ndarray
    alone: int


class Sized(NamedTuple):
    """An array of a class, without its dims of 1; make it with `Sized.of`.

    left      float64[rank]: what is left of each dim if axes cut all that they may
    gathers, scatters    float64[rank]: what shards must be multiples of (`gather_granules`, `scatter_granules`)
    elements, element_bytes    of the whole array
    """

    left: np.ndarray
    gathers: np.ndarray
    scatters: np.ndarray
    elements: float
    element_bytes: float

    @staticmethod
    def of(shape: tuple[int, ...], element_bytes: float, links: Links) -> Sized:
        """The array on the devices of a mesh; none of its dims may be 0."""
        smallest = smallest_shape(shape, tuple(links.mesh.shape.items()))
        more = np.array(shape, np.int64) != 1
        tile = links.device.layout_tile
        gathers, scatters = (np.array(f(shape, tile), np.float64)[more] for f in (gather_granules, scatter_granules))
        left = np.array([n // m for n, m in zip(shape, smallest, strict=True)], np.float64)
        return Sized(left[more], gathers, scatters, float(math.prod(shape)), float(element_bytes))


def shape_class(shape: tuple[int, ...], mesh: tuple[tuple[str, int], ...]) -> ShapeClass:
    """The class of a shape without dims of 0; dims of 1 are left out."""
    return tuple((m, n > m) for n, m in zip(shape, smallest_shape(shape, mesh), strict=True) if n != 1)


def shape_of(class_: ShapeClass) -> tuple[int, ...]:
    """The shape of a class that is looked at: what is left of each dim is a prime of its own, or nothing."""
    return tuple(m * (_prime(dim) if more else 1) for dim, (m, more) in enumerate(class_))


@cache
def _prime(number: int) -> int:
    """The primes from `FIRST_PRIME` on."""
    begin = FIRST_PRIME if number == 0 else _prime(number - 1) + 1
    return next(n for n in itertools.count(begin) if all(n % d for d in range(2, math.isqrt(n) + 1)))


@dataclass(frozen=True)
class _Rows:
    """The rows of `PlanTerms` as they are found."""

    class_: ShapeClass
    links: Links
    steps: list[tuple[int, ...]]
    segments: list[np.ndarray]
    shards: list[tuple[int, int]]
    held: list[tuple[int, int]]
    dims: list[tuple[int, int]]

    def add(self, step: Step, place: int, form: int, part: int) -> None:
        """A step in one of its forms."""
        device, whole = self.links.device, math.prod(step.source.shape)
        segments, mask = group_segments(self.links, step.spanned)
        self.segments.append(segments)
        self.shards.extend((dim, self._times(dim, size)) for dim, size in shards_of(step).items())
        copies = local_copies(step, strided=device.strided_collectives, tiled=device.layout_tile[1] > 1)
        for held in itertools.chain(*copies[0], *copies[1]):
            self.dims.extend(self._part(n) for n in held.shape if n != 1)
            self.held.append((int(held.in_order), len(self.dims)))
        ways = (whole // step.source.local_elements, whole // step.target.local_elements)
        ends = (sum(map(len, self.segments)), len(self.shards), len(self.held))
        kind = ALL_REDUCE if scatters_to_all(step, device) else COLLECTIVE_KINDS.index(step.moved_by)
        self.steps.append((place, form, part, kind, mask, *ways, *ends))

    def _part(self, size: int) -> tuple[int, int]:
        """(dim, times) of a number in a local shape."""
        for dim, (_, more) in enumerate(self.class_):
            if more and size % _prime(dim) == 0:
                return dim, size // _prime(dim)
        return -1, size

    def _times(self, dim: int, size: int) -> int:
        return size // _prime(dim) if self.class_[dim][1] else size


def plan_terms(class_: ShapeClass, source: DistributedType, target: DistributedType, links: Links) -> PlanTerms:
    """The plan by Figure 11 between two types of `shape_of(class_)`, for all arrays of the class."""
    rows, form, part = _Rows(class_, links, [], [], [], [], []), 0, 0
    planned = plan(source, target).steps
    for place, step in enumerate(planned):
        if step.kind == "all_slice":
            continue
        for each in forms(step, scatters_to_all(step, links.device)):
            for one in each:
                for way in (one, *other_ways(one, not links.device.is_xla_gpu)):
                    rows.add(way, place, form, part)
                part += 1
            form += 1
    return PlanTerms(
        np.array(rows.steps, STEP_FIELDS),
        np.concatenate([np.zeros((0, 6)), *rows.segments]),
        _pairs(rows.shards),
        np.array(rows.held, HELD_FIELDS),
        _pairs(rows.dims),
        int(len(planned) == 1),
    )


def _pairs(rows: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 2)


class DeviceFigures(NamedTuple):
    """What the kernel knows of a mesh's device and links; make it with `DeviceFigures.of`."""

    launch_s: float
    memory_bytes_per_s: float
    tile_rows: float
    tile_columns: float
    fabrics: np.ndarray
    curves: np.ndarray
    combine_bytes: float
    by_result: bool

    @staticmethod
    def of(links: Links) -> DeviceFigures:
        """Those of a mesh."""
        device = links.device
        rate, (rows, columns) = device.hbm_bytes_per_s * device.hbm_efficiency, device.layout_tile
        return DeviceFigures(
            device.launch_s, rate, float(rows), float(columns), links.fabrics, links.curves,
            float(device.combine_bytes), device.is_xla_gpu,
        )  # fmt: skip


@allocating_kernel
def terms_seconds(terms: PlanTerms, array: Sized, device: DeviceFigures) -> tuple[float, float]:
    """(seconds of links and copies, what it saves at most by being combined) of a plan, each step in the cheapest
    of its forms; of equal ones, in that of fewest collectives."""
    dims, seconds, latency, row = np.ones(terms.dims.shape[0]), 0.0, 0.0, 0
    count = terms.steps.shape[0]
    while row < count:
        place, best, fewest, best_latency = terms.steps.place[row], np.inf, 0, 0.0
        while row < count and terms.steps.place[row] == place:
            form, total, parts, waits = terms.steps.form[row], 0.0, 0, 0.0
            while row < count and terms.steps.form[row] == form:
                part, least = terms.steps.part[row], np.inf
                while row < count and terms.steps.part[row] == part:
                    step_s, step_waits = _step_s(terms, row, array, device, dims)
                    if step_s < least:
                        least, waits = step_s, step_waits
                    row += 1
                total += least
                parts += 1
            if total < best or (total == best and parts < fewest):
                best, fewest, best_latency = total, parts, waits
        seconds += best
        if terms.alone and fewest == 1:
            latency = best_latency
    return seconds, latency


@allocating_kernel
def _step_s(terms: PlanTerms, row: int, array: Sized, device: DeviceFigures, dims: np.ndarray) -> tuple[float, float]:
    """Seconds of one step, and what it saves at most by running as one with others; `dims` is scratch."""
    step = terms.steps[row]
    kind, before, after = step.kind, array.elements / step.ways_in, array.elements / step.ways_out
    begin = terms.steps.segments_end[row - 1] if row > 0 else 0
    segments = terms.segments[begin : step.segments_end]
    code, sent, granule = kind, before, array.scatters if kind == REDUCE_SCATTER else array.gathers
    for k in range(terms.steps.shards_end[row - 1] if row > 0 else 0, step.shards_end):
        dim, times = terms.shards[k, 0], terms.shards[k, 1]
        if array.left[dim] * times % granule[dim] != 0:
            code, sent = ALL_REDUCE, max(before, after)
    link_s = collective_s(code, sent * array.element_bytes, step.mask, segments, device.fabrics, device.curves)
    copied, first = 0.0, terms.steps.held_end[row - 1] if row > 0 else 0
    for k in range(first, step.held_end):
        copied += _held_bytes(terms, k, array, device, dims)
    copy_s = (step.held_end - first) // 2 * device.launch_s + copied / device.memory_bytes_per_s
    waits, counted = 0.0, after if device.by_result else max(before, after)
    if code in (ALL_REDUCE, REDUCE_SCATTER) or (code == ALL_GATHER and device.by_result):
        held, bytes_in = device.combine_bytes * sent / counted, sent * array.element_bytes
        waits = saved_s(code, bytes_in, held, step.mask, segments, device.fabrics, device.curves)
    return link_s + copy_s, waits


@kernel
def _held_bytes(terms: PlanTerms, number: int, array: Sized, device: DeviceFigures, dims: np.ndarray) -> float:
    """As `redistribution_seconds.held_bytes`."""
    rank, plain = 0, 1.0
    for k in range(terms.held.dims_end[number - 1] if number > 0 else 0, terms.held.dims_end[number]):
        dim = terms.dims[k, 0]
        dims[rank] = terms.dims[k, 1] * (array.left[dim] if dim >= 0 else 1.0)
        plain *= dims[rank]
        rank += 1
    if device.tile_columns == 1 or rank == 0:
        return plain * array.element_bytes
    if not terms.held.in_order[number] or rank < 2:
        rows, columns = device.tile_rows, device.tile_columns
        return padded_elements(dims, rank, array.element_bytes, rows, columns) * array.element_bytes
    full, columns = np.floor(device.tile_rows * max(1.0, 4.0 / array.element_bytes)), device.tile_columns
    rows_held = np.ceil(dims[rank - 2] / full) * full
    columns_held = np.ceil(dims[rank - 1] / columns) * columns
    return plain / (dims[rank - 2] * dims[rank - 1]) * rows_held * columns_held * array.element_bytes
