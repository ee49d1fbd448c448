"""Labels: how a value lies on the mesh, one code per mesh axis, without the order of axes on one dim.

    mesh {a: 4, b: 2}, f32[64,8]      (0, 0)  whole        (1, 0)  dim 0 over a       (1, 1)  dim 0 over a and b
                                      (0, 2)  dim 1 over b (17, 2) dim 1 over b, a sum pending over a

A code is 0 (whole), 1 + d (dim d is tiled) or a reduction that is pending (`core/layout.py`). The program's layouts
also say which of two axes on one dim is outer, which depends on the order of actions. A label stands for all of these
layouts, and what is priced between two labels is the cheapest between any two of their layouts: never too much.

A use may read another stretch of a dim than its tile. Its code then also has the number of that stretch in the mapping
table, behind the bits of what the axis does; nothing waits in such a label.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from autopart.core.layout import ACTION_BITS, ACTION_MASK, LAST_TILE
from autopart.core.mesh import Mesh
from autopart.spmd.redistribution import DistributedType

Label = tuple[int, ...]
"""A code per mesh axis."""


def is_pending(code: int) -> bool:
    """True for the code of a reduction."""
    return code & ACTION_MASK > LAST_TILE


def reading(code: int, stretch: int) -> int:
    """The code of a dim of which the `stretch`-th stretch of the mapping table is read, where `code` tiles it."""
    return code | (1 + stretch) << ACTION_BITS


def in_tiles(label: Label) -> Label:
    """The label in which whoever reads stretches would read tiles."""
    return tuple(code & ACTION_MASK for code in label)


def stretches_of(label: Label) -> tuple[int, ...]:
    """The numbers of the stretches that are read, each once."""
    return tuple(dict.fromkeys((code >> ACTION_BITS) - 1 for code in label if code >> ACTION_BITS))


def ways(label: Label, sizes: Sequence[int]) -> int:
    """Into how many parts a label cuts the value."""
    return math.prod(size for code, size in zip(in_tiles(label), sizes, strict=True) if 0 < code <= LAST_TILE)


def local_dims(shape: tuple[int, ...], label: Label, sizes: Sequence[int]) -> list[float]:
    """What a device holds of each dim; no whole number where the label does not divide the dim."""
    dims = [float(n) for n in shape]
    for code, size in zip(in_tiles(label), sizes, strict=True):
        if 0 < code <= LAST_TILE:
            dims[code - 1] /= size
    return dims


def divides(shape: tuple[int, ...], label: Label, sizes: Sequence[int]) -> bool:
    """True if a device holds a whole number of each dim."""
    return all(n.is_integer() for n in local_dims(shape, label, sizes))


def without_ones(shape: tuple[int, ...], label: Label) -> Label:
    """The label of the array without its dims of 1: they are numbered anew."""
    number = {code: 0 if n == 1 else code - shape[:code].count(1) for code, n in enumerate(shape, 1)}
    return tuple(number.get(code, code) for code in label)


def legal_labels(shape: tuple[int, ...], choices: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[Label]:
    """Labels that divide a shape, by the codes that each axis may have; the whole value where nothing else does."""
    found = [label for label in itertools.product(*choices) if divides(shape, label, sizes)]
    return found or [tuple(0 for _ in sizes)]


def distributed_types(shape: tuple[int, ...], label: Label, mesh: Mesh) -> Iterator[DistributedType]:
    """The layouts that a label stands for, in the redistribution paper's terms: the orders of axes on each dim."""
    names = mesh.axis_names
    by_dim = [[names[a] for a, code in enumerate(label) if code == d + 1] for d in range(len(shape))]
    pending = tuple((names[a], code) for a, code in enumerate(label) if is_pending(code))
    for dims in itertools.product(*(itertools.permutations(axes) for axes in by_dim)):
        yield DistributedType.of(shape, dims, mesh.shape, pending)
