"""Which of the ops that could be longer are: those that leave the fewest bytes to slice.

    gradient f32[50304,64] -> adam(m, v) -> m, v, table      longer up to the outputs: three arrays are sliced
                           |                                 longer up to the gradient: one is

A slice of a tiled dim is a gather, a pad of what is whole is nothing. So matmuls, convolutions and reductions over the
dim, which are what tiles are for, stay longer, and of all ways to draw the line behind them that of least bytes is
taken, and of equal ones the one that leaves most ops longer: a minimum cut, with an edge from each op over what it
makes to those that read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Matmul, Reduction
from autopart.core.passes.padding.joined import Joined
from autopart.core.program import Program

_UNCUT = 2**30
"""A capacity that no cut goes through; bytes are scaled to stay below it."""


def cheapest_cut(program: Program, joined: list[Joined]) -> list[Joined]:
    """Those of the joined ops that stay longer."""
    made = {(value, dim): (n, size) for n, one in enumerate(joined) for value, dim, size in one.results(program)}
    makers = {key: n for key, (n, _) in made.items()}
    readers: dict[tuple[int, int], set[int]] = {key: set() for key in makers}
    for n, one in enumerate(joined):
        for value, dim, _ in one.operands(program):
            if (value, dim) in readers:
                readers[value, dim].add(n)
    source, sink, count = len(joined), len(joined) + 1, len(joined) + 2
    scale = (_UNCUT // 2) / max(1.0, sum(program.type_of(value).bytes for value, _ in makers))
    edges = [(source, n, _UNCUT) for n, one in enumerate(joined) if _is_wanted(program, one)]
    for (value, dim), maker in makers.items():
        edges.append((maker, count, max(1, int(program.type_of(value).bytes * scale))))
        edges += [(count, reader, _UNCUT) for reader in sorted(readers[value, dim])]
        if is_cut(program, value, dim, made[value, dim][1], {joined[n].op for n in readers[value, dim]}):
            edges.append((count, sink, _UNCUT))
        count += 1
    cut_off = _sink_side(edges, count, source, sink)
    return [one for n, one in enumerate(joined) if n not in cut_off]


def is_cut(program: Program, value: int, dim: int, size: int, joined: Set[int]) -> bool:
    """True if a value with a longer dim has a use that needs it as it was: not one of the ops that `joined`."""
    uses = set(_uses(program, value)) - joined
    return any(op < 0 or not _refills(program.spec(op), dim, size) for op in uses)


def _refills(spec: OpSpec, dim: int, size: int) -> bool:
    """True for a pad that fills a dim up to the longer size: what is behind its old end is overwritten (see `mask`)."""
    if spec.kind != "pad" or spec.results[0].shape[dim] != size:
        return False
    return not any(spec.attributes["interior_padding"]) and min(_edges(spec, dim)) >= 0


def _edges(spec: OpSpec, dim: int) -> tuple[int, int]:
    return spec.attributes["edge_padding_low"][dim], spec.attributes["edge_padding_high"][dim]


def _is_wanted(program: Program, one: Joined) -> bool:
    return isinstance(traits_of(program.spec(one.op)), Matmul | Convolution | Reduction)


def _uses(program: Program, value: int) -> Iterator[int]:
    """The ops that read a value; -1 where the program returns it."""
    pointer, uses = program.users
    yield from program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist()
    if value in program.output_place:
        yield -1


def _sink_side(edges: list[tuple[int, int, int]], count: int, source: int, sink: int) -> set[int]:
    """The nodes from which more could flow to the sink when as much flows as can."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    tails, heads, capacities = np.array(edges, np.int32).reshape(-1, 3).T
    graph = csr_array((capacities, (tails, heads)), shape=(count, count), dtype=np.int32)
    left = graph - maximum_flow(graph, source, sink).flow
    left.eliminate_zeros()
    return set(breadth_first_order(left.T.tocsr(), sink, return_predecessors=False).tolist())
