"""Selection: down from the root, at each node the edge with the largest

    Q + c P sqrt(N) / (1 + n)       n, N visits of the edge and the node, P the edge's prior
    Q                               half the mean and half the best of its rewards, scaled to 0..1 over all seen;
                                    before its first visit the node's own, plus the decision's mean gain elsewhere

The best counts because a sequence may stop at its best state. Jobs under way count as visits that brought the worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autopart.search.mcts.backup import DecisionValues, RewardNormaliser
from autopart.search.mcts.node import Edge, Graph, Node


@dataclass(frozen=True)
class Path:
    """Edges from the root, with the node each leaves; the last one has no child yet, or is STOP."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @property
    def decisions(self):
        """The decisions on the way."""
        return tuple(e.decision for e in self.edges if e.decision is not None)


def select(graph: Graph, scale: RewardNormaliser, gains: DecisionValues, exploration: float) -> Path | None:
    """A path to an edge that has not been tried; None if all of them are under way or done. Notes nothing."""
    node, nodes, edges = graph.root, [], []
    while True:
        node.expand()
        edge = _best_edge(node, scale, gains, exploration)
        if edge is None:
            return None
        nodes.append(node)
        edges.append(edge)
        if edge.decision is None or edge.child is None:
            return Path(tuple(nodes), tuple(edges))
        node = edge.child


def _best_edge(node: Node, scale: RewardNormaliser, gains: DecisionValues, exploration: float) -> Edge | None:
    root_visits = math.sqrt(node.visits + 1)
    chosen, most = None, -math.inf
    for edge in node.edges:
        if edge.done or (edge.pending and edge.child is None):
            continue
        visits = edge.visits + edge.pending
        worth = _worth(edge, node, scale, gains) + exploration * edge.prior * root_visits / (1 + visits)
        if worth > most:
            chosen, most = edge, worth
    return chosen


def _worth(edge: Edge, node: Node, scale: RewardNormaliser, gains: DecisionValues) -> float:
    if edge.decision is None:
        return scale(node.reward)
    if not edge.visits:
        if edge.gain is None:
            edge.gain = gains.of(edge.decision)
        return scale(node.reward + edge.gain.mean)
    seen = edge.visits / (edge.visits + edge.pending)
    return (0.5 * scale(edge.total / edge.visits) + 0.5 * scale(edge.best)) * seen
