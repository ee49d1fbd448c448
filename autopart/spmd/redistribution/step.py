"""A redistribution: typed collectives in a row, each taking the array from one distributed type to the next.

[3{x}12, 2{y}12] -> [2{y}12, 3{x}12] on {x:4, y:6}: cost 18, height 1
  all_to_all {1 -> 0} <"y:(1)3">   [1{y:(1)3,x}12, 6{y:(3)2}12]
  ...
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from autopart.core.op import REDUCTION_NAMES, SUM
from autopart.spmd.redistribution.types import DistributedType, SubAxis, merged


@dataclass(frozen=True)
class Step:
    """One collective.

    kind       all_slice, all_gather, all_to_all, all_permute, reduce_scatter or all_reduce
    source     type before; equals the target of the step before
    target     type after
    view       `source` under the device map of `target`: the same tile on each device, written such that the axes that
               the step takes away stand minor-most (`source` itself unless axes of different primes change places)
    gathered   (dim, axes minor to major) that all_gather and all_to_all take away
    sliced     (dim, axes minor to major) that all_slice, reduce_scatter and all_to_all add; axes appear cut alike in
               `gathered` and `sliced`
    axes       the mesh axes that the groups of devices span
    code       the reduction, for reduce_scatter and all_reduce; else 0
    stacked    the collective works along a new leading dim, between local regroupings (`emission.py`); a step that
               changes several dims always is
    slices     it is emitted as an all_reduce and a slice: for reduce_scatter (`forms.py`)
    gathers    the parts are gathered along a new last dim, and each device reduces them: for all_reduce (`forms.py`)
    """

    kind: str
    source: DistributedType
    target: DistributedType
    view: DistributedType
    gathered: tuple[tuple[int, tuple[SubAxis, ...]], ...]
    sliced: tuple[tuple[int, tuple[SubAxis, ...]], ...]
    axes: tuple[SubAxis, ...]
    code: int = 0
    stacked: bool = False
    slices: bool = False
    gathers: bool = False

    @property
    def moved_by(self) -> str:
        """The kind of collective that its bytes are moved by."""
        return "all_gather" if self.gathers else self.kind

    @property
    def emitted_as(self) -> str:
        """The kind of collective that the program has: another one in some forms (`forms.py`)."""
        return "all_reduce" if self.slices else self.moved_by

    @property
    def collectives(self) -> int:
        """How many it is emitted as."""
        return 1

    @property
    def spellings(self) -> int:
        """In how many orders the groups of devices are listed, for a gather or an exchange of what is read again.

        To XLA they mean the same, but no compiler takes two collectives with different lists for one.
        """
        if self.kind not in ("all_gather", "all_to_all"):
            return 1
        return self.target.device_count // math.prod(a.size for a in self.axes)

    @property
    def largest_elements(self) -> int:
        """Elements on a device of the larger of what its collectives read and leave."""
        return max(self.source.local_elements, self.target.local_elements)

    @cached_property
    def left_shape(self) -> tuple[int, ...]:
        """The local shape that it leaves."""
        return self.target.local_shape

    @cached_property
    def mesh_axes(self) -> tuple[str, ...]:
        """Names of the mesh axes it runs over, wholly or in part, in mesh order."""
        names = {a.name for a in self.axes}
        return tuple(name for name, _ in self.source.mesh if name in names)

    @cached_property
    def spanned(self) -> tuple[tuple[str, int], ...]:
        """(mesh axis, size of the part it spans), in mesh order: what a cost is asked about."""
        return tuple((n, math.prod([a.size for a in self.axes if a.name == n])) for n in self.mesh_axes)

    def text(self) -> str:
        """As the PartIR paper's Listing 9 writes it: `all_gather [{"x"}, {}]`, `all_to_all {0 -> 1} <"x">`.

        Axes of a dim are listed outermost first. A reduction other than a sum is named: `all_reduce <@max> <"x">`.
        """
        reduction = f" <@{REDUCTION_NAMES[self.code]}>" if self.code not in (0, SUM) else ""
        if self.kind in ("all_gather", "all_slice", "reduce_scatter"):
            changed = dict(self.gathered or self.sliced)
            dims = (f"{{{self._names(reversed(changed.get(d, ())))}}}" for d in range(len(self.source.shape)))
            return f"{self.kind}{reduction} [{', '.join(dims)}]"
        exchange = ""
        if self.kind == "all_to_all":
            exchange = (
                " {" + " -> ".join(",".join(str(d) for d, _ in part) for part in (self.gathered, self.sliced)) + "}"
            )
        return f"{self.kind}{reduction}{exchange} <{self._names(self.axes)}>"

    def _names(self, axes: Iterable[SubAxis]) -> str:
        sizes = dict(self.source.mesh)
        return ", ".join(f'"{a.text(sizes[a.name])}"' for a in axes)


@dataclass(frozen=True)
class Plan:
    """A sequence of collectives from `source` to `target`.

    cost    sum of the step costs, in the unit of the cost it was planned with (elements per device for "elements")
    height  largest local size on the way, over the larger of source's and target's; never above 1
    """

    source: DistributedType
    target: DistributedType
    steps: tuple[Step, ...]
    cost: float
    height: float

    def __str__(self) -> str:
        mesh = "{" + ", ".join(f"{n}:{s}" for n, s in self.source.mesh) + "}"
        lines = [f"{self.source} -> {self.target} on {mesh}: cost {self.cost:g}, height {self.height:g}"]
        width = max((len(step.text()) for step in self.steps), default=0)
        return "\n".join(lines + [f"  {step.text():<{width}}  {step.target}" for step in self.steps])


def spanned_axes(parts: tuple[SubAxis, ...], mesh: tuple[tuple[str, int], ...]) -> tuple[SubAxis, ...]:
    """`parts` in mesh order (major first), neighbouring parts joined."""
    order = {name: i for i, (name, _) in enumerate(mesh)}
    minor_first = sorted(set(parts), key=lambda a: (-order[a.name], a.stride))
    return tuple(reversed(merged(minor_first)))
