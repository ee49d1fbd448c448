"""The decision space of a program with fewer layers: the whole program's decisions, about what is left of it.

    tile_group 3     params/blocks/0/up to params/blocks/31/up     the same number, and params/blocks/{0,1,2,3,30,31}/up

Shares of flop and bytes are the whole program's: what stands for many layers counts as many. So the same decisions are
offered with the same priors, to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.loop_reads import LoopReads
from autopart.search.space.repeated_reads import RepeatedReads
from autopart.search.space.value_groups import ValueGroups


def space_of_fewer(space: DecisionSpace, fewer: FewerLayers) -> DecisionSpace | None:
    """The space; None where layers differ in the starting state."""
    start, program = space.start, space.program
    is_left = np.zeros(program.op_count, np.bool_)
    is_left[fewer.ops] = True
    left_out = np.flatnonzero(~is_left)
    if not start.is_alike(left_out, fewer.ops[fewer.stands_in[left_out]]):
        return None
    return replace(
        space,
        facts=FactsOfFewer.of_whole(space.facts, fewer),
        start=start.of_part(fewer.program, fewer.ops, fewer.values),
    )


@dataclass(frozen=True, eq=False)
class FactsOfFewer(ProgramFacts):
    """Facts about a program with fewer layers; groups have the whole program's numbers."""

    whole: ProgramFacts = field(repr=False)
    fewer: FewerLayers = field(repr=False)

    @staticmethod
    def of_whole(whole: ProgramFacts, fewer: FewerLayers) -> FactsOfFewer:
        """What is left of the whole program's facts."""
        number = np.full(whole.program.value_count, -1, np.int32)
        number[fewer.values] = np.arange(len(fewer.values), dtype=np.int32)
        times = fewer.times[fewer.program.value_op]

        def left(values: np.ndarray) -> np.ndarray:
            return number[values][number[values] >= 0]

        return FactsOfFewer(
            program=fewer.program,
            given=(),
            groups=_left_of(whole.groups, fewer.values),
            same_shape=_left_of(whole.same_shape, fewer.values),
            updated=left(whole.updated),
            optimizer_state=left(whole.optimizer_state),
            read_by_matrix=whole.read_by_matrix[fewer.values],
            value_bytes=whole.value_bytes[fewer.values] * times,
            whole=whole,
            fewer=fewer,
        )

    @cached_property
    def repeated_reads(self) -> RepeatedReads:
        """The whole program's pairs; a read in a layer that is left out is that of the layer that stands for it."""
        reads = self.whole.repeated_reads
        return RepeatedReads(self._stand_ins(reads.first), self._stand_ins(reads.second), reads.apart, reads.in_bytes)

    @cached_property
    def loop_reads(self) -> LoopReads:
        """The whole program's reads and carries of loops, likewise."""
        reads = self.whole.loop_reads
        carries = self.fewer.stands_in[reads.carries].astype(np.int64)
        return LoopReads(self._stand_ins(reads.uses), reads.use_bytes, carries, reads.carry_bytes)

    def _stand_ins(self, uses: np.ndarray) -> np.ndarray:
        """int64[n]: for uses of the whole program, those that are left and stand for them."""
        program, op = self.whole.program, self.whole.program.use_op[uses]
        return self.fewer.program.operand_ptr[self.fewer.stands_in[op]] + uses - program.operand_ptr[op]


def _left_of(groups: ValueGroups, values: np.ndarray) -> ValueGroups:
    """The groups without the values that are gone, which may leave some empty."""
    of = groups.of[values]
    pointer = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=groups.count))]).astype(np.int32)
    return ValueGroups(of, pointer, np.argsort(of, kind="stable").astype(np.int32))
