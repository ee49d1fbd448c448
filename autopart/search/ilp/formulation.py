"""From nodes to the edges of a pairwise problem: what is moved between which nodes, and what that costs.

    op - value    a result that waits is moved from the label in which the op leaves it to where it waits      `defs`
    value - op    it is moved to the label in which the op reads it, times its share of the move               `uses`
    op - op       a value that is read once: both moves, over the cheapest label in between                    `directs`

Uses in one scope that need one label share a move, and which do is not known before the choice. `share[use]` of the
move is put down to a use: 1 over the number of uses in the scope never counts a shared move more than once, and what a
lowered program shares is counted exactly for the strategies of that program.

Parallel edges are added up. An edge from a node to itself, between two equal layers that are grouped, costs each
strategy what it costs with itself.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import TensorType
from autopart.core.program import Program
from autopart.search.ilp.labels import Label, is_pending, legal_labels
from autopart.search.ilp.nodes import ARGUMENT, Nodes
from autopart.search.ilp.prices import Moves, Prices, moved_to
from autopart.spmd.device_local import LoweringContext

Floats = np.ndarray


class Def(NamedTuple):
    """A result that waits: the op's node, the result's number, the value's node, its type."""

    op: int
    result: int
    value: int
    type_: TensorType


class Use(NamedTuple):
    """A use of a value that waits: the value's node, the reader's node (`ARGUMENT`: an argument's), operand, type, and
    the reductions for parts of which the value may stand (`PendingWays.stands`)."""

    value: int
    op: int
    operand: int
    type_: TensorType
    stands: int


class Direct(NamedTuple):
    """A value that is read once: its op's node and result, the reader's node and operand, its type, for what it may
    stand, and how often the move after its op and the move before its use run."""

    op: int
    result: int
    reader: int
    operand: int
    type_: TensorType
    stands: int
    def_trips: float
    use_trips: float


@dataclass(frozen=True, eq=False)
class Flow:
    """What moves between nodes, with how often it does; make it with `Flow.of`.

    defs, uses    trips of each, added up over equal ones; a use counts its `share` of a move
    directs       how many there are of each
    """

    nodes: Nodes
    defs: dict[Def, float]
    uses: dict[Use, float]
    directs: dict[Direct, float]

    @staticmethod
    def of(nodes: Nodes, statics: LoweringContext, stands: np.ndarray, share: Floats) -> Flow:
        """The flow between nodes; `stands` is int64[values] (`PendingWays`), `share` is float64[uses]."""
        program = nodes.start.program
        trips, types = program.scope_trips.astype(float).tolist(), _types(program)
        defs: dict[Def, float] = defaultdict(float)
        uses: dict[Use, float] = defaultdict(float)
        directs: dict[Direct, float] = defaultdict(float)
        scope, shares, stand_ins = statics.places[0].tolist(), share.tolist(), stands.tolist()
        pointer, user = program.users
        for value, op in enumerate(program.value_op.tolist()):
            maker, waits = int(nodes.of_op[op]), int(nodes.of_value[value])
            result, def_trips = value - int(program.result_ptr[op]), trips[int(program.op_scope[op])]
            type_ = types[int(program.value_type_row[value])]
            read_by = user[pointer[value] : pointer[value + 1]].tolist()
            if waits >= 0:
                if maker != ARGUMENT:
                    defs[Def(maker, result, waits, type_)] += def_trips
                for use in read_by:
                    by, operand = _reader(nodes, use)
                    uses[Use(waits, by, operand, type_, stand_ins[value])] += shares[use] * trips[scope[use]]
            elif read_by:
                by, operand = _reader(nodes, read_by[0])
                use_trips = trips[scope[read_by[0]]]
                directs[Direct(maker, result, by, operand, type_, stand_ins[value], def_trips, use_trips)] += 1.0
        return Flow(nodes, dict(defs), dict(uses), dict(directs))

    def moves(self) -> Moves:
        """The pairs of labels between which something may move, by type."""
        found: dict[TensorType, dict[tuple[Label, Label], None]] = defaultdict(dict)
        for d in self.defs:
            found[d.type_].update(_pairs(self._left(d.op, d.result), self.nodes.labels[d.value]))
        for u in self.uses:
            found[u.type_].update(_pairs(self.nodes.labels[u.value], self._read(u.op, u.operand), u.stands))
        for d in self.directs:
            left, read = self._left(d.op, d.result), self._read(d.reader, d.operand)
            between = self._between(d.type_, left, read)
            found[d.type_].update(_pairs(left, between) | _pairs(between, read, d.stands))
        return {type_: list(pairs) for type_, pairs in found.items()}

    def _left(self, node: int, result: int) -> tuple[Label, ...]:
        options = self.nodes.strategies[node]
        assert options is not None
        return options.native[result]

    def _read(self, node: int, operand: int) -> tuple[Label, ...]:
        """Labels in which a node reads: an op's strategies, or those in which an argument is stored."""
        options = self.nodes.strategies[node]
        return self.nodes.labels[node] if options is None else options.required[operand]

    def edges(self, prices: Prices, *, least: bool) -> dict[tuple[int, int], Floats]:
        """Seconds between the strategies of two nodes u <= v, parallel edges added up: [strategies of u, of v].

        least  what a combined collective spares is taken off, as if all were combined
        """
        found: dict[tuple[int, int], Floats] = {}

        def add(u: int, v: int, matrix: Floats) -> None:
            if matrix.any():
                key, entries = ((u, v), matrix) if u <= v else ((v, u), matrix.T)
                found[key] = found[key] + entries if key in found else entries

        for d, times in self.defs.items():
            seconds = _after_op(prices, d.type_, self._left(d.op, d.result), self.nodes.labels[d.value], least)
            add(d.op, d.value, _scaled(times, seconds))
        for u, times in self.uses.items():
            seconds = prices.seconds(u.type_, self.nodes.labels[u.value], self._read(u.op, u.operand), u.stands)
            add(u.value, u.op, _scaled(times, seconds))
        known: dict[tuple[object, ...], Floats] = {}
        for d, times in self.directs.items():
            left, read = self._left(d.op, d.result), self._read(d.reader, d.operand)
            key = (d.type_, id(left), id(read), d.stands, d.def_trips, d.use_trips)
            if key not in known:
                between = self._between(d.type_, left, read)
                first = _scaled(d.def_trips, _after_op(prices, d.type_, left, between, least))
                second = _scaled(d.use_trips, prices.seconds(d.type_, between, read, d.stands))
                known[key] = (first[:, :, None] + second[None, :, :]).min(axis=1)
            add(d.op, d.reader, _scaled(times, known[key]))
        return found

    def _between(self, type_: TensorType, left: Sequence[Label], read: Sequence[Label]) -> tuple[Label, ...]:
        """The labels in which a value may wait that is left and read so: it may be decided about like any other."""
        every, sizes = range(len(type_.shape) + 1), self.nodes.start.mesh.axis_sizes
        choices: list[list[int]] = []
        for made, wanted, is_open in zip(
            zip(*left, strict=True), zip(*read, strict=True), self.nodes.is_open, strict=True
        ):
            codes = {c for c in made if not is_pending(c)} | {c for c in made if is_pending(c) and c in wanted}
            choices.append(sorted(codes.union(every) if is_open or any(map(is_pending, made)) else codes))
        return self.nodes.shared(tuple(legal_labels(type_.shape, choices, sizes)))


def equal_shares(nodes: Nodes, statics: LoweringContext) -> Floats:
    """float64[uses]: 1 over the number of uses of the value in the scope of the move: never more than is paid."""
    program, scope = nodes.start.program, statics.places[0]
    pairs = np.column_stack([program.operands, scope])
    _, which, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return 1.0 / count[which.reshape(-1)]


def _types(program: Program) -> list[TensorType]:
    return [result for spec in program.specs for result in spec.results]


def _reader(nodes: Nodes, use: int) -> tuple[int, int]:
    """(node, operand) of a use; an argument reads its next value in the label in which it is stored."""
    program = nodes.start.program
    op = int(program.use_op[use])
    node = int(nodes.of_op[op])
    if node == ARGUMENT:
        return int(nodes.of_value[program.result_ptr[op]]), 0
    return node, use - int(program.operand_ptr[op])


def _after_op(prices: Prices, type_: TensorType, left: Sequence[Label], to: Sequence[Label], least: bool) -> Floats:
    """Seconds of the move right after an op; the latency is not sure to be paid, where moves may be combined."""
    seconds = prices.seconds(type_, left, to)
    return seconds - prices.spared(type_, left, to) if least else seconds


def _scaled(times: float, seconds: Floats) -> Floats:
    """Infinite stays infinite, however rarely it is counted."""
    return np.where(np.isinf(seconds), np.inf, times * np.where(np.isinf(seconds), 0.0, seconds))


def _pairs(sources: Sequence[Label], targets: Sequence[Label], stands: int = 0) -> dict[tuple[Label, Label], None]:
    pairs = itertools.product(dict.fromkeys(sources), dict.fromkeys(targets))
    return {(source, moved_to(source, target, stands)): None for source, target in pairs}
