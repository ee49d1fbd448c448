"""Memory: what nodes hold at the times at which memory is shortest.

    time 0   arguments                            certain: they are held throughout            `argument_bytes`
    time 1   and what is live at the peak of a simulated state, value by value                 `Liveness`

Bytes are the simulator's, layout padding included. A lower bound takes time 0 alone: whatever a compiler fuses or
overwrites, arguments are there. A plan adds the peaks of the states that were simulated so far, each the time of a row;
what lives there in no node (collectives' results, what is read once) is taken as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.op import TensorType
from autopart.costmodel.simulator.arrays import padded_elements
from autopart.costmodel.simulator.simulator import Simulation
from autopart.search.ilp.labels import Label, local_dims
from autopart.search.ilp.nodes import Nodes


def label_bytes(type_: TensorType, label: Label, sizes: tuple[int, ...], layout_tile: tuple[int, int]) -> float:
    """Bytes that a device holds of a value in a label; `layout_tile` (1, 1) is no padding."""
    dims = np.array(local_dims(type_.shape, label, sizes), np.float64)
    rows, minor = layout_tile
    if minor > 1 and len(dims) and dims.prod() > 0:
        return float(padded_elements(dims, type_.element_bytes, rows, minor)) * type_.element_bytes
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
        """The one time at which arguments are all there is."""
        arguments = nodes.of_value[nodes.start.program.arguments]
        return Liveness(np.bincount(arguments, minlength=nodes.count)[None, :].astype(float), np.zeros(1))

    def with_peak(self, nodes: Nodes, run: Simulation) -> Liveness:
        """These times, and the peak of a simulated state."""
        program, buffers = nodes.start.program, run.buffers
        at = int(run.live.argmax())
        values = np.arange(program.value_count)
        held = (buffers.bytes > 0) & (buffers.made <= at) & (buffers.end >= at)
        waiting = values[held[: program.value_count] & (nodes.of_value >= 0)]
        live = self.live[0] + np.bincount(nodes.of_value[waiting], minlength=nodes.count)
        besides = float(run.live[at] + run.output_bytes - buffers.bytes[waiting].sum())
        return Liveness(np.vstack([self.live, live]), np.append(self.besides, max(0.0, besides)))
