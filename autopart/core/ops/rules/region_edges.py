"""Tile mappings of the edges of regions that a model partitions by hand, made when a program is read.

    to_local  x[i, j: 2 x n] -> h[i, n], j cut by an axis of size 2      j (1) -> any, the region's own loop
                                                                         i (0) -> tile 0
    to_global the other way                                              j (_) -> tile 1, the region's own
                                                                         i (0) -> tile 0

The loops over the region's own axes come first, in the order of the dims they cut (`core/manual_regions.py` sets them);
their extent is what those axes make of the dim, so no other axis fits them. A dim that the region cuts is cut by no
other axis on the way through its edge. `position` is the number of the device: the same for every tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from autopart.core.op import ANY, WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.traits import Elementwise, View

_SHOWN = ("axes", "dims")


def _localize(local: LocalOp) -> list[Value]:
    """A device holds as much on either side of the edge."""
    return list(local.operands)


@rule("to_local", traits=View(shown=_SHOWN), localize=_localize, structural=True)
def into_region(spec: OpSpec) -> Iterable[TileMapping]:
    """The region's own loops, then every dim that it does not cut."""
    yield from (TileMapping((dim,), (ANY,), ways) for dim, ways in _cut(spec))
    yield from _others(spec)


@rule("to_global", traits=View(shown=_SHOWN), localize=_localize, structural=True)
def out_of_region(spec: OpSpec) -> Iterable[TileMapping]:
    """The region's own loops, then every dim that it does not cut."""
    yield from (TileMapping((WHOLE,), (dim,), ways) for dim, ways in _cut(spec))
    yield from _others(spec)


@rule("position", traits=Elementwise(0), structural=True)
def position(spec: OpSpec) -> Iterable[TileMapping]:
    """A scalar."""
    return ()


def _cut(spec: OpSpec) -> Iterator[tuple[int, int]]:
    """The dims that the region cuts, and in how many parts."""
    sizes = dict(spec.attributes["mesh"])
    for dim, axes in enumerate(spec.attributes["dims"]):
        if axes:
            yield dim, math.prod(sizes[a] for a in axes)


def _others(spec: OpSpec) -> Iterator[TileMapping]:
    for dim, axes in enumerate(spec.attributes["dims"]):
        if not axes:
            yield TileMapping((dim,), (dim,), spec.results[0].shape[dim])
