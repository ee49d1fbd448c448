"""Which hosts hold what: of the arguments that lie alike, how many parts a host has, and how many hosts each part.

    host 0   devices 0 to 7: data 0 to 0, model 0 to 7
    [data, -]      8 parts, 1 on a host, each on 1 host        params/emb and 12 more
    [-, model]     8 parts, 8 on a host, each on 8 hosts       params/blocks/*/up, ...

A checkpoint's shard, an input pipeline's rows and what is lost with a host follow from it. Devices are those of the
mesh in order; where jax's devices are given, their hosts are, else so many in a row as a host of their kind has.
"""

from __future__ import annotations

import re

import numpy as np

from autopart.api.explained.metadata import Metadata
from autopart.api.explained.what_if import spec_text
from autopart.base.html import escaped, table_html
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.fabric import Switch

GPUS, CHIPS = 8, 4
"""Devices of a GPU server (HGX, DGX), and chips of a TPU VM of several hosts (Cloud TPU's pages on v2 to v5p)."""

MOST_DEVICES = 1 << 16
"""Of a larger mesh nothing is said."""

ROWS = 12
"""Layouts that are listed, those with the most bytes."""


def host_of(mesh: Mesh, devices: np.ndarray | None) -> np.ndarray | None:
    """int64[devices]: the host of each, in the mesh's order; None where nobody knows."""
    if devices is not None:
        return np.array([d.process_index for d in devices.flat], np.int64)
    if mesh.device is None or mesh.size > MOST_DEVICES:
        return None
    kind = device(mesh.device)
    each = min(GPUS, kind.wires.domain) if isinstance(kind.wires, Switch) else CHIPS * kind.cores
    return np.arange(mesh.size) // each


def hosts(metadata: Metadata, program: Program, mesh: Mesh, devices: np.ndarray | None) -> str:
    """The table; nothing where one host has all devices."""
    host = host_of(mesh, devices)
    if host is None or len(np.unique(host)) < 2:
        return ""
    places = np.array(np.unravel_index(np.arange(mesh.size), mesh.axis_sizes))
    groups: dict[tuple[tuple[str, ...], ...], tuple[list[str], float]] = {}
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        names, size = groups.setdefault(metadata.in_specs[name], ([], 0.0))
        groups[metadata.in_specs[name]] = ([*names, name], size + program.type_of(value).bytes)
    rows: list[list[object]] = []
    for spec, (names, size) in sorted(groups.items(), key=lambda row: -row[1][1])[:ROWS]:
        used = [mesh.index(axis) for axes in spec for axis in axes]
        part = np.zeros(mesh.size, np.int64)
        for axis in used:
            part = part * mesh.axis_sizes[axis] + places[axis]
        pairs = np.unique(np.stack([host, part]), axis=1)
        parts, on_host = int(part.max()) + 1, np.bincount(pairs[0]).max()
        rows.append([
            spec_text(spec), parts, int(on_host), int(np.bincount(pairs[1]).max()), bytes_text(size * on_host / parts),
            _named(names),
        ])  # fmt: skip
    count = len(np.unique(host))
    first = np.flatnonzero(host == host[0])
    held = ", ".join(
        f"{one_line(axis)} {places[n][first].min()} to {places[n][first].max()}"
        for n, axis in enumerate(mesh.axis_names)
    )
    header = ["axes of each dim", "parts", "on a host", "hosts that hold a part", "bytes on a host", "arguments"]
    return (
        f"<p>{count} hosts of {len(first)} devices each; the first has {escaped(held)}.</p>"
        f'<div class="scroll">{table_html(header, rows)}</div>'
    )


def _named(names: list[str]) -> str:
    patterns = list(dict.fromkeys(re.sub(r"\d+", "*", name) for name in names))
    more = f" and {len(patterns) - 2} more kinds" if len(patterns) > 2 else ""
    return ", ".join(map(one_line, patterns[:2])) + more
