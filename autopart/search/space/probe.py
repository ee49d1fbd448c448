"""Trying each decision about an argument or a tag once, on the starting state.

tile<params/*/qkv, 0, "batch">    reaches 60 % of the flop, 70 % of the bytes
tile<params/*/up, 0, "batch">     reaches exactly the same: it waits until "batch" is in use, where it may differ
tile<opt_state/mu/*/up, 0, ...>   reached by params/*/up in full, as it reaches that: follows it, never offered
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autopart.core.partitioning import Partitioning
from autopart.search.space.decisions import Decision, Option
from autopart.search.space.open_tiles import argument_dims
from autopart.search.space.priors import MIN_STAKE, op_flop

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace

MAX_PROBED = 128
"""Decisions that are kept, those with the most at stake first."""


@dataclass(frozen=True)
class Probe:
    """What a decision did on the starting state.

    stake   shares of flop and bytes it reached, added, times the share of them that the axis takes away
    own     share of the argument bytes that its own values have, times the same
    first   no earlier decision did exactly this
    """

    decision: Decision
    stake: float
    own: float
    first: bool

    def option(self, axis_in_use: bool) -> Option:
        """The decision as an option in a state; its prior is 0 where it should not be offered."""
        if axis_in_use:
            return Option(self.decision, self.own if self.own >= MIN_STAKE else self.stake * 0.1)
        return Option(self.decision, self.stake if self.first else 0.0)


def probe_each(space: DecisionSpace, partitioning: Partitioning) -> tuple[Probe, ...]:
    """Tries every decision about a role of arguments or tags, the largest arrays first; leaves the state as it was."""
    program, trials, seen = space.program, [], set()
    flop = op_flop(program)
    flop = flop / max(float(flop.sum()), 1.0)
    moved = space.value_bytes[program.result_ptr[:-1].clip(max=program.value_count - 1)]
    moved = moved / max(float(space.value_bytes.sum()), 1.0)
    arguments = np.array(program.arguments, np.int32)
    argument_bytes = space.value_bytes[arguments] / max(float(space.value_bytes[arguments].sum()), 1.0)
    updated, followers = np.isin(arguments, space.updated), _Followers(space, arguments)
    for decision in _candidates(space):
        if decision in followers.found:
            continue
        index = partitioning.mesh.index(decision.axis)
        gain = 1 - 1 / partitioning.mesh.axis_sizes[index]
        mark, before = partitioning.mark(), partitioning.state.mapping[:, index].copy()
        dims_before = dims_of(partitioning, arguments, index)
        if space.apply(partitioning, decision):
            column = partitioning.state.mapping[:, index]
            reached, dims = column != before, dims_of(partitioning, arguments, index)
            gained = dims != dims_before
            effect = (decision.axis, column.tobytes(), dims.tobytes())
            stake = float(flop[reached].sum() + moved[reached].sum() + argument_bytes[gained].sum())
            own = float(argument_bytes[np.isin(arguments, space.values(decision))].sum())
            if stake >= MIN_STAKE:
                trials.append(Probe(decision, stake * gain, own * gain, effect not in seen))
                seen.add(effect)
            followers.add(decision, dims, gained & updated)
        partitioning.undo(mark)
    trials.sort(key=lambda t: -t.stake)
    return tuple(trials[:MAX_PROBED])


def _candidates(space: DecisionSpace) -> list[Decision]:
    program = space.program
    first: dict[int, int] = {}
    for value in [*program.arguments, *(v for tagged in program.tags.values() for v in tagged)]:
        first.setdefault(int(space.roles.of[value]), int(value))
    largest = sorted(first, key=lambda role: (-float(space.value_bytes[space.roles.values(role)].sum()), first[role]))
    return [
        Decision("role", role, dim, axis)
        for axis in space.axes
        for role in largest
        for dim in range(int(program.value_rank[first[role]]))
    ]


class _Followers:
    """Decisions about updated arrays that a decision about others of the same sizes has carried out in full."""

    def __init__(self, space: DecisionSpace, arguments: np.ndarray):
        self.found: set[Decision] = set()
        self._space, self._arguments, self._updated = space, arguments, set(space.updated.tolist())

    def add(self, decision: Decision, dims: np.ndarray, gained: np.ndarray) -> None:
        """Notes whom `decision` took along: `dims` are the arguments' tiled dims now, `gained` those it tiled."""
        space, own = self._space, self._space.values(decision)
        if int(own[0]) not in self._updated:
            return
        took: dict[tuple[int, int], int] = {}
        for value, dim in zip(self._arguments[gained].tolist(), dims[gained].tolist(), strict=True):
            key = (int(space.roles.of[value]), dim)
            took[key] = took.get(key, 0) + 1
        shapes = space.program.value_shape
        for (role, dim), count in took.items():
            values = space.roles.values(role)
            if role != decision.target and count == len(values) == len(own) and (shapes[values] == shapes[own]).all():
                self.found.add(Decision("role", role, dim, decision.axis))


def dims_of(partitioning: Partitioning, values: np.ndarray, axis: int) -> np.ndarray:
    """int64[values]: the dim that the axis tiles of each value, or -1."""
    dims = np.empty(len(values), np.int64)
    argument_dims(partitioning.graph, partitioning.table.arrays, partitioning.state, values, axis, dims)
    return dims
