"""Seconds of a redistribution step on a device: its collective on the links, its local copies through memory.

    all_gather [{"batch"}, {"model"}]     links 2.0 ms, and 2.2 ms for copies of the result: one gather, stacked
    all_gather [{}, {"model"}]            links 0.6 ms
    all_gather [{"batch"}, {}]            links 3.4 ms: two gathers in a row copy nothing

    copy     launch + (bytes read + bytes written) / HBM rate, arrays in whole layout tiles

An array may stand in memory in whatever order of dims wastes least. Where pieces of the minor dim are brought beside
each other, they become rows: as long as writing whole tiles of 8 rows, of which 2 or 4 are filled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autopart.core.mesh import Mesh
from autopart.costmodel.compiled.links.collective_seconds import collective_s
from autopart.costmodel.compiled.sizes import held_elements
from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.hardware.fabric import COLLECTIVE_KINDS
from autopart.costmodel.hardware.links import AXIS, SIZE, Links, mesh_links
from autopart.spmd.redistribution import Step
from autopart.spmd.redistribution.local_copies import Held, local_copies
from autopart.spmd.redistribution.stretch_step import StretchStep

LEAST_LATENCY_SHARE = 1 / 20
"""Of a reduce_scatter's seconds: with less, it gains little from being combined, and others wait for it. Arrays of 4 MB
and more of a GPT, combined too, took 12 % more memory on v5e."""


class StepSeconds(NamedTuple):
    """Seconds of one step as it is emitted.

    link_s       of its collective
    latency_s    the part of them that does not depend on bytes
    copy_s       of its local copies, which move `copied_bytes` through memory
    """

    link_s: float
    latency_s: float
    copy_s: float
    copied_bytes: float

    @property
    def total_s(self) -> float:
        """Links and copies, one after the other."""
        return self.link_s + self.copy_s


@dataclass(frozen=True)
class RedistributionSeconds:
    """Edge costs of a redistribution in seconds, for its shortest path; equal for equal meshes, so plans are cached.

    Raises `MeshError` on first use if the mesh names no device or an axis has no link.
    """

    mesh: Mesh

    def step_cost(
        self, kind: str, elements_in: int, elements_out: int, element_bytes: float, axes: tuple[tuple[str, int], ...]
    ) -> float:
        """Seconds on the links of one collective of `kind` from `elements_in` elements per device.

        `axes` are the (mesh axis, size) it spans; a size below the mesh axis's is priced as its minor part.
        """
        links = mesh_links(self.mesh)
        segments, mask = group_segments(links, axes)
        code, bytes_in = COLLECTIVE_KINDS.index(kind), float(elements_in) * element_bytes
        return float(collective_s(code, bytes_in, mask, segments, links.fabrics, links.curves))

    @property
    def in_place(self) -> bool:
        """True where collectives work along any dim in place."""
        return mesh_links(self.mesh).device.strided_collectives

    @property
    def gathers_parts(self) -> bool:
        """True but for GPUs."""
        return not mesh_links(self.mesh).device.is_xla_gpu

    def emitted_cost(self, step: Step, element_bytes: float) -> float:
        """Seconds of a step as it is emitted: by these its form is chosen."""
        return self.step_seconds(step, element_bytes).total_s

    def sums_and_slices(self, step: Step, element_bytes: float) -> bool:
        """True for a reduce_scatter into shards that do not fill layout tiles, if the device copies first, and for one
        that would save much of its seconds in one collective with others, if the device does not combine it so."""
        device = mesh_links(self.mesh).device
        if step.stacked:
            return False
        took = self.step_seconds(step, element_bytes)
        is_small = took.latency_s >= LEAST_LATENCY_SHARE * took.link_s
        return (device.reduces_whole and not is_aligned(step, device)) or (device.scatters_apart and is_small)

    def scatters_to_all(self, step: Step) -> bool:
        """True for a reduce_scatter over all devices, if the device does that as an all_reduce."""
        return scatters_to_all(step, mesh_links(self.mesh).device)

    def step_seconds(self, step: Step, element_bytes: float) -> StepSeconds:
        """Seconds of a step's collective and of its local copies."""
        device = mesh_links(self.mesh).device
        if isinstance(step, StretchStep):
            return self._stretch_seconds(step, element_bytes, device)
        link_s = latency_s = 0.0
        if step.kind != "all_slice":
            before, after = step.source.local_elements, step.target.local_elements
            kind, sent = ("all_reduce", max(before, after)) if is_whole(step, device) else (step.moved_by, before)
            link_s = self.step_cost(kind, sent, after, element_bytes, step.spanned)
            latency_s = min(link_s, self.step_cost(kind, 1, 1, 1, step.spanned))
        before, after = local_copies(step, strided=device.strided_collectives, tiled=device.layout_tile[1] > 1)
        copies = (*before, *after)
        copied = sum(sum(held_bytes(held, element_bytes, device.layout_tile) for held in copy) for copy in copies)
        rate = device.hbm_bytes_per_s * device.hbm_efficiency
        return StepSeconds(link_s, latency_s, len(copies) * device.launch_s + copied / rate, copied)

    def _stretch_seconds(self, step: StretchStep, element_bytes: float, device: Device) -> StepSeconds:
        """An all_permute for each round of pieces; the stretch is written once, from as much."""
        moved = [self.step_cost("all_permute", n, n, element_bytes, step.spanned) for n in step.moved_elements]
        if not moved:
            return StepSeconds(0.0, 0.0, 0.0, 0.0)
        latency_s = len(moved) * min(min(moved), self.step_cost("all_permute", 1, 1, 1, step.spanned))
        copied = 2 * held_elements(step.left_shape, element_bytes, device.layout_tile) * element_bytes
        copy_s = device.launch_s + copied / (device.hbm_bytes_per_s * device.hbm_efficiency)
        return StepSeconds(sum(moved), latency_s, copy_s, copied)


def held_bytes(held: Held, element_bytes: float, layout_tile: tuple[int, int]) -> float:
    """Bytes that a copy moves for one of its arrays.

    >>> held_bytes(Held((4, 1024, 2, 2048), in_order=True), 4, (8, 128)) / held_bytes(Held((4096, 4096)), 4, (8, 128))
    4.0
    """
    rows, minor = layout_tile
    shape = [n for n in held.shape if n != 1]
    if not held.in_order or minor == 1 or len(shape) < 2:
        return held_elements(held.shape, element_bytes, layout_tile) * element_bytes
    full = (int(rows * max(1.0, 4.0 / element_bytes)), minor)
    ends = [math.ceil(n / t) * t for n, t in zip(shape[-2:], full, strict=True)]
    return math.prod(shape[:-2]) * math.prod(ends) * element_bytes


def is_aligned(step: Step, device: Device) -> bool:
    """Whether shards fill layout tiles; if not, XLA on TPU gathers and scatters by an all_reduce of the whole.

    What is stacked works along a dim of its own.
    """
    granules = gather_granules if step.kind == "all_gather" else scatter_granules
    sizes = granules(step.source.shape, device.layout_tile)
    return all(size % sizes[d] == 0 for d, size in shards_of(step).items())


def is_whole(step: Step, device: Device) -> bool:
    """Whether XLA gathers or scatters by an all_reduce of the whole."""
    return not is_aligned(step, device) or scatters_to_all(step, device)


def scatters_to_all(step: Step, device: Device) -> bool:
    """True for a reduce_scatter over all devices, of which the compiler for v3 makes an all_reduce.

    So libtpu 0.0.51 does of f32[3072,768] on 16 chips, over one group of 32 cores, not over two of 16 or four of 8.
    """
    spanned = math.prod(size for _, size in step.spanned)
    return device.reduces_whole and step.kind == "reduce_scatter" and spanned == step.target.device_count


def gather_granules(shape: tuple[int, ...], layout_tile: tuple[int, int]) -> tuple[float, ...]:
    """What the shards of an all_gather must be multiples of, by dim: nothing, unless the array has one dim alone.

    So it was of 3,194 gathers that libtpu 0.0.51 compiled alone for v3 and v5e, of one to four dims with shards of 1 to
    2^20 elements: 2,974 of more dims than one stayed, of the others those with shards of whole columns of tiles.
    """
    alone = sum(n > 1 for n in shape) < 2
    return (float(layout_tile[1]) if alone else 1.0,) * len(shape)


def gathers_combine(shape: tuple[int, ...], device: Device) -> bool:
    """True if gathers of the array may be combined with others, as they are or made all_reduces."""
    return device.is_xla_gpu or any(granule > 1 for granule in gather_granules(shape, device.layout_tile))


def scatter_granules(shape: tuple[int, ...], layout_tile: tuple[int, int]) -> tuple[float, ...]:
    """What the shards of a reduce_scatter must be multiples of, by dim.

    Of the last two dims the compiler may lay out either such that it has rows of tiles, those before are in no tile,
    and an array of one dim has no rows: all 220 reductions of such that libtpu 0.0.51 compiled alone were whole. Of 42
    gradients of convolutions and products 38 were as this says (`tests/cost/test_whole_collectives.py`).

    >>> scatter_granules((3, 3, 640, 320), (8, 128)), scatter_granules((4096,), (8, 128))
    ((1.0, 1.0, 8.0, 8.0), (inf,))
    """
    rows, minor = layout_tile
    if minor == 1:
        return (1.0,) * len(shape)
    if sum(n > 1 for n in shape) < 2:
        return (math.inf,) * len(shape)
    return tuple(float(rows) if d >= len(shape) - 2 else 1.0 for d in range(len(shape)))


def shards_of(step: Step) -> dict[int, int]:
    """The size of a shard along each dim that a gather or reduce_scatter changes in place."""
    if step.stacked or step.kind not in ("reduce_scatter", "all_gather"):
        return {}
    before, after = step.source.local_shape, step.target.local_shape
    return {d: min(a, b) for d, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}


@lru_cache(maxsize=1 << 10)
def group_segments(links: Links, axes: tuple[tuple[str, int], ...]) -> tuple[np.ndarray, int]:
    """Segments of a group whose members may be parts of mesh axes, minor segments first, and its mask."""
    rows, mask = [], 0
    for name, wanted in axes:
        axis = links.mesh.index(name)
        mask |= 1 << axis
        for row in links.segments[links.segments[:, AXIS] == axis]:
            part = math.gcd(wanted, int(row[SIZE]))
            wanted //= part
            if part > 1:
                row = row.copy()
                row[SIZE] = part
                rows.append(row)
    return np.array(rows, np.float64).reshape(-1, 6), mask
