"""The facts of a program with fewer layers: the whole program's, about what is left of it.

    group 3     params/blocks/0/up to params/blocks/31/up     the same number, and params/blocks/{0,1,2,3,30,31}/up

Shares of flop and bytes are the whole program's: what stands for many layers counts as many. So decisions that go by
groups reach the same shares, and the same ones are offered with the same priors, to rounding; `holds_for_whole` says
whether a state is one of the whole program, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autopart.core.repeats.fewer_layers import FewerLayers, fewer_layers
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.loop_reads import LoopReads
from autopart.search.space.repeated_reads import RepeatedReads
from autopart.search.space.value_groups import ValueGroups


def facts_of_fewer(start: Partitioning, whole: ProgramFacts) -> FactsOfFewer | None:
    """What is left of a program's facts; None where no layers are alike, or they differ in the starting state."""
    program, fewer = whole.program, fewer_layers(whole.program)
    if fewer is None:
        return None
    is_left = np.zeros(program.op_count, np.bool_)
    is_left[fewer.ops] = True
    left_out = np.flatnonzero(~is_left)
    if not start.is_alike(left_out, fewer.ops[fewer.stands_in[left_out]]):
        return None
    return FactsOfFewer.of_whole(whole, fewer)


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
            order=whole.order[fewer.values],
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

    @cached_property
    def flop(self) -> np.ndarray:
        """The whole program's shares; an op has those of all that it stands for."""
        return self.whole.flop[self.fewer.ops] * self.fewer.times

    @cached_property
    def awaited(self) -> np.ndarray:
        """As in the whole program."""
        return self.whole.awaited[self.fewer.ops]

    @cached_property
    def looked_up(self) -> np.ndarray:
        """As in the whole program."""
        return self.whole.looked_up[self.fewer.values]

    def start(self, whole: Partitioning) -> Partitioning:
        """What is left of a state of the whole program."""
        return whole.of_part(self.program, self.fewer.ops, self.fewer.values)

    def op_count(self, ops: np.ndarray) -> int:
        """How many ops of the whole program these stand for."""
        return int(self.fewer.times[ops].sum())

    def holds_for_whole(self, partitioning: Partitioning) -> bool:
        """True if layers on both sides of the one that stands for others are decided as it is."""
        return self.fewer.three.agree(partitioning.state.mapping, self.fewer.three.ops)

    def has_all(self, decisions: Iterable[Decision]) -> bool:
        """True if something is left of every group that decisions about groups name."""
        named = {d.target for d in decisions if d.dim >= 0}
        return all(len(self.groups.values(group)) for group in named)

    def _stand_ins(self, uses: np.ndarray) -> np.ndarray:
        """int64[n]: for uses of the whole program, those that are left and stand for them."""
        program, op = self.whole.program, self.whole.program.use_op[uses]
        return self.fewer.program.operand_ptr[self.fewer.stands_in[op]] + uses - program.operand_ptr[op]


def _left_of(groups: ValueGroups, values: np.ndarray) -> ValueGroups:
    """The groups without the values that are gone, which may leave some empty."""
    of = groups.of[values]
    pointer = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=groups.count))]).astype(np.int32)
    return ValueGroups(of, pointer, np.argsort(of, kind="stable").astype(np.int32))
