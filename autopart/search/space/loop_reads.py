"""Loop reads: what loops hold whole although it is stored in parts, unless they gather and reduce in every turn.

    params/up   read by a matmul in the loop over microbatches     a use: gathered once, before the loop
    sum of up's gradients, from zeros                              a carry: reduced once, after the loop

Which of the uses need a gather, and which of the carries are tiled, depends on the state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.program import Program
from autopart.core.splats import splat_behind
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.repeated_reads import needs_gather
from autopart.spmd.lowering.placement import stored_values, use_places


@dataclass(frozen=True, eq=False)
class LoopReads:
    """Uses and carries of loops that run more than once.

    uses        int64[n]: uses, as in `program.operands`, of stored arrays from outside the loop
    use_bytes   float64[n]: bytes of the whole array
    carries     int64[m]: ops that carry an array which begins with zeros
    carry_bytes float64[m]: bytes of the whole array
    """

    uses: np.ndarray
    use_bytes: np.ndarray
    carries: np.ndarray
    carry_bytes: np.ndarray

    @staticmethod
    def of(program: Program, value_bytes: np.ndarray) -> LoopReads:
        """Those of a program."""
        scope, _ = use_places(program)
        uses = np.flatnonzero((scope != program.use_scope) & stored_values(program)[program.operands])
        carries = [op for op in program.owners if program.spec(op).kind == "carry" and _begins_with_zeros(program, op)]
        carried = np.array(sorted(carries), np.int64)
        inside = program.result_ptr[carried]
        return LoopReads(uses, value_bytes[program.operands[uses]], carried, value_bytes[inside])

    def held_whole(self, partitioning: Partitioning) -> float:
        """Bytes that loops hold whole in this state, and would not if they held parts; over all of `total`: 0 to 1."""
        gathered = np.empty(len(self.uses), np.bool_)
        needs_gather(partitioning.nests, self.uses, gathered)
        tiled = (partitioning.state.mapping[self.carries] >= 0).any(axis=1)
        held = float(self.use_bytes[gathered].sum() + self.carry_bytes[tiled].sum())
        return held / max(self.total, 1.0)

    @property
    def total(self) -> float:
        """Bytes of all uses and carries."""
        return float(self.use_bytes.sum() + self.carry_bytes.sum())


def _begins_with_zeros(program: Program, carry: int) -> bool:
    """True if what the loop begins with is a constant of zeros, broadcast or not."""
    found = splat_behind(program, int(program.operands_of(carry)[0]))
    return found is not None and found == 0 and bool(program.type_of(program.results_of(carry)[0]).shape)
