"""Distributed types: the global shape of an array, and which part of it each device holds.

    mesh {x:4, y:6}     [3{x}12, 2{y,x}48]         a 12 by 48 array; each device holds a tile of 3 by 2
                         | |  \\_ global size
                         | \\____ axes that cut the dim, minor (fastest changing) to major
                         \\______ tile size

    [4, 6{x:(2)2}12] sum{y}                        x:(2)2 is the part of axis x of size 2 above a minor part of size 2,
                                                   and partial sums along y are still to be added up

Figure 6 of the redistribution paper, extended by sub-axes, pending reductions and, as in its section 6, a device map.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autopart.base.errors import PartitionError, closest
from autopart.core.op import REDUCTION_NAMES


class DistributedTypeError(PartitionError):
    """A distributed type that is malformed, or two types between which no redistribution exists."""


class SubAxis(NamedTuple):
    """A mesh axis or a part of one: `size` coordinates, above `stride` coordinates of its minor parts.

    Axis x of size 12 cut in three is (x,2,1), (x,2,2), (x,3,4): coordinate = c1 + 2 c2 + 4 c3.
    """

    name: str
    size: int
    stride: int = 1

    def text(self, axis_size: int) -> str:
        """`x` for the whole axis, else `x:(stride)size`."""
        return self.name if self.size == axis_size else f"{self.name}:({self.stride}){self.size}"


@dataclass(frozen=True)
class DistributedType:
    """How an array is spread over a mesh.

    shape    global size of each dim
    axes     per dim the axes that cut it, minor to major; neighbouring parts of one axis are written as one
    mesh     (name, size) of the mesh axes, major first; device ids are row-major over them
    pending  (axis, reduction code) of reductions still to be done, outermost first: the last one is done first
    devices  device map: the device that plays the part of each point of the mesh; None is the identity

    The constructor checks nothing; `of` and `parse` do, and raise `DistributedTypeError`.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[SubAxis, ...], ...]
    mesh: tuple[tuple[str, int], ...]
    pending: tuple[tuple[SubAxis, int], ...] = ()
    devices: tuple[int, ...] | None = None

    @staticmethod
    def of(
        shape: Sequence[int],
        axes_per_dim_major_first: Iterable[Iterable[str | SubAxis]],
        mesh_shape: Mapping[str, int],
        pending: Iterable[tuple[str | SubAxis, int]] = (),
    ) -> DistributedType:
        """A checked type from axis names per dim, outermost (major) first, as a PartitionSpec has them.

        >>> print(DistributedType.of((12, 12), (("y", "x"), ()), {"x": 2, "y": 3}))
        [2{x,y}12, 12]
        """

        def axis(name: str | SubAxis) -> SubAxis:
            if isinstance(name, SubAxis):
                return name
            if name not in mesh_shape:
                raise DistributedTypeError(
                    f'axis "{name}" is not in the mesh {dict(mesh_shape)}', hint=closest(name, mesh_shape)
                )
            return SubAxis(name, mesh_shape[name])

        dims = tuple(merged(tuple(axis(a) for a in reversed(tuple(dim)))) for dim in axes_per_dim_major_first)
        parts = tuple((axis(a), code) for a, code in pending if axis(a).size > 1)
        made = DistributedType(tuple(int(n) for n in shape), dims, tuple(mesh_shape.items()), parts)
        made.check()
        return made

    @staticmethod
    def parse(text: str, mesh_shape: Mapping[str, int]) -> DistributedType:
        """A checked type from the paper's text form; `str` is its inverse.

        >>> DistributedType.parse("[3{x}12, 2{y}12]", {"x": 4, "y": 6}).local_shape
        (3, 2)
        """
        return _parse(text, mesh_shape)

    def check(self) -> None:
        """Raises `DistributedTypeError` unless the type is well-formed (Figure 7b of the paper)."""
        if len(self.axes) != len(self.shape):
            raise DistributedTypeError(f"{len(self.axes)} dims are given axes", why=f"the shape {self.shape} differs")
        sizes = dict(self.mesh)
        used = [a for dim in self.axes for a in dim] + [a for a, _ in self.pending]
        for axis in used:
            if axis.name not in sizes:
                raise DistributedTypeError(f'axis "{axis.name}" is not in the mesh {sizes}')
            if axis.size < 1 or axis.stride < 1 or sizes[axis.name] % (axis.size * axis.stride):
                raise DistributedTypeError(
                    f'"{axis.name}" has no part of size {axis.size} above {axis.stride}',
                    why=f"its size is {sizes[axis.name]}",
                )
        ordered = sorted((a for a in used if a.size > 1), key=lambda a: (a.name, a.stride))
        for minor, major in pairwise(ordered):
            if minor.name == major.name and major.stride % (minor.stride * minor.size):
                raise DistributedTypeError(f'axis "{minor.name}" is used twice in {self}')
        for dim, (size, axes) in enumerate(zip(self.shape, self.axes, strict=True)):
            ways = math.prod(a.size for a in axes)
            if size % ways:
                raise DistributedTypeError(
                    f"dim {dim} of {self.shape} cannot be cut in {ways} parts",
                    by=" and ".join(f'axis "{a.name}" (size {a.size})' for a in reversed(axes)),
                    why=f"{size} is not a multiple of {ways}",
                    hint="another dim, fewer axes, or a padded array",
                )
        for axis, code in self.pending:
            if code not in REDUCTION_NAMES:
                raise DistributedTypeError(f'no reduction has the code {code!r} pending on "{axis.name}"')
        if self.devices is not None and sorted(self.devices) != list(range(self.device_count)):
            raise DistributedTypeError("the device map is not a permutation of the devices")

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        """The shape that one device holds."""
        return tuple(n // math.prod([a.size for a in dim]) for n, dim in zip(self.shape, self.axes, strict=True))

    @cached_property
    def local_elements(self) -> int:
        """Elements that one device holds."""
        return math.prod(self.local_shape)

    @cached_property
    def device_count(self) -> int:
        """Devices of the mesh."""
        return math.prod([size for _, size in self.mesh])

    def base_offsets(self) -> np.ndarray:
        """int64[devices, rank]: the global index at which each device's tile starts (Figure 7a of the paper)."""
        points = np.arange(self.device_count)
        strides = device_strides(self.mesh)
        offsets = np.zeros((self.device_count, len(self.shape)), np.int64)
        for dim, (tile, axes) in enumerate(zip(self.local_shape, self.axes, strict=True)):
            for axis in axes:
                offsets[:, dim] += tile * (points // (strides[axis.name] * axis.stride) % axis.size)
                tile *= axis.size
        if self.devices is None:
            return offsets
        placed = np.empty_like(offsets)
        placed[np.array(self.devices)] = offsets
        return placed

    def __str__(self) -> str:
        sizes = dict(self.mesh)
        dims = []
        for size, tile, axes in zip(self.shape, self.local_shape, self.axes, strict=True):
            names = ",".join(a.text(sizes.get(a.name, 0)) for a in axes)
            dims.append(f"{tile}{{{names}}}{size}" if axes else str(size))
        words = ["[" + ", ".join(dims) + "]"]
        words += [f"{REDUCTION_NAMES.get(code, code)}{{{a.text(sizes.get(a.name, 0))}}}" for a, code in self.pending]
        if self.devices is not None:
            words.append("@(" + ",".join(map(str, self.devices)) + ")")
        return " ".join(words)


def device_strides(mesh: Sequence[tuple[str, int]]) -> dict[str, int]:
    """How far apart in device id two neighbours along each axis are."""
    strides, stride = {}, 1
    for name, size in reversed(mesh):
        strides[name] = stride
        stride *= size
    return strides


def merged(axes: Sequence[SubAxis]) -> tuple[SubAxis, ...]:
    """`axes` (minor to major) with neighbouring parts of one axis joined and parts of size 1 left out."""
    joined: list[SubAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        last = joined[-1] if joined else None
        if last is not None and last.name == axis.name and last.stride * last.size == axis.stride:
            joined[-1] = SubAxis(axis.name, last.size * axis.size, last.stride)
        else:
            joined.append(axis)
    return tuple(joined)


_TYPE = re.compile(r"\s*\[(?P<dims>[^\]]*)\](?P<pending>(\s+\w+\{[^}]*\})*)\s*(@\((?P<devices>[\d,\s]*)\))?\s*")
_DIM = re.compile(r"\s*(\d+)\s*(?:\{([^}]*)\}\s*(\d+))?\s*(?:,|$)")
_AXIS = re.compile(r'\s*"?(?P<name>[^\s":]+)"?\s*(?::\s*(\((?P<stride>\d+)\))?\s*(?P<size>\d+))?\s*')


def _parse(text: str, mesh_shape: Mapping[str, int]) -> DistributedType:
    found = _TYPE.fullmatch(text)
    if found is None:
        raise DistributedTypeError(f"{text!r} is not a distributed type", hint="[3{x}12, 2{y}12]")
    shape, axes, tiles = [], [], []
    dims, position = found["dims"], 0
    while position < len(dims):
        dim = _DIM.match(dims, position)
        if dim is None:
            raise DistributedTypeError(f"{dims[position:]!r} is not a dim of a distributed type", hint="3{x}12, or 12")
        position = dim.end()
        tiles.append(int(dim[1]))
        shape.append(int(dim[3] or dim[1]))
        axes.append(merged(_parse_axes(dim[2] or "", mesh_shape)))
    codes = {name: code for code, name in REDUCTION_NAMES.items()}
    pending = []
    for name, names in re.findall(r"(\w+)\{([^}]*)\}", found["pending"]):
        if name not in codes:
            raise DistributedTypeError(f'no reduction is called "{name}"', hint=", ".join(codes))
        pending += [(axis, codes[name]) for axis in _parse_axes(names, mesh_shape) if axis.size > 1]
    devices = tuple(int(d) for d in found["devices"].split(",")) if found["devices"] is not None else None
    made = DistributedType(tuple(shape), tuple(axes), tuple(mesh_shape.items()), tuple(pending), devices)
    made.check()
    if list(made.local_shape) != tiles:
        raise DistributedTypeError(
            f"{text!r} says tiles of {tiles}",
            why=f"its axes cut {made.shape} to {list(made.local_shape)}",
            hint="tile size * product of axis sizes = global size",
        )
    return made


def _parse_axes(text: str, mesh_shape: Mapping[str, int]) -> tuple[SubAxis, ...]:
    axes = []
    for word in filter(str.strip, text.split(",")):
        axis = _AXIS.fullmatch(word)
        if axis is None or axis["name"] not in mesh_shape:
            raise DistributedTypeError(
                f'axis "{word.strip()}" is not in the mesh {dict(mesh_shape)}', hint=closest(word.strip(), mesh_shape)
            )
        whole = mesh_shape[axis["name"]]
        size = int(axis["size"] or whole)
        if axis["stride"] is None and size != whole:
            raise DistributedTypeError(f'axis "{axis["name"]}" is given size {size}', why=f"the mesh says {whole}")
        axes.append(SubAxis(axis["name"], size, int(axis["stride"] or 1)))
    return tuple(axes)
