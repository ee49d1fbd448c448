"""Repeated reads: where matrix ops read one stored array twice, so that gathering it once may serve both.

    params/up   read by the forward matmul, op 120, and by the backward matmul, op 480     a pair, 360 ops apart
    params/down read by op 130 and by op 470                                               a pair, 340 ops apart

Which of the reads need a gather depends on the state: `gathered` finds those that do.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program
from autopart.core.table.loop_nests import LoopNests, operand_entry, tiling
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.facts.op_classes import is_matrix_op
from autopart.spmd.lowering.placement import stored_values, use_places

QUANTILES = (0.25, 0.5, 1.0)
"""Shares of the bytes of repeated reads that the offered distances take in."""


@dataclass(frozen=True, eq=False)
class RepeatedReads:
    """Pairs of neighbouring reads of one stored array in one scope.

    first, second    int64[pairs]: uses, as in `program.operands`
    apart            int64[pairs]: ops between their gathers
    in_bytes         float64[pairs]: bytes of the whole array
    """

    first: np.ndarray
    second: np.ndarray
    apart: np.ndarray
    in_bytes: np.ndarray

    @staticmethod
    def of(program: Program, value_bytes: np.ndarray) -> RepeatedReads:
        """The pairs in a program."""
        scope, position = use_places(program)
        is_matrix = np.array([is_matrix_op(s) for s in program.specs], np.bool_)[program.op_spec]
        uses = np.flatnonzero(is_matrix[program.use_op] & stored_values(program)[program.operands])
        uses = uses[np.lexsort((position[uses], scope[uses], program.operands[uses]))]
        first, second = uses[:-1], uses[1:]
        same = (program.operands[first] == program.operands[second]) & (scope[first] == scope[second])
        first, second = first[same], second[same]
        apart = (position[second] - position[first]).astype(np.int64)
        return RepeatedReads(first, second, apart, value_bytes[program.operands[first]])

    @cached_property
    def distances(self) -> list[int]:
        """Numbers of ops within which `QUANTILES` of the bytes are shared, the least first."""
        order = np.argsort(self.apart, kind="stable")
        reached = np.cumsum(self.in_bytes[order])
        if not len(order) or reached[-1] <= 0:
            return []
        at = np.searchsorted(reached, np.array(QUANTILES) * reached[-1] * (1 - 1e-12))
        return sorted({max(1, int(d)) for d in self.apart[order][at]})

    def gathered(self, partitioning: Partitioning) -> np.ndarray:
        """bool[pairs]: in this state both reads need more of the array than a device stores."""
        found = np.empty(2 * len(self.first), np.bool_)
        needs_gather(partitioning.nests, self._both, found)
        return found[: len(self.first)] & found[len(self.first) :]

    @cached_property
    def _both(self) -> np.ndarray:
        return np.concatenate([self.first, self.second])


@kernel
def needs_gather(nests: LoopNests, uses: np.ndarray, out: np.ndarray) -> None:
    """out[i]: some axis tiles the operand of uses[i] on a dim on which the op that reads it does not slice it."""
    graph, state = nests.graph, nests.state
    for i in range(uses.shape[0]):
        out[i] = False
        op = graph.use_op[uses[i]]
        for axis in range(state.mapping.shape[1]):
            dim = tiling(nests, graph.operands[uses[i]], axis)
            if dim < 0:
                continue
            mapping = state.mapping[op, axis]
            if mapping < 0 or operand_entry(nests, op, mapping, uses[i] - graph.operand_ptr[op]) != dim:
                out[i] = True
