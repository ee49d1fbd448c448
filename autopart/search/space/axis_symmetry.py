"""Axes that are alike in every way, so that only one of them needs to be tried first (symmetry breaking).

{a: 4, b: 4} on two equal torus dimensions, neither in use     {"b": "a"}: b is symmetric to a
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autopart.core.mesh import Mesh
from autopart.core.partitioning import Partitioning
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.costmodel.simulator.collective_seconds import collective_seconds
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
