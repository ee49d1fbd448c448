"""Facts about a program that decisions go by, whatever the state of its partitioning.

updated            params/*/up, opt_state/mu/*/up, ...     arguments whose next value the program returns
optimizer_state    opt_state/mu/*/up, ...                  those of them that no matrix op reads
groups             params/blocks/0/up, params/blocks/1/up  one value group
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autopart.core.program import Program
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.argument_order import argument_order
from autopart.search.space.loop_reads import LoopReads
from autopart.search.space.next_values import next_values
from autopart.search.space.priors import (
    awaited_by,
    learned,
    look_ups,
    looked_up,
    matrix_ops,
    op_flop,
    read_by_matrix_ops,
    updated_arguments,
    value_bytes,
    walked_dims,
)
from autopart.search.space.repeated_reads import RepeatedReads
from autopart.search.space.value_groups import ValueGroups, value_groups


@dataclass(frozen=True, eq=False)
class ProgramFacts:
    """What every state of one program has in common; make it with `ProgramFacts.of`.

    given              lists of actions that a user or a named schedule brought along; each counts as one decision
    groups             values that play the same part in repeated layers
    same_shape         the same groups, divided where sizes differ
    order              int64[values]: the place of each argument by what the program does with it
    updated            int32[n]: the large arguments whose next value the program returns, in this order
    optimizer_state    int32[m]: those of `updated` that no matrix op reads
    tied               int32[k]: all arguments whose next value the program returns, however small
    learned            int32[l]: those of them that an optimizer updates
    read_by_matrix     bool[values]: a matrix op reads the value
    looked_up          bool[values]: a look-up reads the value as its table
    value_bytes        float64[values]: bytes of the whole value, times the trips of its loop
    """

    program: Program
    given: tuple[tuple[Action, ...], ...]
    groups: ValueGroups
    same_shape: ValueGroups
    order: np.ndarray = field(repr=False)
    updated: np.ndarray = field(repr=False)
    optimizer_state: np.ndarray = field(repr=False)
    read_by_matrix: np.ndarray = field(repr=False)
    value_bytes: np.ndarray = field(repr=False)

    @cached_property
    def total_bytes(self) -> float:
        """Bytes of all values."""
        return float(self.value_bytes.sum())

    @cached_property
    def updated_bytes(self) -> np.ndarray:
        """float64[n]: those of the updated arrays."""
        return self.value_bytes[self.updated]

    @cached_property
    def tied(self) -> np.ndarray:
        """Parameters, optimizer state, a cache: what the program updates."""
        return np.array([self.program.arguments[p] for p in sorted(set(next_values(self.program).values()))], np.int32)

    @cached_property
    def learned(self) -> np.ndarray:
        """Parameters and what is averaged from step to step, but no cache."""
        return learned(self.program)

    @cached_property
    def flop(self) -> np.ndarray:
        """float64[ops]: each op's share of the program's flop."""
        flop = op_flop(self.program)
        return flop / max(float(flop.sum()), 1.0)

    @cached_property
    def awaited(self) -> np.ndarray:
        """bool[ops]: some matrix op needs what the op computes, in this step."""
        program, (pointer, user) = self.program, self.program.users
        is_argument = np.zeros(program.op_count, np.bool_)
        is_argument[program.value_op[program.arguments]] = True
        out = np.zeros(program.op_count, np.bool_)
        is_matrix = matrix_ops(program)
        while awaited_by(program.result_ptr, pointer, user, program.use_op, is_matrix, is_argument, out):
            pass
        return out

    @cached_property
    def walked_dims(self) -> Mapping[tuple[int, ...], frozenset[int]]:
        """Shape of an updated array -> dims along which a loop takes slices of such an array: stacked layers."""
        return walked_dims(self.program, self.tied)

    @cached_property
    def looked_up(self) -> np.ndarray:
        """Embedding tables."""
        return looked_up(self.program)

    @staticmethod
    def of(program: Program, given: Sequence[Sequence[Action]] = ()) -> ProgramFacts:
        """Collects them from a program."""
        read = read_by_matrix_ops(program)
        order = argument_order(program, read, matrix_ops(program) | look_ups(program))
        updated = updated_arguments(program)
        updated = updated[np.argsort(order[updated])]
        return ProgramFacts(
            program=program,
            given=tuple(map(tuple, given)),
            groups=value_groups(program),
            same_shape=value_groups(program, same_shape=True),
            order=order,
            updated=updated,
            optimizer_state=updated[~read[updated]],
            read_by_matrix=read,
            value_bytes=value_bytes(program),
        )

    @cached_property
    def repeated_reads(self) -> RepeatedReads:
        """Where matrix ops read one stored array twice."""
        return RepeatedReads.of(self.program, self.value_bytes)

    @cached_property
    def loop_reads(self) -> LoopReads:
        """What loops may hold whole although it is stored in parts."""
        return LoopReads.of(self.program, self.value_bytes)

    def op_count(self, ops: np.ndarray) -> int:
        """How many ops these are."""
        return len(ops)

    def holds_for_whole(self, partitioning: Partitioning) -> bool:
        """True if a state of this program is one of the program that it was cut from, if it was."""
        return True

    def has_dim(self, dim: int) -> bool:
        """True if some value of the program has this dim."""
        return 0 <= dim < int(self.program.value_rank.max())

    def named(self, values: np.ndarray) -> str:
        """Values as text: the first, by scope, op and line if it has no path, and how many more there are."""
        more = f" and {len(values) - 1} more" if len(values) > 1 else ""
        return self.program.shown_name(int(values[0])) + more
