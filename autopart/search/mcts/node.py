"""The search graph: a node per state, found by its fingerprint, so that BP, MP and MP, BP are one node.

    start --BP--> n1 --MP--> n3
          --MP--> n2 --BP--> n3        n3's visits and rewards are shared

Every node has a STOP edge besides one per option: a sequence may end anywhere, and its reward is the node's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from autopart.search.evaluation.jobs import State
from autopart.search.mcts.backup import DecisionValue
from autopart.search.space.decisions import Decision


@dataclass(eq=False, slots=True)
class Edge:
    """One decision at a node; `decision` None is STOP.

    visits, total, best   of the rewards that came back through it
    pending               jobs below it in the current wave
    done                  nothing is left to find below
    gain                  what its decision gained anywhere; None until somebody asked
    """

    decision: Decision | None
    prior: float
    visits: int = 0
    total: float = 0.0
    best: float = -math.inf
    pending: int = 0
    done: bool = False
    child: Node | None = None
    gain: DecisionValue | None = None


@dataclass(eq=False)
class Node:
    """A state, its reward (minus the logarithm of the score) and its edges, which are made when it is first left."""

    state: State
    reward: float
    visits: int = 0
    edges: list[Edge] = field(default_factory=list)
    expanded: bool = False

    @staticmethod
    def of(state: State) -> Node:
        """A node that has not been expanded."""
        return Node(state, reward_of(state))

    def expand(self) -> None:
        """Makes the edges: priors are tempered, so that a small stake is still tried."""
        if self.expanded:
            return
        weights = [math.sqrt(max(o.prior, 1e-6)) for o in self.state.options]
        total = sum(weights) or 1.0
        self.edges = [Edge(None, 0.0)]
        self.edges += [Edge(o.decision, w / total) for o, w in zip(self.state.options, weights, strict=True)]
        self.expanded = True

    @property
    def done(self) -> bool:
        """True if every edge is."""
        return self.expanded and all(e.done for e in self.edges)


def reward_of(state: State) -> float:
    """Minus the logarithm of the score, so that halving a step is worth the same anywhere."""
    return -math.log(max(state.cost.score, 1e-30)) if math.isfinite(state.cost.score) else -80.0


class Graph:
    """All nodes of a search, by fingerprint."""

    def __init__(self, start: State):
        self.root = Node.of(start)
        self._nodes = {start.key: self.root}

    def node(self, state: State) -> Node:
        """The node of a state, made if it is new."""
        return self._nodes.setdefault(state.key, Node.of(state))

    def __len__(self) -> int:
        return len(self._nodes)
