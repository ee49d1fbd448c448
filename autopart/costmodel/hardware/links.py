"""Which wires a mesh axis runs over.

    Mesh({"batch": 16, "model": 2}, device="tpu_v3")      32 cores = 16 chips = a 4 x 4 slice

        model   cores of a chip
        batch   4 chips in x, 4 chips in y, both lines: a v3 dimension is a ring only when it spans the pod

    Mesh({"batch": 4, "model": 8}, device="h100")         model fills the NVLink domain of 8, batch is InfiniBand

Axes are placed minor (last) first: on the cores of a chip, then on torus dimensions or the switch domain; what is
left is on the network. `Mesh(links={"batch": "dcn"})` names the wires of an axis instead: "chip", "ici" (ring where
the device closes one), "ring", "line", "nvlink", "dcn" (or "ib", "network"). A class of networks between GPUs, or a
file of measured points (`networks.py`), is then the network of the mesh.

An axis becomes *segments*, rows of `Links.segments` that the kernels in `collective_seconds.py` read:

    axis | fabric | size | torus dimension | stride along it | its length if a ring, else 0
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from autopart.base.errors import MeshError, closest
from autopart.base.quoting import one_line
from autopart.core.mesh import Mesh
from autopart.costmodel.hardware.devices import Device, device
from autopart.costmodel.hardware.fabric import (
    CHIP,
    COLLECTIVE_KINDS,
    FAST,
    NETWORK,
    CollectiveCurve,
    Switch,
    Torus,
)
from autopart.costmodel.hardware.networks import NETWORKS, is_network, network_named

AXIS, FABRIC, SIZE, DIMENSION, STRIDE, RING = range(6)
"""Columns of `Links.segments`."""

LINK_NAMES = {
    "chip": CHIP, "ici": FAST, "ring": FAST, "line": FAST, "nvlink": FAST, "dcn": NETWORK, "ib": NETWORK,
    "network": NETWORK,
}  # fmt: skip

CURVES = (*COLLECTIVE_KINDS[:5], "all_reduce_in_switch")
"""Rows of `Links.curves` per fabric."""

CURVE_COLUMNS = len(CollectiveCurve(1.0, 1.0, 1.0).row())


@dataclass(frozen=True, eq=False)
class Links:
    """The wires of a mesh, as arrays for kernels.

    segments  f64[s, 6]     see the module
    fabrics   f64[3, 4]     per fabric: 0 none, 1 switch, 2 torus | torus bytes/s per link, divided by the
                            devices that share it | hop seconds | in-switch all_reduce from this group size on, 0 never
    curves    f64[3, 6, w, 12]  per switch fabric and `CURVES` row, `CollectiveCurve.row()` of each way to do it; a row
                                that begins with infinity ends them
    """

    mesh: Mesh
    device: Device
    segments: np.ndarray
    fabrics: np.ndarray
    curves: np.ndarray

    def describe(self) -> str:
        """One line per axis: its segments in words."""
        lines = []
        for number, (name, size) in enumerate(self.mesh.shape.items()):
            parts = [_segment_text(row, self.device) for row in self.segments if row[AXIS] == number]
            lines.append(f"{one_line(name)}:{size}  " + (", ".join(parts) or "one device"))
        return "\n".join(lines)


def _segment_text(row: np.ndarray, d: Device) -> str:
    size, fabric = int(row[SIZE]), int(row[FABRIC])
    if fabric == NETWORK:
        return f"{size} over {d.network.name if d.network else 'network'}"
    if fabric == CHIP:
        return f"{size} cores of a chip"
    if isinstance(d.wires, Torus):
        return f"{size} chips of a torus {'ring' if row[RING] else 'line'} (stride {int(row[STRIDE])})"
    return f"{size} through the switch"


@functools.lru_cache(maxsize=256)
def mesh_links(mesh: Mesh) -> Links:
    """The wires of every axis of `mesh`.

    Raises `MeshError` if the mesh names no device or an axis has no link, `UnknownNameError` for an unknown device.
    """
    if mesh.device is None:
        raise MeshError(f"the mesh {mesh} names no device", hint='Mesh({...}, device="tpu_v5e")')
    d = _with_network(device(mesh.device), mesh)
    segments = _MeshEmbedding(mesh, d).segments()
    fabrics, curves = _fabric_arrays(d)
    return Links(mesh, d, segments, fabrics, curves)


def _with_network(d: Device, mesh: Mesh) -> Device:
    """The device with the network that an axis names."""
    named = {name: axis for axis, name in mesh.links if is_network(name)}
    if not named:
        return d
    if len(named) > 1 or not isinstance(d.wires, Switch):
        why = "they are one network" if len(named) > 1 else f'device "{d.name}" is not wired by a switch'
        raise MeshError(f"axes on {' and '.join(named)}", why=why, hint="another mesh")
    name, axis = next(iter(named.items()))
    return replace(d, network=network_named(name, d.wires, mesh.shape[axis]))


def _fabric_arrays(d: Device) -> tuple[np.ndarray, np.ndarray]:
    fabrics, rows = np.zeros((3, 4)), {}
    for fabric, wire in {CHIP: d.chip, FAST: d.wires, NETWORK: d.network}.items():
        if isinstance(wire, Torus):
            fabrics[fabric] = (2, wire.bytes_per_s / d.cores, wire.hop_s, 0)
        elif wire is not None:
            fabrics[fabric] = (1, 0, 0, wire.in_switch_group if isinstance(wire, Switch) else 0)
            for code, kind in enumerate(CURVES):
                rows[fabric, code] = [curve.row() for curve in wire.algorithms_of(kind)]
    ways = 1 + max((len(of) for of in rows.values()), default=0)
    curves = np.full((3, len(CURVES), ways, CURVE_COLUMNS), np.inf)
    for at, of in rows.items():
        curves[(*at, slice(len(of)))] = of
    return fabrics, curves


class _MeshEmbedding:
    """Hands out the wires of one device kind to the axes of one mesh."""

    def __init__(self, mesh: Mesh, d: Device):
        self.mesh, self.device, self.rows = mesh, d, []
        self.chosen = {mesh.index(axis): name for axis, name in mesh.links}

    def segments(self) -> np.ndarray:
        free = [a for a in range(len(self.mesh.axis_names)) if a not in self.chosen]
        for axis, name in self.chosen.items():
            self._place_as_named(axis, name)
        left = {axis: self.mesh.axis_sizes[axis] for axis in free}
        if self.device.cores > 1 and not any(row[FABRIC] == CHIP for row in self.rows):
            self._fill(left, CHIP, self.device.cores)
        if isinstance(self.device.wires, Torus):
            self._fill_torus(left, self.device.wires)
        elif isinstance(self.device.wires, Switch):
            used = math.prod(int(row[SIZE]) for row in self.rows if row[FABRIC] == FAST)
            self._fill(left, FAST, max(1, self.device.wires.domain // used))
        for axis, size in left.items():
            if size > 1:
                self._add(axis, NETWORK, size)
        return np.array(self.rows, np.float64).reshape(-1, 6)

    def _place_as_named(self, axis: int, name: str) -> None:
        size = self.mesh.axis_sizes[axis]
        if name not in LINK_NAMES and not is_network(name):
            raise MeshError(
                f'axis "{self.mesh.axis_names[axis]}" has link "{name}"',
                why="known links: " + ", ".join([*LINK_NAMES, *NETWORKS]),
                hint=closest(name, [*LINK_NAMES, *NETWORKS]),
            )
        torus = self.device.wires if isinstance(self.device.wires, Torus) else None
        if LINK_NAMES.get(name, NETWORK) != FAST:
            self._add(axis, LINK_NAMES.get(name, NETWORK), size)
        elif torus is None or name == "nvlink":
            if torus is not None or name != "nvlink":
                self._no_link(axis, f'device "{self.device.name}" has no "{name}"')
            self._add(axis, FAST, size)
        else:
            ring = {"ring": size, "line": 0, "ici": size if torus.wraps(size) else 0}[name]
            self._add(axis, FAST, size, self._next_dimension(torus, axis, size), 1, ring)

    def _next_dimension(self, torus: Torus, axis: int, size: int) -> int:
        used = 1 + max((int(row[DIMENSION]) for row in self.rows), default=-1)
        if used >= len(torus.pod):
            self._no_link(axis, f"the torus has {len(torus.pod)} dimensions and all are taken")
        return used

    def _fill(self, left: dict[int, int], fabric: int, room: int) -> None:
        """Gives each axis, minor first, the largest divisor of its size that still fits in `room`."""
        for axis in sorted(left, reverse=True):
            part = max(f for f in range(1, min(left[axis], room) + 1) if left[axis] % f == 0)
            if part > 1:
                self._add(axis, fabric, part)
            left[axis], room = left[axis] // part, room // part

    def _fill_torus(self, left: dict[int, int], torus: Torus) -> None:
        """Places what fits in the pod on torus dimensions; a factor no dimension has becomes a line of its own."""
        first = 1 + max((int(row[DIMENSION]) for row in self.rows if row[FABRIC] == FAST), default=-1)
        limits = tuple(sorted(torus.pod[first:]))
        if not limits:
            return
        inside = _parts_within(left, math.prod(limits))
        lengths = slice_shape(math.prod(inside.values()), limits)
        room = {first + i: length for i, length in enumerate(lengths)}
        for axis in sorted(left, reverse=True):
            left[axis] //= inside[axis]
            for dim in _dimensions_for(inside[axis], room, lengths, first):
                part, length = math.gcd(inside[axis], room[dim]), lengths[dim - first]
                self._add(axis, FAST, part, dim, length // room[dim], length if torus.wraps(length) else 0)
                inside[axis], room[dim] = inside[axis] // part, room[dim] // part
            self._add(axis, FAST, inside[axis], first + len(lengths) + axis)

    def _add(self, axis: int, fabric: int, size: int, dim: int = -1, stride: int = 1, ring: int = 0) -> None:
        have = (self.device.chip, self.device.wires, self.device.network)[fabric]
        if have is None and size > 1:
            names = {CHIP: "wiring within a chip", FAST: "ICI or NVLink", NETWORK: "network between slices or nodes"}
            why = f'{size} of its devices need a {names[fabric]}, and device "{self.device.name}" has none'
            self._no_link(axis, why)
        if size > 1:
            self.rows.append((axis, fabric, size, dim, stride, ring))

    def _no_link(self, axis: int, why: str) -> None:
        name, d = self.mesh.axis_names[axis], self.device
        hints = [
            f'links={{"{name}": "{link}"}}' for link in self._links_of_device(axis) if link != self.chosen.get(axis)
        ]
        if isinstance(d.wires, Switch) and d.network is None:
            hints.append(f"axes of {d.wires.domain} devices at most")
        if d.wires is None:
            hints.append(f'Device("{d.name}", ..., link_bytes_per_s=...)')
        elif d.network is None:
            hints.append(f'Device("{d.name}", ..., network=Network(bytes_per_s, latency_s))')
        raise MeshError(
            f'axis "{name}" (size {self.mesh.axis_sizes[axis]}) has no link', why=why, hint=", or ".join(hints)
        )

    def _links_of_device(self, axis: int) -> list[str]:
        """Links that the axis may be given, of those that the device has."""
        d, taken = self.device, {int(row[DIMENSION]) for row in self.rows if row[FABRIC] == FAST}
        found = ["ici"] if isinstance(d.wires, Torus) and len(taken) < len(d.wires.pod) else []
        found += ["nvlink"] if isinstance(d.wires, Switch) and axis in self.chosen else []
        return [*found, d.network.name] if d.network is not None else found


def _parts_within(left: dict[int, int], limit: int) -> dict[int, int]:
    """The part of each axis that fits in a pod of `limit` chips: minor axes whole, then divisors."""
    parts = {}
    for axis in sorted(left, reverse=True):
        parts[axis] = max(f for f in range(1, min(left[axis], limit) + 1) if left[axis] % f == 0)
        limit //= parts[axis]
    return parts


def slice_shape(chips: int, limits: tuple[int, ...]) -> tuple[int, ...]:
    """The most cube-like box of `chips` chips within `limits`, shortest side first.

    A number of chips that no box holds exactly takes the smallest box that contains it.

    >>> slice_shape(32, (16, 16)), slice_shape(64, (16, 16, 16)), slice_shape(8, (16, 16))
    ((4, 8), (4, 4, 4), (2, 4))
    """

    def boxes(volume: int, dims: tuple[int, ...]) -> list[tuple[int, ...]]:
        if len(dims) == 1:
            return [(volume,)] if volume <= dims[0] else []
        sides = [f for f in range(1, dims[0] + 1) if volume % f == 0]
        return [(f, *rest) for f in sides for rest in boxes(volume // f, dims[1:])]

    for volume in range(chips, math.prod(limits) + 1):
        if found := boxes(volume, limits):
            return min((tuple(sorted(box)) for box in found), key=lambda box: (sum(box), box))
    return limits


def _dimensions_for(size: int, room: dict[int, int], lengths: tuple[int, ...], first: int) -> list[int]:
    """Dimensions for an axis: untouched ones whose product is its size, most of them first; else all in order."""
    whole = [d for d, r in room.items() if r > 1 and r == lengths[d - first]]
    subsets = [[d for i, d in enumerate(whole) if mask >> i & 1] for mask in range(1, 1 << len(whole))]
    exact = [s for s in subsets if math.prod(room[d] for d in s) == size]
    return max(exact, key=len) if exact else sorted(room, key=lambda d: (room[d] == lengths[d - first], d))
