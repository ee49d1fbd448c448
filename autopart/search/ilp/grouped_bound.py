"""A bound about all states from the model of grouped layers: ops that are passed the same are judged once.

    32 branches, grouped      one node for the 32 tanh, one edge from it to the 32 products after it
    messages and prices       what each edge passes to its ends, as `solver/dual.py` climbs to; a 32nd for each branch
    32 layers in a row        those at the ends are passed to from one side alone: every op is a node of its own then

Whatever is passed, sum over ops of the least they cost with what they are passed, plus sum over moves of the least they
cost without it, less what memory costs at its price, is no more than any choice costs (weak duality). Where the ops of
a group are passed unlike things, messages that fit all of them together fit none, so the groups are split; what a
strategy and a move cost comes from the groups all the same. Moves within a group are left out, which makes the bound
smaller, and is legal as none costs less than nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autopart.search.ilp.formulation import Flow, scaled
from autopart.search.ilp.held_bytes import node_bytes
from autopart.search.ilp.sharding_model import Model
from autopart.search.ilp.solver import PairwiseProblem
from autopart.search.ilp.solver.ascent import Ascent
from autopart.search.ilp.solver.network import Network, network

CLIMB, LOOK, ROUNDS = 20, 4, 12
"""Steps of the ascent in a round, after how many of them it looks at the clock, and rounds."""

CONTENT = 1e-3
"""A round that raises the bound by less than this share is the last but one."""

GUESS = 1.05
"""What the cost is taken to be over the bound."""

FORBIDDEN = 2.0
"""What is forbidden costs so many times the most that is legal: finite, as messages must be."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """Things that are alike: the kind of each, how many there are of a kind, and one of each (int64 arrays)."""

    of: np.ndarray
    count: np.ndarray
    one: np.ndarray

    @staticmethod
    def alike(*columns: np.ndarray) -> Kinds:
        """Those whose columns are equal."""
        rows = np.column_stack([column.astype(np.uint64) for column in columns])
        _, one, of, count = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
        return Kinds(of.reshape(-1), count, one)


class GroupedBound:
    """The least costs of a grouped model as a network of its groups in program order, and how its ops stand in it.

    node[i]      the group of op i, or of value i less the number of ops; negative for those without
    edge         the kinds of moves between two of these, `ends` the two groups of each kind, the one first that the
                 program has first, `matrix` what one move of the kind costs
    place        the kinds of ops and values that are passed the same
    """

    def __init__(self, model: Model):
        nodes, program = model.nodes, model.nodes.start.program
        order, rank = _in_program_order(model)
        given = np.concatenate([nodes.of_op, nodes.of_value])
        self.node = np.where(given >= 0, rank[given], -1)
        self.limit = model.device.hbm_bytes
        self._runs = np.concatenate([_trips(model), np.zeros(program.value_count)])
        self._is_argument = np.zeros(len(given))
        self._is_argument[program.op_count + np.array(program.arguments, np.int64)] = 1
        once, held = model.least_once(), node_bytes(nodes, model.device.layout_tile)
        self._once, self._held = [once[n] for n in order], [held[n] for n in order]
        self._find_edges(model.flow)
        self._find_places()
        if len(self.place.one) > len(self._once):
            self._split(model)
        self.matrix = self._matrices(model)

    def _split(self, model: Model) -> None:
        """Makes every op and value a group of its own, in program order."""
        here, value_op = self._here, model.nodes.start.program.value_op
        ops = len(self.node) - len(value_op)
        at = np.where(here < ops, 2 * here, 2 * value_op[(here - ops).clip(min=0)] + 1)
        here = here[np.argsort(at, kind="stable")]
        groups = self.node[here].tolist()
        self._once, self._held = [self._once[n] for n in groups], [self._held[n] for n in groups]
        self.node[here] = np.arange(len(here))
        self._find_edges(model.flow)
        self._find_places()

    def _find_edges(self, flow: Flow) -> None:
        node = self.node
        apart = node[flow.ends[:, 0]] != node[flow.ends[:, 1]]
        self._moves, ends, trips = flow.kind[apart], flow.ends[apart], flow.trips[apart]
        self._turned, self._move_trips = node[ends[:, 0]] > node[ends[:, 1]], trips
        ends[self._turned] = ends[self._turned][:, ::-1]
        _, first, of_pair = np.unique(ends[:, 0] * len(node) + ends[:, 1], return_index=True, return_inverse=True)
        self._of_pair = of_pair.reshape(-1)
        told = np.zeros(len(first), np.uint64)
        np.add.at(told, self._of_pair, _mixed(2 * self._moves + self._turned, trips))
        self._pairs = ends[first]
        self.edge = Kinds.alike(node[self._pairs[:, 0]], node[self._pairs[:, 1]], told)
        self.ends = node[self._pairs[self.edge.one]]

    def _find_places(self) -> None:
        told = np.zeros(len(self.node), np.uint64)
        for side in (0, 1):
            np.add.at(told, self._pairs[:, side], _mixed(2 * self.edge.of + side, np.ones(len(self._pairs))))
        self._here = np.flatnonzero(self.node >= 0)
        runs, is_argument = self._runs[self._here].view(np.uint64), self._is_argument[self._here]
        self.place = Kinds.alike(self.node[self._here], runs, is_argument, told[self._here])
        self._one = self._here[self.place.one]

    def _matrices(self, model: Model) -> list[np.ndarray]:
        """What one move of each kind costs. What is forbidden costs more than all else that an edge's ends decide."""
        moves, prices, flow = list(model.flow.moves), model.table, model.flow
        order = np.argsort(self._of_pair, kind="stable")
        cuts = np.searchsorted(self._of_pair[order], np.arange(len(self._pairs) + 1))
        dearest = [float(once.max(initial=0.0)) for once in self._once]
        found: list[np.ndarray] = []
        for pair, (u, v) in zip(self.edge.one.tolist(), self.ends.tolist(), strict=True):
            total: Any = 0.0
            for i in order[cuts[pair] : cuts[pair + 1]].tolist():
                seconds = flow.seconds(moves[self._moves[i]], prices, least=True)
                seconds = scaled(float(self._move_trips[i]), seconds)
                total = total + (seconds.T if self._turned[i] else seconds)
            legal = np.isfinite(total)
            most = float(total[legal].max(initial=0.0)) + dearest[u] + dearest[v]
            found.append(np.where(legal, total, FORBIDDEN * most))
        return found

    @cached_property
    def _passed(self) -> list[list[tuple[int, int]]]:
        """Per kind of place the (kind of edge, side) of all edges that pass something to it."""
        number = np.full(len(self.node), -1)
        number[self._one] = np.arange(len(self._one))
        found: list[list[tuple[int, int]]] = [[] for _ in self._one]
        for side in (0, 1):
            for place, edge in zip(number[self._pairs[:, side]].tolist(), self.edge.of.tolist(), strict=True):
                if place >= 0:
                    found[place].append((edge, side))
        return found

    def most_held(self) -> float:
        """Bytes that arguments take where each is stored as it takes most."""
        arguments = self._sum_by_node(self._is_argument)
        return float(sum(n * held.max(initial=0.0) for n, held in zip(arguments, self._held, strict=True)))

    def bound(self, seconds: float, *, price: float = 0.0, limited: bool = False) -> float:
        """A bound on the least costs, at `price` seconds for a byte of arguments; `limited`: these fit in memory."""
        deadline = time.monotonic() + seconds
        net = self._network(price, limited=limited)
        ascent, best = Ascent(net), 0.0
        for _ in range(ROUNDS):
            before = best
            best = max(best, self._judged(net, ascent, price))
            if 0 < best <= (1 + CONTENT) * before or time.monotonic() > deadline:
                break
            for _ in range(CLIMB // LOOK):
                if time.monotonic() < deadline:
                    ascent.climb(LOOK, best * GUESS)
        return best

    def _network(self, price: float, *, limited: bool) -> Network:
        runs, arguments = self._sum_by_node(self._runs), self._sum_by_node(self._is_argument)
        held = [n * b for n, b in zip(arguments, self._held, strict=True)]
        costs = [n * c + price * b for n, c, b in zip(runs, self._once, held, strict=True)]
        matrices = zip(self.ends.tolist(), self.edge.count.tolist(), self.matrix, strict=True)
        edges = [(u, v, count * matrix) for (u, v), count, matrix in matrices]
        problem = PairwiseProblem.of(costs, held if limited else None, None, edges)
        return network(problem, np.array([self.limit if limited else 1.0]))

    def _judged(self, net: Network, ascent: Ascent, price: float) -> float:
        """What the messages and the price of memory as they stand prove."""
        memory, sent = float(ascent.price[0]), ascent.messages
        counts = self.edge.count.tolist()
        to_u, to_v = np.split(sent.to_u, net.u_start[1:-1]), np.split(sent.to_v, net.v_start[1:-1])
        passed = [(u / n, v / n) for n, u, v in zip(counts, to_u, to_v, strict=True)]
        total = -memory * float(net.room[0])
        for count, matrix, (u, v) in zip(counts, self.matrix, passed, strict=True):
            total += count * float((matrix - u[:, None] - v[None, :]).min())
        for i, count, edges in zip(self._one.tolist(), self.place.count.tolist(), self._passed, strict=True):
            node = int(self.node[i])
            held = self._is_argument[i] * self._held[node]
            theta = self._runs[i] * self._once[node] + price * held
            if net.usage[net.start[node] : net.start[node + 1]].any():
                theta = theta + memory * held
            for edge, side in edges:
                theta = theta + passed[edge][side]
            total += count * float(theta.min())
        return total

    def _sum_by_node(self, figures: np.ndarray) -> np.ndarray:
        here = self.node >= 0
        return np.bincount(self.node[here], figures[here], minlength=len(self._once))


def _in_program_order(model: Model) -> tuple[list[int], np.ndarray]:
    """(nodes as the program has the first of each, their places in this order)."""
    nodes, value_op = model.nodes, model.nodes.start.program.value_op
    at = [2 * m if nodes.strategies[n] is not None else 2 * int(value_op[m]) + 1 for n, m in enumerate(nodes.member)]
    order = np.argsort(np.array(at), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return order.tolist(), rank


def _trips(model: Model) -> np.ndarray:
    """float64[ops]: how often each runs; arguments never."""
    program = model.nodes.start.program
    return np.where(model.nodes.of_op >= 0, program.scope_trips[program.op_scope].astype(float), 0.0)


def _mixed(kind: np.ndarray, trips: np.ndarray) -> np.ndarray:
    """uint64[n]: numbers that add up to the same for the same kinds with the same trips, and hardly for others."""
    word = kind.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ trips.astype(np.float64).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return word ^ (word >> np.uint64(31))
