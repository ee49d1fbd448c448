"""From nodes to the edges of a pairwise problem: what is moved between which nodes, and what that costs.

    op - value    a result that waits is moved from the label in which the op leaves it to where it waits
    value - op    it is moved to the label in which the op reads it, times its share of the move
    op - op       a value that is read once is moved from the label in which it is left to that in which it is read:
                  no sequence of moves over labels in between costs less, as prices are those of cheapest sequences

Uses in one scope that need one label share a move, and which do is not known before the choice. `share[use]` of the
move is put down to a use: shares that add up to 1 over the uses in a scope never count a shared move more than once
(the bound's depend on its labels: `shared_moves.py`), and what a lowered program shares is counted exactly for the
strategies of that program.

Parallel edges are added up. An edge from a node to itself, between two equal layers that are grouped, costs each
strategy what it costs with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import TensorType
from autopart.core.program import Program
from autopart.search.ilp.labels import Label, is_pending
from autopart.search.ilp.lowered_moves import LeastMove, Pair
from autopart.search.ilp.nodes import ARGUMENT, Nodes
from autopart.search.ilp.prices import DEF, PLAN, USE, WAIT, Prices, moved_to
from autopart.spmd.device_local import LoweringContext

Floats = np.ndarray

WAITS = -1
"""In place of a result's or an operand's number: the node is that of a value that waits."""


class Move(NamedTuple):
    """A value on its way from node `maker`, as its `result`, to node `reader`, as its `operand` (`WAITS`: a value's).

    type_row    of `Flow.types`
    stands      the reductions, as bits, for parts of which it may stand (`PendingWays.stands`)
    least       the row of the tables by which it counts for the bound
    sharing     the number of the uses that may share it (`Flow.sharing`); -1 where no other use may
    """

    maker: int
    result: int
    reader: int
    operand: int
    type_row: int
    stands: int
    least: int
    sharing: int = -1


@dataclass(frozen=True, eq=False)
class Flow:
    """What moves between nodes, with how often it does; make it with `Flow.of`.

    types           the program's types, then each as bf16: what a narrow use moves
    moves           trips of each, added up over equal ones
    weights         of moves that several uses may share: the part of each that is put down to it, one for all pairs of
                    strategies, or float64[strategies of the maker, of the reader]
    sharing         trips of the uses of a value in one scope, by `Move.sharing`, added up over equal ones
    kind[i]         the number of the i-th single move in `moves`
    ends[i]         int64[2]: what it is between; an op by its number, a waiting value by its number after all ops
    trips[i]        how often it is made
    """

    nodes: Nodes
    types: tuple[TensorType, ...]
    moves: dict[Move, float]
    weights: dict[Move, float | Floats]
    sharing: dict[int, float]
    kind: np.ndarray
    ends: np.ndarray
    trips: Floats

    @staticmethod
    def of(nodes: Nodes, statics: LoweringContext, stands: np.ndarray, share: Floats, narrow: np.ndarray) -> Flow:
        """The flow between nodes; `stands` is int64[values] (`PendingWays`), `share` is float64[uses].

        narrow  bool[uses]: the use may be moved as bf16 (`bf16_collectives.py`)
        """
        program, as_bf16 = nodes.start.program, narrow.tolist()
        by_scope, scope, shares = program.scope_trips.tolist(), statics.places[0].tolist(), share.tolist()
        of_op, of_value, readers = nodes.of_op.tolist(), nodes.of_value.tolist(), _readers(nodes)
        pointer, user, rows = program.users[0].tolist(), program.users[1].tolist(), program.value_type_row.tolist()
        result_ptr, op_scope, stand_ins = program.result_ptr.tolist(), program.op_scope.tolist(), stands.tolist()
        types = _types(program)
        moves: dict[Move, float] = defaultdict(float)
        weighted: dict[Move, float] = defaultdict(float)
        sharing: dict[tuple[object, ...], int] = {}
        together_trips: dict[int, float] = defaultdict(float)
        number: dict[Move, int] = {}
        single: list[tuple[int, int, int, float]] = []

        def add(move: Move, source: int, target: int, trips: float) -> None:
            moves[move] += trips
            single.append((number.setdefault(move, len(number)), source, target, trips))

        for value, op in enumerate(program.value_op.tolist()):
            made, waits, result = of_op[op], of_value[value], value - result_ptr[op]
            made_trips, waiting, row = float(by_scope[op_scope[op]]), program.op_count + value, rows[value]
            uses = user[pointer[value] : pointer[value + 1]]
            if waits >= 0:
                if made != ARGUMENT:
                    add(Move(made, result, waits, WAITS, row, 0, WAIT), op, waiting, made_trips)
                together: dict[int, list[int]] = defaultdict(list)
                for use in uses:
                    together[scope[use]].append(use)
                for in_scope, sharers in together.items():
                    trips = float(by_scope[in_scope])
                    key = (waits, trips, *sorted((*readers[use][:2], as_bf16[use]) for use in sharers))
                    shared = sharing.setdefault(key, len(sharing)) if len(sharers) > 1 else -1
                    together_trips[shared] += trips
                    for use in sharers:
                        reader, operand, at = readers[use]
                        moved_as = row + len(types) * as_bf16[use]
                        move = Move(waits, WAITS, reader, operand, moved_as, stand_ins[value], USE, shared)
                        add(move, waiting, at, trips)
                        weighted[move] += shares[use] * trips
            elif uses:
                reader, operand, at = readers[uses[0]]
                trips = min(made_trips, float(by_scope[scope[uses[0]]]))
                moved_as = row + len(types) * as_bf16[uses[0]]
                move = Move(made, result, reader, operand, moved_as, stand_ins[value], DEF)
                add(move, op, at, trips)
        columns = np.array(single, np.float64).reshape(-1, 4)
        whole = columns[:, :3].astype(np.int64)
        types += [TensorType(type_.shape, "bf16") for type_ in types]
        weights: dict[Move, float | Floats] = {
            move: trips / moves[move] for move, trips in weighted.items() if trips != moves[move]
        }
        return Flow(
            nodes, tuple(types), dict(moves), weights, dict(together_trips), whole[:, 0], whole[:, 1:], columns[:, 3]
        )

    def labels(self) -> dict[TensorType, dict[Label, None]]:
        """The labels that nodes give values of each type, without repetition."""
        found: dict[TensorType, dict[Label, None]] = defaultdict(dict)
        seen: set[tuple[int, int]] = set()
        for move in self.moves:
            for given in (self.left(move), self.read(move)):
                if (move.type_row, id(given)) not in seen:
                    seen.add((move.type_row, id(given)))
                    found[self.types[move.type_row]].update(dict.fromkeys(given))
        return dict(found)

    def left(self, move: Move) -> tuple[Label, ...]:
        """The label of the value before the move, for each strategy of the maker."""
        options = self.nodes.strategies[move.maker]
        return self.nodes.labels[move.maker] if options is None else options.native[move.result]

    def read(self, move: Move) -> tuple[Label, ...]:
        """The label of the value after the move, for each strategy of the reader."""
        options = self.nodes.strategies[move.reader]
        return self.nodes.labels[move.reader] if options is None else options.required[move.operand]

    def seconds(self, move: Move, prices: Prices, *, least: bool) -> Floats:
        """float64[strategies of the maker, of the reader]: seconds of the move, once, as far as they are its own."""
        seconds = self.whole_seconds(move, prices, least=least)
        return scaled(self.weights[move], seconds) if move in self.weights else seconds

    def whole_seconds(self, move: Move, prices: Prices, *, least: bool) -> Floats:
        """The same without regard to other uses that share it."""
        which = move.least if least else PLAN
        return prices.seconds(self.types[move.type_row], self.left(move), self.read(move), which, move.stands)

    def edges(self, prices: Prices, *, least: bool) -> dict[tuple[int, int], Floats]:
        """Seconds between the strategies of two nodes u <= v, parallel edges added up: [strategies of u, of v].

        least  never more than the simulator says, for the bound; else as moves usually are made, for the plan
        """
        found: dict[tuple[int, int], Floats] = {}
        for move, trips in self.moves.items():
            matrix = self.seconds(move, prices, least=least)
            if matrix.any():
                u, v, entries = move.maker, move.reader, scaled(trips, matrix)
                key, entries = ((u, v), entries) if u <= v else ((v, u), entries.T)
                found[key] = found[key] + entries if key in found else entries
        return found

    def pairs(self) -> list[Pair]:
        """The moves between unlike labels that any choice makes; types of which most bytes are moved first."""
        found: dict[int, dict[tuple[Label, Label], None]] = defaultdict(dict)
        moved_bytes: dict[int, float] = defaultdict(float)
        for move, trips in self.moves.items():
            moved_bytes[move.type_row] += trips * self.types[move.type_row].bytes
            for source in dict.fromkeys(self.left(move)):
                for read in dict.fromkeys(self.read(move)):
                    target = moved_to(source, read, move.stands)
                    awaits = any(s != t and is_pending(t) for s, t in zip(source, target, strict=True))
                    if source != target and not awaits:
                        found[move.type_row][source, target] = None
        rows = sorted(found, key=lambda row: (-moved_bytes[row], row))
        return [(self.types[row], *pair) for row in rows for pair in found[row]]

    def taken(self, choice: Sequence[int]) -> list[Pair]:
        """The moves that a choice makes between unlike labels, each once."""
        return list(dict.fromkeys((type_, source, target) for type_, source, target, _ in self.taken_least(choice)))

    def taken_least(self, choice: Sequence[int]) -> list[LeastMove]:
        """The same with the rows of the tables by which they count for the bound."""
        found: dict[LeastMove, None] = {}
        for move in self.moves:
            source, target = self.left(move)[choice[move.maker]], self.read(move)[choice[move.reader]]
            target = moved_to(source, target, move.stands)
            if source != target:
                found[self.types[move.type_row], source, target, move.least] = None
        return list(found)


def equal_shares(nodes: Nodes, statics: LoweringContext) -> Floats:
    """float64[uses]: 1 over the number of uses of the value in the scope of the move: never more than is paid."""
    program, scope = nodes.start.program, statics.places[0]
    pairs = np.column_stack([program.operands, scope])
    _, which, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return 1.0 / count[which.reshape(-1)]


def least_shares(nodes: Nodes, statics: LoweringContext, is_product: np.ndarray) -> Floats:
    """float64[uses]: as `equal_shares`, but of the uses by products alone wherever there are any: these move most."""
    program, scope = nodes.start.program, statics.places[0]
    pairs = np.column_stack([program.operands, scope])
    _, which = np.unique(pairs, axis=0, return_inverse=True)
    which, by_product = which.reshape(-1), is_product[program.use_op].astype(float)
    products = np.bincount(which, by_product)[which]
    return np.where(products > 0, by_product / np.maximum(products, 1.0), equal_shares(nodes, statics))


def scaled(times: float | Floats, seconds: Floats) -> Floats:
    """Infinite stays infinite, however rarely it is counted."""
    if isinstance(times, float) and times > 0.0:
        return times * seconds
    return np.where(np.isinf(seconds), np.inf, times * np.where(np.isinf(seconds), 0.0, seconds))


def _types(program: Program) -> list[TensorType]:
    return [result for spec in program.specs for result in spec.results]


def _readers(nodes: Nodes) -> list[tuple[int, int, int]]:
    """(node, operand, end of a move) of each use; an argument reads its next value as it is stored."""
    program = nodes.start.program
    op = program.use_op
    node, operand = nodes.of_op[op].copy(), np.arange(len(op)) - program.operand_ptr[op]
    at, stored = op.astype(np.int64), node == ARGUMENT
    argument = program.result_ptr[op[stored]]
    node[stored], operand[stored], at[stored] = nodes.of_value[argument], WAITS, program.op_count + argument
    return list(zip(node.tolist(), operand.tolist(), at.tolist(), strict=True))
