"""Memory: what nodes hold at the times at which memory is shortest.

    bound   one time: arguments, which are held throughout whatever a compiler fuses or overwrites
    plan    the peak of each state that was simulated: arguments, and what is live there, value by value

Bytes are the simulator's, layout padding included. What lives at a peak in no node (results of collectives, what is
read once) is taken as it was in that state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.op import TensorType
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.compiled.sizes import padded_elements
from autopart.search.ilp.labels import Label, local_dims
from autopart.search.ilp.nodes import Nodes


def label_bytes(type_: TensorType, label: Label, sizes: tuple[int, ...], layout_tile: tuple[int, int]) -> float:
    """Bytes that a device holds of a value in a label; `layout_tile` (1, 1) is no padding."""
    dims = np.array(local_dims(type_.shape, label, sizes), np.float64)
    rows, minor = layout_tile
    if minor > 1 and len(dims) and dims.prod() > 0:
        return float(padded_elements(dims, len(dims), type_.element_bytes, rows, minor)) * type_.element_bytes
    return float(dims.prod()) * type_.element_bytes


def node_bytes(nodes: Nodes, layout_tile: tuple[int, int]) -> list[np.ndarray]:
    """Bytes of one value of each node under each of its labels; zeros for the node of an op."""
    program, sizes = nodes.start.program, nodes.start.mesh.axis_sizes
    known: dict[tuple[TensorType, int], np.ndarray] = {}
    found: list[np.ndarray] = []
    for node in range(nodes.count):
        labels = nodes.labels[node]
        if not labels:
            found.append(np.zeros(nodes.options(node)))
            continue
        type_ = program.type_of(nodes.member[node])
        key = (type_, id(labels))
        if key not in known:
            known[key] = np.array([label_bytes(type_, label, sizes, layout_tile) for label in labels])
        found.append(known[key])
    return found


@dataclass(frozen=True, eq=False)
class Liveness:
    """How many values of each node are live at each time, and bytes that no node accounts for.

    live       float64[times, nodes]
    besides    float64[times]
    """

    live: np.ndarray
    besides: np.ndarray

    @staticmethod
    def of_arguments(nodes: Nodes) -> Liveness:
        """One time, at which arguments are all there is."""
        arguments = nodes.of_value[nodes.start.program.arguments]
        return Liveness(np.bincount(arguments, minlength=nodes.count)[None, :].astype(float), np.zeros(1))

    @staticmethod
    def of_peaks(nodes: Nodes, runs: Sequence[Simulation]) -> Liveness:
        """A time for the peak of each simulated state, earlier peaks first."""
        arguments = Liveness.of_arguments(nodes).live[0]
        rows = sorted((_peak(nodes, run) for run in runs), key=lambda row: row[0])
        return Liveness(np.array([arguments + live for _, live, _ in rows]), np.array([b for _, _, b in rows]))

    def usages(self, bytes_of: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """(usages, intervals) of a pairwise problem: of the nodes, then of one node a time for what is held besides.

        A node is live from its first time to its last, with as many values as it has at most.
        """
        most, times = self.live.max(axis=0), np.arange(len(self.live))
        usages = [count * held for count, held in zip(most.tolist(), bytes_of, strict=True)]
        first, last = (self.live > 0).argmax(axis=0), len(times) - (self.live[::-1] > 0).argmax(axis=0)
        intervals = np.column_stack([first, np.where(most > 0, last, first)])
        usages += [np.array([held]) for held in self.besides.tolist()]
        return usages, np.vstack([intervals, np.column_stack([times, times + 1])])


def _peak(nodes: Nodes, run: Simulation) -> tuple[int, np.ndarray, float]:
    """(slot of the peak, how many computed values of each node live there, bytes of what lives in none)."""
    program, buffers = nodes.start.program, run.buffers
    at = int(run.live.argmax())
    held = (buffers.bytes > 0) & (buffers.made <= at) & (buffers.end >= at)
    waiting = np.flatnonzero(held[: program.value_count] & (nodes.of_value >= 0))
    live = np.bincount(nodes.of_value[waiting], minlength=nodes.count).astype(float)
    besides = float(run.live[at] + run.output_bytes - buffers.bytes[waiting].sum())
    return at, live, max(0.0, besides)
