"""What light ops cost more where a sum is reduced between a product and them, so that no product's kernel runs them.

    %g = dot %d %x     a gradient, a sum over a: parts are pending
    %m = add %a %g     where they are reduced, the product writes its parts, and a kernel of its own reads the result
                       and updates %a, all of whose traffic counts; else the product's kernel may do that
    edge (%g, %m)      0 where %g leaves nothing pending or %m passes the parts on, else the difference

An op that may run with several products, or with one that it is not made from by elementwise ops, has no such edge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.search.ilp.certain_traffic import Traffic
from autopart.search.ilp.fusion_regions import Regions
from autopart.search.ilp.labels import is_pending
from autopart.search.ilp.nodes import Nodes
from autopart.search.ilp.strategies import PASS


class Between(NamedTuple):
    """Pairs of ops with an edge.

    product, reader    int64[pairs]: the ops
    kind               int64[pairs]: the number of the pair's matrix
    seconds            of each kind, float64[strategies of the product, of the reader]: once
    nodes              of each kind, (node of the product, node of the reader)
    """

    product: np.ndarray
    reader: np.ndarray
    kind: np.ndarray
    seconds: tuple[np.ndarray, ...]
    nodes: tuple[tuple[int, int], ...]

    def edges(self, trips: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        """Seconds between the strategies of two nodes u <= v, added up over the ops; trips float64[ops]."""
        times = np.bincount(self.kind, trips[self.reader], minlength=len(self.nodes))
        found: dict[tuple[int, int], np.ndarray] = {}
        for (u, v), each, n in zip(self.nodes, self.seconds, times.tolist(), strict=True):
            key, matrix = ((u, v), n * each) if u <= v else ((v, u), n * each.T)
            found[key] = found[key] + matrix if key in found else matrix
        return found


def between(
    nodes: Nodes,
    arrays: ProgramArrays,
    parts: Regions,
    traffic: tuple[Traffic, Traffic],
    certain: list[np.ndarray],
    moved: list[np.ndarray],
) -> Between:
    """The edges between nodes. By node, seconds of its strategies: what is `certain`, and where something is moved.
    `traffic` is `certain_traffic` of the program."""
    product, reader, kind = list[int](), list[int](), list[int]()
    numbers: dict[tuple[int, int, bool], int] = {}
    for op, host, writes in _pairs(arrays, parts, *traffic):
        u, v = int(nodes.of_op[host]), int(nodes.of_op[op])
        more = moved[v] - certain[v]
        if more.max() > 0 or writes:
            product.append(host)
            reader.append(op)
            kind.append(numbers.setdefault((u, v, writes), len(numbers)))
    seconds = tuple(
        _reduced(nodes, u, v)
        * (np.maximum(0.0, moved[v] - certain[v]) + writes * np.maximum(0.0, moved[u] - certain[u])[:, None])
        for u, v, writes in numbers
    )
    pairs = np.array([product, reader, kind], np.int64)
    return Between(pairs[0], pairs[1], pairs[2], seconds, tuple((u, v) for u, v, _ in numbers))


def _pairs(arrays: ProgramArrays, parts: Regions, traffic: Traffic, moved: Traffic) -> list[tuple[int, int, bool]]:
    """(light op, its only product, whether what the product writes counts with this op: with the first that reads)."""
    more = np.bincount(arrays.uses["use_op"], moved.reads > traffic.reads, minlength=len(arrays.ops))
    found, first = list[tuple[int, int, bool]](), dict[int, int]()
    for op in sorted(parts.hosts.only):
        host = parts.hosts.only[op]
        if more[op] and bool(moved.writes[arrays.result_ptr[host]] > traffic.writes[arrays.result_ptr[host]]):
            first.setdefault(host, op)
        found.append((op, host, first.get(host) == op))
    return found


def _reduced(nodes: Nodes, product: int, reader: int) -> np.ndarray:
    """bool[strategies of the product, of the reader]: parts that the product leaves do not pass the reader."""
    left, read = nodes.strategies[product], nodes.strategies[reader]
    assert left is not None
    assert read is not None
    several = np.array(nodes.start.mesh.axis_sizes) > 1
    pending = np.array([[is_pending(code) for code in label] for label in left.native[0]]) & several
    passes = np.array([[number <= PASS for number in mapping] for mapping in read.mapping])
    return np.any(pending[:, None, :] & ~passes[None, :, :], axis=2)
