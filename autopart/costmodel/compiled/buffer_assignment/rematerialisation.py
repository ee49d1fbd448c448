"""What the compiler computes again by itself, where a step needs more memory than there is.

    slot         0 h = dot    1 s = softmax h    2 ...    3 peak    4 ...    5 reads s
    kept         |h ------------------------------------------------------- |
                              |s ------------------------------------------- |
    again        |h ------------------------------------------------------- |
                              |s ------------|                   s' = softmax h, before it is read

XLA:TPU does this where the schedule would take more than `LIMIT_SHARE` of the memory (rematerialisation). At the peak,
it computes again what waits there for a later kernel, if a kernel makes it from what is there at that time anyway. Here
the fewest seconds per byte go first, until the peak is below the limit or nothing is left. Collectives, and what loops
hold, are left as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autopart.core.program import ROOT
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, KernelGraph

LIMIT_SHARE = 0.95
"""Share of a device's memory up to which the compiler fills it: of T32 with 32 layers, which would take 1.2 times the
memory of a v3 core, three schedules end at 0.92, 0.93 and 0.95 (`experiments/fitting`, `experiments/automatic`)."""

MOST_PEAKS = 256
"""Peaks that are lowered one after the other, at most."""


def rematerialised(
    graph: KernelGraph,
    slot: np.ndarray,
    buffers: Buffers,
    node_s: np.ndarray,
    live: np.ndarray,
    limit_bytes: float,
    hbm_bytes_per_s: float,
) -> tuple[np.ndarray, float]:
    """(bytes that live at each slot, seconds more) once the compiler has brought `live` below a limit, if it can.

    slot[k], node_s[k]    when node k runs, and for how long
    """
    lowered = _Lowered.of(graph, slot, buffers, node_s, live.copy(), hbm_bytes_per_s)
    for _ in range(MOST_PEAKS):
        peak = int(lowered.live.argmax())
        if lowered.live[peak] <= limit_bytes or not lowered.lower(peak, limit_bytes):
            break
    return lowered.live, lowered.seconds


@dataclass
class _Lowered:
    """What was done so far.

    live[slot]             bytes
    maker[buffer]          the kernel of the program's own scope that makes it alone of its results, or -1
    seconds_of[buffer]     what making it again takes
    gap[buffer]            slots (first, next): it is not there between them, and made again at the later one
    read_buffer, read_slot each read of a buffer, and when
    """

    graph: KernelGraph
    buffers: Buffers
    live: np.ndarray
    maker: np.ndarray
    seconds_of: np.ndarray
    read_buffer: np.ndarray
    read_slot: np.ndarray
    gap: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    seconds: float = 0.0

    @staticmethod
    def of(
        graph: KernelGraph,
        slot: np.ndarray,
        buffers: Buffers,
        node_s: np.ndarray,
        live: np.ndarray,
        hbm_bytes_per_s: float,
    ) -> _Lowered:
        nodes = np.arange(len(graph.nodes))
        maker = np.full(len(buffers.bytes), -1, np.int64)
        maker[graph.write_buffer] = np.repeat(nodes, np.diff(graph.write_ptr))
        is_own = (graph.nodes["kind"] == KERNEL) & (graph.nodes["scope"] == ROOT)
        maker[(maker >= 0) & ~is_own[maker]] = -1
        least_s = buffers.bytes / hbm_bytes_per_s
        seconds_of = np.where(maker >= 0, np.maximum(node_s[maker], least_s), np.inf)
        read_slot = slot[np.repeat(nodes, np.diff(graph.read_ptr))]
        read_buffer = np.ascontiguousarray(graph.reads["read_buffer"])
        return _Lowered(graph, buffers, live, maker, seconds_of, read_buffer, read_slot)

    def lower(self, peak: int, limit_bytes: float) -> bool:
        """Computes again what waits at a peak, the cheapest first; False if nothing can be."""
        buffers, found = self.buffers, False
        before, after = self._reads_around(peak)
        waits = (
            (self.maker >= 0) & (buffers.bytes > 0) & (buffers.made < peak) & (before < peak) & (after <= buffers.end)
        )
        waits[list(self.gap)] = False
        rows = np.flatnonzero(waits)
        order = rows[np.argsort(self.seconds_of[rows] / buffers.bytes[rows], kind="stable")]
        for buffer in order.tolist():
            if self.live[peak] <= limit_bytes:
                break
            found = self._again(buffer, int(before[buffer]), after) or found
        return found

    def _reads_around(self, peak: int) -> tuple[np.ndarray, np.ndarray]:
        """int64[buffers]: the last slot up to the peak at which each is made or read, and the first behind it."""
        before, after = self.buffers.made.copy(), np.full(len(self.buffers.made), np.iinfo(np.int64).max)
        late = self.read_slot > peak
        np.maximum.at(before, self.read_buffer[~late], self.read_slot[~late])
        np.minimum.at(after, self.read_buffer[late], self.read_slot[late])
        return before, after

    def _again(self, buffer: int, before: int, after: np.ndarray) -> bool:
        """Makes a buffer again where it is read next, if what its kernel reads is there: that is then read there."""
        kernel, at = int(self.maker[buffer]), int(after[buffer])
        reads = self.read_buffer[self.graph.read_ptr[kernel] : self.graph.read_ptr[kernel + 1]].tolist()
        if not all(self._is_there(read, at) for read in reads):
            return False
        for read in reads:
            after[read] = min(int(after[read]), at)
            if read in self.gap and at < self.gap[read][1]:
                first, following = self.gap[read]
                self.live[at:following] += self.buffers.bytes[read]
                self.gap[read] = (first, at)
        self.gap[buffer] = (before, at)
        self.live[before + 1 : at] -= self.buffers.bytes[buffer]
        self.seconds += float(self.seconds_of[buffer])
        return True

    def _is_there(self, buffer: int, at: int) -> bool:
        """An argument is, and what was made and is not yet gone; what is made again later can be made again by then."""
        if self.maker[buffer] < 0 and self.buffers.bytes[buffer] == 0:
            return True
        inside = buffer not in self.gap or at > self.gap[buffer][0]
        return inside and bool(self.buffers.made[buffer] <= at <= self.buffers.end[buffer])
