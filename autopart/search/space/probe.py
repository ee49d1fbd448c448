"""Probing: each decision about an argument or a tag is tried once on the starting state, which gives its prior.

tile<params/*/qkv, 0, "batch">    reaches 60 % of the flop and 70 % of the bytes
tile<params/*/up, 0, "batch">     reaches exactly the same ops: it is offered once "batch" is in use, because only
                                  then may it differ
tile<opt_state/mu/*/up, 0, ...>   is never tried: an earlier probe tiled params/*/up, and propagation tiled all of
                                  opt_state/mu/*/up on dim 0, so the decision about params/*/up implies it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.op import REDUCTION_NAMES
from autopart.core.table.partitioning import Partitioning
from autopart.core.table.propagation import tiled_dims
from autopart.search.space.decisions import Decision, DecisionKind, Option
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.priors import MIN_SHARE

REDUCTIONS = len(REDUCTION_NAMES)

MAX_PROBES = 128
"""Probes that are kept: those with an effect of their own, which is what a search begins with, then those that reach
most."""


@dataclass(frozen=True)
class Probe:
    """What a decision did on the starting state.

    reached    the shares of flop and of bytes that it reached, added, times the share of them that the axis takes away
    own        the share of the argument bytes that its own values have, times the same
    distinct   no earlier probe had exactly this effect
    tiled      the share of the flop in ops whose results it tiled
    ended      the share of the flop in ops that now yield parts of a sum for which no matrix op waits: gradients
    summed     the share of the flop in ops that yield parts of other sums: activations
    moved      the bytes of all these sums, and of what it tiled and an op reads whole, as a share of all values' bytes
    weights    the share of the bytes of other parameters that it tiled
    """

    decision: Decision
    reached: float
    own: float
    distinct: bool
    tiled: float
    ended: float
    summed: float
    moved: float
    weights: float

    def option(self, axis_in_use: bool) -> Option:
        """The decision as an option in a state; its prior is 0 where it should not be offered."""
        if axis_in_use:
            return Option(self.decision, self.own if self.own >= MIN_SHARE else self.reached * 0.1)
        return Option(self.decision, self.reached if self.distinct else 0.0)


def probe_each(
    partitioning: Partitioning,
    facts: ProgramFacts,
    kinds: Mapping[str, DecisionKind],
    decisions: Sequence[Decision],
) -> tuple[Probe, ...] | None:
    """Tries the decisions in turn, each from the state as it stands, which is left as it was.

    None where the program has fewer layers than the one that is asked about, and a decision leads them apart.
    """
    shares = _Shares.of(facts)
    probes: list[Probe] = []
    seen: set[tuple[str, bytes, bytes]] = set()
    implied: set[_TileKey] = set()
    for decision in decisions:
        values = kinds[decision.kind].values(facts, decision)
        if _key(decision, values, decision.dim) in implied:
            continue
        before = _Axis.of(partitioning, shares.arguments, decision.axis)
        mark = partitioning.mark()
        if kinds[decision.kind].apply(facts, partitioning, decision):
            if not facts.holds_for_whole(partitioning):
                partitioning.undo(mark)
                return None
            after = _Axis.of(partitioning, shares.arguments, decision.axis)
            effect = (decision.axis, after.mapping.tobytes(), after.dims.tobytes())
            gain = 1 - 1 / partitioning.mesh.shape[decision.axis]
            reached = shares.reached(before, after)
            if reached >= MIN_SHARE:
                split, weights = shares.split(partitioning, before, after), shares.weights(values, before, after)
                own, is_new = shares.own(values) * gain, effect not in seen
                probes.append(Probe(decision, reached * gain, own, is_new, *split, weights))
                seen.add(effect)
            implied |= set(_implied(facts, decision, values, before, after, shares.arguments))
        partitioning.undo(mark)
    probes.sort(key=lambda p: (not p.distinct, -p.reached))
    return tuple(sorted(probes[:MAX_PROBES], key=lambda p: -p.reached))


@dataclass(frozen=True)
class _Axis:
    """How one axis slices the program: mapping int16[ops], and the dim that it tiles of each argument, int64[n]."""

    mapping: np.ndarray
    dims: np.ndarray

    @staticmethod
    def of(partitioning: Partitioning, arguments: np.ndarray, axis: str) -> _Axis:
        """As it is now."""
        index, dims = partitioning.mesh.index(axis), np.empty(len(arguments), np.int64)
        tiled_dims(partitioning.nests, arguments, index, dims)
        return _Axis(partitioning.state.mapping[:, index].copy(), dims)


@dataclass(frozen=True)
class _Shares:
    """What part of the program an op or an argument is; each array adds up to about 1.

    flop, moved        float64[ops]: share of the flop; share of all values' bytes that the op's first result has
    arguments          int32[n]: the program's arguments
    argument_bytes     float64[n]: share of the arguments' bytes
    is_weight          bool[n]: a matrix op reads the argument; where an optimizer updates such arguments, these alone
    is_awaited         bool[ops]: a matrix op lies behind the op
    producer           int32[uses]: the op whose result each use reads
    """

    flop: np.ndarray
    moved: np.ndarray
    arguments: np.ndarray
    argument_bytes: np.ndarray
    is_weight: np.ndarray
    is_awaited: np.ndarray
    producer: np.ndarray

    @staticmethod
    def of(facts: ProgramFacts) -> _Shares:
        """The shares in a program."""
        program, in_bytes = facts.program, facts.value_bytes
        first_result = program.result_ptr[:-1].clip(max=program.value_count - 1)
        arguments = np.array(program.arguments, np.int32)
        return _Shares(
            flop=facts.flop,
            moved=in_bytes[first_result] / max(float(in_bytes.sum()), 1.0),
            arguments=arguments,
            argument_bytes=in_bytes[arguments] / max(float(in_bytes[arguments].sum()), 1.0),
            is_weight=_weights(facts, arguments),
            is_awaited=facts.awaited,
            producer=program.value_op[program.operands],
        )

    def reached(self, before: _Axis, after: _Axis) -> float:
        """The shares of flop and bytes of ops whose mapping changed, and of the arguments' bytes whose dim changed."""
        ops, arguments = after.mapping != before.mapping, after.dims != before.dims
        return float(self.flop[ops].sum() + self.moved[ops].sum() + self.argument_bytes[arguments].sum())

    def split(self, partitioning: Partitioning, before: _Axis, after: _Axis) -> tuple[float, float, float, float]:
        """`Probe.tiled`, `ended`, `summed` and `moved`."""
        ops = np.flatnonzero((after.mapping != before.mapping) & (after.mapping >= 0))
        sums = leaves_sum(partitioning, ops, after.mapping[ops])
        awaited = sums & self.is_awaited[ops]
        flop, moves = self.flop[ops], np.zeros(len(after.mapping), np.bool_)
        moves[ops[~sums]] = True
        moves = self._read_whole(partitioning, after, moves)
        moves[ops[sums]] = True
        shares = flop[~sums].sum(), flop[sums & ~awaited].sum(), flop[awaited].sum(), self.moved[moves].sum()
        tiled, ended, summed, moved = map(float, shares)
        return tiled, ended, summed, moved

    def _read_whole(self, partitioning: Partitioning, after: _Axis, tiles: np.ndarray) -> np.ndarray:
        """bool[ops]: of the ops marked in `tiles`, those whose results some op without a loop over the axis reads."""
        uses = tiles[self.producer] & (after.mapping[partitioning.program.use_op] < 0)
        found = np.zeros(len(tiles), np.bool_)
        found[self.producer[uses]] = True
        return found

    def weights(self, values: np.ndarray, before: _Axis, after: _Axis) -> float:
        """`Probe.weights` of a decision about `values`."""
        others = self.is_weight & ~np.isin(self.arguments, values)
        total = float(self.argument_bytes[others].sum())
        return float(self.argument_bytes[others & (after.dims != before.dims)].sum()) / (total or 1.0)

    def own(self, values: np.ndarray) -> float:
        """The share of the arguments' bytes that `values` have."""
        return float(self.argument_bytes[np.isin(self.arguments, values)].sum())


def _weights(facts: ProgramFacts, arguments: np.ndarray) -> np.ndarray:
    """bool[n]: the arguments that are parameters, as far as can be told."""
    read = facts.read_by_matrix[arguments]
    trained = read & np.isin(arguments, facts.learned)
    return trained if trained.any() else read


def leaves_sum(partitioning: Partitioning, ops: np.ndarray, mapping: np.ndarray) -> np.ndarray:
    """bool[n]: with mapping number mapping[i], each device holds a part of the first result of ops[i]."""
    program, maps = partitioning.program, partitioning.table.arrays
    row = maps.start[maps.first[program.op_spec[ops]] + mapping]
    operands = program.operand_ptr[ops + 1] - program.operand_ptr[ops]
    has_result = program.result_ptr[ops + 1] > program.result_ptr[ops]
    entry = maps.entries[(row + operands).clip(max=max(len(maps.entries) - 1, 0))] if len(ops) else np.empty(0, np.int8)
    return has_result & (entry > LAST_TILE) & (entry <= LAST_TILE + REDUCTIONS)


_TileKey = tuple[str, bytes, int, str]
"""What tells two tilings of the same values apart: kind, values, dim, axis."""


def _key(decision: Decision, values: np.ndarray, dim: int) -> _TileKey:
    return decision.kind, values.astype(np.int32).tobytes(), dim, decision.axis


def _implied(
    facts: ProgramFacts,
    decision: Decision,
    values: np.ndarray,
    before: _Axis,
    after: _Axis,
    arguments: np.ndarray,
) -> Iterator[_TileKey]:
    """Other groups of updated arrays, of the same sizes, that a decision about updated arrays tiled completely."""
    if not len(values) or values[0] not in facts.updated:
        return
    gained = (after.dims != before.dims) & np.isin(arguments, facts.updated)
    tiled: dict[tuple[int, int], int] = {}
    for value, dim in zip(arguments[gained].tolist(), after.dims[gained].tolist(), strict=True):
        key = (int(facts.groups.of[value]), dim)
        tiled[key] = tiled.get(key, 0) + 1
    shapes = facts.program.value_shape
    for (group, dim), count in tiled.items():
        others = facts.groups.values(group)
        whole = count == len(others) == len(values)
        if whole and not np.array_equal(others, values) and (shapes[others] == shapes[values]).all():
            yield _key(decision, others, dim)
