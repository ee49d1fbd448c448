"""The device mesh: named axes over devices, with the device kind that costs are estimated for.

Mesh({"batch": 16, "model": 2}, device="tpu_v3")

      model ->
batch   0   1        device id = batch * 2 + model: axes are major to minor
  |     2   3
  v     ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from autopart.base.arguments import NONE, STRING, check, instance, mapping
from autopart.base.errors import MeshError, closest
from autopart.base.html import table_html
from autopart.base.quoting import one_line

MAX_AXES = 8
"""A packed layout (`core.layout`) keeps one byte per axis in 64 bits."""

MAX_DEVICES = 2**31 - 1
"""Devices are numbered by 32-bit integers."""


@runtime_checkable
class RegistersItself(Protocol):
    """An entry of the device registry (`autopart.costmodel.Device`), in place of its name."""

    def registered(self) -> str:
        """The name under which the registry has the entry, which is added if the name is free."""
        ...


_DEVICE_CHECKS: list[Callable[[str], object]] = []


def devices_are_named_by(named: Callable[[str], object]) -> None:
    """Has each mesh ask for its device's name: `named` raises `UnknownNameError` for one that it does not know.

    The device registry, which stands above this layer, says so of itself.
    """
    _DEVICE_CHECKS.append(named)


_AXES = instance("a dict of axis names to sizes, such as {'batch': 4, 'model': 2}", Mapping)
_DEVICE = instance("the name of a registered device, such as 'tpu_v3', or a Device(...)", str, RegistersItself) | NONE
_LINKS = mapping(STRING, STRING, "a dict of axis names to names of links") | NONE


@dataclass(frozen=True, init=False)
class Mesh:
    """A logical n-dimensional array of devices.

    `axes` maps axis names to sizes, major axis first; names are ASCII without a backslash. `device` names an entry of
    the device registry, or is one, and is needed only for cost estimates. `links` overrides, per axis, the link it is
    wired with. No devices are needed to make one. Raises `MeshError` on a bad axis, `UnknownNameError` for a device
    that the registry does not have.

    >>> Mesh({"batch": 4, "model": 2}).size
    8
    """

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]
    device: str | None
    links: tuple[tuple[str, str], ...]

    def __init__(
        self,
        axes: Mapping[str, int],
        device: str | RegistersItself | None = None,
        links: Mapping[str, str] | None = None,
    ):
        if isinstance(device, type):
            raise MeshError(f"Mesh: device is the class {device.__name__}", hint="a Device(...), or the name of one")
        check("Mesh", MeshError, axes=(axes, _AXES), device=(device, _DEVICE), links=(links, _LINKS))
        for name, size in cast("Mapping[object, object]", axes).items():
            if not isinstance(name, str) or not name:
                raise MeshError(f"mesh axis names are non-empty strings, not {name!r}")
            if not name.isascii() or "\\" in name:
                raise MeshError(
                    f'a mesh axis cannot be called "{name}"',
                    why="XLA ends the process where an axis has a backslash or a character that is not ASCII",
                    hint="ASCII letters, digits, signs and spaces, without a backslash",
                )
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise MeshError(f'mesh axis "{name}" has size {size!r}', why="sizes are integers of at least 1")
        if math.prod(axes.values()) > MAX_DEVICES:
            raise MeshError(
                f"the mesh has {math.prod(axes.values())} devices", why=f"at most {MAX_DEVICES} are supported"
            )
        if len(axes) > MAX_AXES:
            raise MeshError(f"the mesh has {len(axes)} axes", why=f"at most {MAX_AXES} are supported")
        for name in links or ():
            if name not in axes:
                raise MeshError(f'links name axis "{name}"', why=f"the mesh has {dict(axes)}", hint=closest(name, axes))
        device = device.registered() if isinstance(device, RegistersItself) else device
        if device is not None:
            for named in _DEVICE_CHECKS:
                named(device)
        object.__setattr__(self, "axis_names", tuple(axes))
        object.__setattr__(self, "axis_sizes", tuple(axes.values()))
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "links", tuple((links or {}).items()))

    @property
    def shape(self) -> dict[str, int]:
        """Axis name to size, major first."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.axis_sizes)

    def index(self, axis: str) -> int:
        """Position of `axis` among the axes; raises `MeshError` naming the closest axes."""
        if axis not in self.axis_names:
            raise MeshError(f'axis "{axis}" is not in the mesh {self}', hint=closest(axis, self.axis_names))
        return self.axis_names.index(axis)

    def _repr_html_(self) -> str:
        """For notebooks: a row per axis."""
        links = dict(self.links)
        rows = [(name, size, links.get(name, "")) for name, size in self.shape.items()]
        return table_html(["axis", "devices", "link"], rows, f"{self.size} x {self.device or 'no device named'}")

    def __str__(self) -> str:
        return "{" + ", ".join(f"{one_line(n)}:{s}" for n, s in self.shape.items()) + "}"
