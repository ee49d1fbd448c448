"""Axes that are alike in every way, so that only one of them needs to be tried first (symmetry breaking).

{a: 4, b: 4} on two equal torus dimensions, neither in use     {"b": "a"}: b is symmetric to a
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autopart.core.mesh import Mesh
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.links.collective_seconds import collective_seconds
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.search.space.decisions import Decision
from autopart.search.space.open_tiles import in_use

PROBES = (1e3, 1e6, 1e9)
"""Bytes at which collectives over two axes must take equally long."""

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def symmetric_axes(partitioning: Partitioning, axes: Sequence[str]) -> dict[str, str]:
    """Axis -> the first of `axes` that has its size and its links, where neither is in use.

    Where the mesh names no device, nothing is known of links, and the result is empty.
    """
    mesh = partitioning.mesh
    if mesh.device is None:
        return {}
    links = mesh_links(mesh)
    free = [a for a in axes if not in_use(partitioning.state, mesh.index(a))]
    symmetric_to: dict[str, str] = {}
    for i, axis in enumerate(free):
        first = next((a for a in free[:i] if a not in symmetric_to and _alike(mesh, links, a, axis)), None)
        if first is not None:
            symmetric_to[axis] = first
    return symmetric_to


def _alike(mesh: Mesh, links: Links, a: str, b: str) -> bool:
    if mesh.shape[a] != mesh.shape[b]:
        return False
    pairs = ((collective_seconds(links, k, n, a), collective_seconds(links, k, n, b)) for k in KINDS for n in PROBES)
    return all(math.isclose(x, y, rel_tol=1e-9) for x, y in pairs)


def in_canonical_axes(
    partitioning: Partitioning,
    decisions: Sequence[Decision],
    apply: Callable[[Decision], object],
    alike: Mapping[str, str],
) -> tuple[Decision, ...]:
    """The decisions with axes that are alike named in one way, whichever of them a search happened to take first.

        tile<x, 0, b>, tile<w, 1, a>     ->     tile<x, 0, a>, tile<w, 1, b>

    Of axes that are alike, the first takes the loops that come first in the program. A decision that is about no axis,
    or that the other names would not mirror, leaves all as they are. `apply` carries a decision out on `partitioning`,
    which is left as it was; `alike` is what `symmetric_axes` said.
    """
    if not alike or any(not decision.axis for decision in decisions):
        return tuple(decisions)
    table = _table(partitioning, decisions, apply)
    names, renamed = partitioning.mesh.axis_names, {}
    for first in dict.fromkeys(alike.values()):
        members = [a for a in names if a == first or alike.get(a) == first]
        ranked = sorted(members, key=lambda a: _loops(table[:, names.index(a)]))
        renamed |= dict(zip(ranked, members, strict=True))
    found = tuple(d._replace(axis=renamed.get(d.axis, d.axis)) for d in decisions)
    order = [names.index(next((old for old, new in renamed.items() if new == name), name)) for name in names]
    mirrored = np.array_equal(_table(partitioning, found, apply), table[:, order])
    return found if mirrored else tuple(decisions)


def _table(
    partitioning: Partitioning, decisions: Sequence[Decision], apply: Callable[[Decision], object]
) -> np.ndarray:
    """int16[ops, axes]: the mapping of each op's loop over each axis after the decisions."""
    start = partitioning.mark()
    for decision in decisions:
        apply(decision)
    table = partitioning.state.mapping.copy()
    partitioning.undo(start)
    return table


def _loops(column: np.ndarray) -> tuple[list[int], list[int]]:
    """What orders columns: where an axis has loops, and by which mappings."""
    ops = np.flatnonzero(column >= 0)
    return (ops.tolist() or [len(column)]), column[ops].tolist()
