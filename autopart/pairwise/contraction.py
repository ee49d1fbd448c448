"""Nodes that determine each other become one: where an edge leaves each strategy one partner at the other end.

    edge (a, b)   1   inf  inf      strategy 0 of a goes with 0 of b, 1 with 2, 2 with 1: one node {a, b} of three
                  inf inf  4        strategies, whose costs are those of both and of the edge
                  inf 2    inf

Equal layouts of neighbours are of this kind, and they are most of the edges of large programs. Of a ring of them a tree
of moves cannot change any. What is live at different times stays apart: a node has a part of its usage for each
interval. Edges between the same nodes add up, which may forbid more, and leave each strategy one partner again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autopart.pairwise.network import Network, network
from autopart.pairwise.pairwise_problem import Floats, Ints, PairwiseProblem, joined, starts


@dataclass(frozen=True, eq=False)
class Contraction:
    """A problem as a network of fewer nodes; make it with `contracted`.

    node[i]     the network's node of node i of the problem
    labels[i]   int64[strategies of that node]: which strategy of i each of them is
    """

    net: Network
    node: Ints
    labels: list[Ints]

    def expanded(self, choice: Ints) -> Ints:
        """A choice of the network as one of the problem."""
        chosen = zip(choice[self.node].tolist(), self.labels, strict=True)
        return np.array([int(labels[k]) for k, labels in chosen], np.int64)

    def narrowed(self, choice: Ints) -> Ints:
        """A choice of the problem as one of the network: as the first of the nodes in one; 0 for what went."""
        found = np.zeros(len(self.net.start) - 1, np.int64)
        for i in range(len(self.node) - 1, -1, -1):
            found[self.node[i]] = int((self.labels[i] == choice[i]).argmax())
        return found


def contracted(problem: PairwiseProblem, room: Floats) -> Contraction | None:
    """The network of a problem over binding times; None where a node has no strategy left: nothing is feasible."""
    graph = _Graph(problem)
    while graph.prune() or graph.join():
        pass
    if not all(map(len, graph.cost)):
        return None
    return Contraction(graph.network(problem, room), graph.node, graph.labels)


class _Graph:
    """What is left while nodes become one: `cost[n]`, `edges[u, v]` with u < v; `node`, `labels` as in the result."""

    def __init__(self, problem: PairwiseProblem):
        self.cost = [problem.cost[a:b] for a, b in pairwise(problem.strategy_start)]
        self.edges = {(u, v): problem.matrix(e) for e, (u, v) in enumerate(problem.edge_nodes.tolist())}
        self.node, self.labels = np.arange(problem.nodes), [np.arange(len(cost)) for cost in self.cost]

    def prune(self) -> bool:
        """Drops strategies that are forbidden, or are with all of a neighbour's. True if one went."""
        legal = [np.isfinite(cost) for cost in self.cost]
        for (u, v), matrix in self.edges.items():
            allowed = np.isfinite(matrix)
            if not allowed.all():
                legal[u] &= allowed.any(1)
                legal[v] &= allowed.any(0)
        if all(each.all() for each in legal):
            return False
        self._choose(np.arange(len(self.cost)), [np.flatnonzero(each) for each in legal])
        return True

    def join(self) -> bool:
        """Makes nodes that determine each other one. True if some did."""
        around: dict[int, list[tuple[int, Ints]]] = defaultdict(list)
        for (u, v), matrix in self.edges.items():
            if (partner := _partners(matrix)) is not None:
                around[u].append((v, partner))
                around[v].append((u, np.argsort(partner)))
        if not around:
            return False
        leader = np.arange(len(self.cost))
        kept: list[Ints | None] = [None] * len(leader)
        for first in range(len(leader)):
            if kept[first] is not None:
                continue
            kept[first] = np.arange(len(self.cost[first]))
            found = [first]
            for n in found:
                for other, partner in around.get(n, ()):
                    if kept[other] is None:
                        kept[other], leader[other] = partner[kept[n]], first
                        found.append(other)
        number = np.unique(leader, return_inverse=True)[1].reshape(-1)
        self._choose(number, [np.asarray(each) for each in kept])
        return True

    def _choose(self, number: Ints, kept: list[Ints]) -> None:
        """Node n becomes part of node number[n], whose strategy k is strategy kept[n][k] of n."""
        cost: list[Floats | None] = [None] * (int(number.max(initial=-1)) + 1)
        for n, (own, strategies) in enumerate(zip(self.cost, kept, strict=True)):
            known = cost[number[n]]
            cost[number[n]] = own[strategies] if known is None else known + own[strategies]
        found = [np.asarray(each) for each in cost]
        edges: dict[tuple[int, int], Floats] = {}
        for (u, v), matrix in self.edges.items():
            a, b = int(number[u]), int(number[v])
            if a == b:
                found[a] = found[a] + matrix[kept[u], kept[v]]
                continue
            chosen = matrix[kept[u][:, None], kept[v]]
            key, chosen = ((a, b), chosen) if a < b else ((b, a), chosen.T)
            edges[key] = edges[key] + chosen if key in edges else chosen
        self.labels = [labels[kept[n]] for n, labels in zip(self.node.tolist(), self.labels, strict=True)]
        self.cost, self.edges, self.node = found, edges, number[self.node]

    def network(self, problem: PairwiseProblem, room: Floats) -> Network:
        """The arrays; usage in parts, one for each interval of each node."""
        zero = [np.zeros(len(cost)) for cost in self.cost]
        alone = PairwiseProblem(
            starts([len(cost) for cost in self.cost]),
            joined(self.cost),
            joined(zero),
            np.zeros((len(self.cost), 2), np.int64),
            np.array(list(self.edges), np.int64).reshape(-1, 2),
            starts([matrix.size for matrix in self.edges.values()]),
            joined([matrix.ravel() for matrix in self.edges.values()]),
        )
        parts: list[dict[tuple[int, int], Floats]] = [{} for _ in self.cost]
        for i, (first, (begin, end)) in enumerate(
            zip(problem.strategy_start[:-1].tolist(), problem.live.tolist(), strict=True)
        ):
            usage, own = problem.usage[first + self.labels[i]], parts[self.node[i]]
            if begin < end and usage.any():
                own[begin, end] = own[begin, end] + usage if (begin, end) in own else usage
        lives = np.array([live for own in parts for live in own], np.int64).reshape(-1, 2)
        usages = [usage for own in parts for usage in own.values()]
        return network(alone, room)._replace(
            part=starts([len(own) for own in parts]),
            begin=np.ascontiguousarray(lives[:, 0]),
            end=np.ascontiguousarray(lives[:, 1]),
            use_start=starts([len(usage) for usage in usages]),
            usage=joined(usages),
        )


def _partners(matrix: Floats) -> Ints | None:
    """The strategy at the second end that each at the first may go with; None where some may go with several."""
    if matrix.shape[0] != matrix.shape[1]:
        return None
    allowed = np.isfinite(matrix)
    if np.count_nonzero(allowed) != len(matrix) or not (allowed.any(0).all() and allowed.any(1).all()):
        return None
    return allowed.argmax(1)
