"""Local search whose move is a whole tree of nodes: the best strategies of all of them, the rest held fixed.

    a - b - c        {d, a, b, c, e} is a tree; f is held. Dynamic programming from the leaves finds the best of
    |   |   |        all k**5 choices in the time of four edges: a move is never a step upwards, and reaches what no
    d - f   e        sequence of single changes does.

A tree grows from a random node by nodes that touch it once. Nodes are judged by cost plus usage at a price; a move is
undone if it raises the usage at a time where that does not fit then. So a choice that fits goes on to fit, and one that
does not comes nearer.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopart.base.jit.kernels import allocating_kernel, kernel
from autopart.pairwise.network import Network
from autopart.pairwise.pairwise_problem import Floats, Ints


class Scratch(NamedTuple):
    """Memory for trees: what a move needs per strategy, per message and per node; a kernel leaves `place` at -1.

    value float64[S]; by_u, by_v: argmin of the child for each strategy of its parent, at the parent's end of the edge.
    place int64[n]: position in the tree. order, parent_edge int64[n]: nodes, parents first, and the edge to the parent.
    before int64[n]: choices to go back to. random uint64[1].
    """

    value: Floats
    by_u: Ints
    by_v: Ints
    place: Ints
    order: Ints
    parent_edge: Ints
    before: Ints
    random: NDArray[np.uint64]


def scratch(net: Network, seed: int) -> Scratch:
    """Fresh memory; equal seeds give equal moves."""
    n = len(net.start) - 1
    random = np.array([(2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64], np.uint64)
    by_u, by_v = np.zeros(net.u_start[-1], np.int64), np.zeros(net.v_start[-1], np.int64)
    order, parent_edge, before = (np.zeros(n, np.int64) for _ in range(3))
    return Scratch(np.zeros(len(net.cost)), by_u, by_v, np.full(n, -1), order, parent_edge, before, random)


@kernel
def below(random: NDArray[np.uint64], count: int) -> int:
    """A random number in [0, count), by xorshift."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return int(np.int64(x >> np.uint64(11)) % count)


@kernel
def add_node(memory: Scratch, count: int, node: int, edge: int) -> int:
    """Appends a node to the tree. Returns the new count."""
    memory.order[count], memory.parent_edge[count], memory.place[node] = node, edge, count
    return count + 1


@kernel
def touches(net: Network, memory: Scratch, node: int) -> int:
    """How many neighbours of a node are in the tree: 0, 1, or 2 for more."""
    found = 0
    for at in range(net.link_start[node], net.link_start[node + 1]):
        e = net.link[at]
        other = net.v[e] if net.u[e] == node else net.u[e]
        if memory.place[other] >= 0:
            found += 1
            if found == 2:
                break
    return found


@kernel
def grow(net: Network, memory: Scratch, root: int, most: int) -> int:
    """A tree from `root` on of up to `most` nodes. Returns their number."""
    at, count = 0, add_node(memory, 0, root, -1)
    while at < count and count < most:
        node = int(memory.order[at])
        at += 1
        first, last = net.link_start[node], net.link_start[node + 1]
        turn = below(memory.random, last - first) if last > first else 0
        for step in range(last - first):
            e = net.link[first + (step + turn) % (last - first)]
            other = int(net.v[e] if net.u[e] == node else net.u[e])
            if memory.place[other] < 0 and count < most and touches(net, memory, other) == 1:
                count = add_node(memory, count, other, e)
    return count


@allocating_kernel
def choose_tree(net: Network, memory: Scratch, choice: Ints, count: int, own: Floats) -> None:
    """Sets the choices of the tree's nodes to the best together, the others held; `own` is what strategies cost."""
    for p in range(count):
        i = memory.order[p]
        first, last = net.start[i], net.start[i + 1]
        for k in range(first, last):
            memory.value[k] = own[k]
        for at in range(net.link_start[i], net.link_start[i + 1]):
            e = net.link[at]
            if net.u[e] == i:
                if memory.place[net.v[e]] < 0:
                    width = net.start[net.v[e] + 1] - net.start[net.v[e]]
                    entry = net.edge_start[e] + choice[net.v[e]]
                    for k in range(first, last):
                        memory.value[k] += net.edge_cost[entry]
                        entry += width
            elif memory.place[net.u[e]] < 0:
                entry = net.edge_start[e] + choice[net.u[e]] * (last - first)
                for k in range(first, last):
                    memory.value[k] += net.edge_cost[entry + k - first]
    for p in range(count - 1, -1, -1):
        if memory.parent_edge[p] >= 0:
            pass_up(net, memory, memory.order[p], memory.parent_edge[p])
    for p in range(count):
        i, e = memory.order[p], memory.parent_edge[p]
        memory.before[p] = choice[i]
        if e < 0:
            choice[i] = memory.value[net.start[i] : net.start[i + 1]].argmin()
        elif net.u[e] == i:
            choice[i] = memory.by_v[net.v_start[e] + choice[net.v[e]]]
        else:
            choice[i] = memory.by_u[net.u_start[e] + choice[net.u[e]]]


@allocating_kernel
def pass_up(net: Network, memory: Scratch, child: int, e: int) -> None:
    """Adds to each strategy of the parent the best that the child can do with it, and notes which that is."""
    height = net.start[net.u[e] + 1] - net.start[net.u[e]]
    width = net.start[net.v[e] + 1] - net.start[net.v[e]]
    costs = net.edge_cost[net.edge_start[e] : net.edge_start[e + 1]]
    of_u = memory.value[net.start[net.u[e]] : net.start[net.u[e] + 1]]
    of_v = memory.value[net.start[net.v[e]] : net.start[net.v[e] + 1]]
    if net.v[e] == child:
        best = memory.by_u[net.u_start[e] : net.u_start[e + 1]]
        for a in range(height):
            least, which = np.inf, 0
            for b in range(width):
                value = costs[a * width + b] + of_v[b]
                if value < least:
                    least, which = value, b
            of_u[a] += least
            best[a] = which
    else:
        best = memory.by_v[net.v_start[e] : net.v_start[e + 1]]
        least_of = np.full(width, np.inf)
        for a in range(height):
            row, own = costs[a * width : (a + 1) * width], of_u[a]
            for b in range(width):
                value = row[b] + own
                if value < least_of[b]:
                    least_of[b] = value
                    best[b] = a
        of_v += least_of


@kernel
def forget_tree(memory: Scratch, count: int) -> None:
    """Leaves the memory as it was before the tree grew."""
    for p in range(count):
        memory.place[memory.order[p]] = -1


@kernel
def shift(net: Network, used: Floats, part: int, amount: float) -> bool:
    """Adds an amount to what is used while a part lives. False if that is more, and does not fit."""
    fits = True
    for t in range(net.begin[part], net.end[part]):
        used[t] += amount
        fits &= used[t] <= net.room[t] or amount < 0.0
    return fits


@kernel
def move_usage(net: Network, memory: Scratch, choice: Ints, count: int, used: Floats, back: bool) -> bool:
    """Books the usage of the tree's new choices, what falls first, or books it back. False if one does not fit."""
    fits = True
    for rising in range(2):
        for p in range(count):
            i = memory.order[p]
            if memory.before[p] == choice[i]:
                continue
            for part in range(net.part[i], net.part[i + 1]):
                first = net.use_start[part]
                change = net.usage[first + choice[i]] - net.usage[first + memory.before[p]]
                change = -change if back else change
                if change != 0.0 and (change > 0.0) == (rising == 1):
                    fits &= shift(net, used, part, float(change))
    return fits


@allocating_kernel
def tree_moves(
    net: Network, memory: Scratch, choice: Ints, used: Floats, own: Floats, roots: Ints, moves: int, most: int
) -> None:
    """Tries so many moves of trees of up to `most` nodes, each from a random one of `roots`.

    `own` float64[S] is what strategies cost, and pay for usage.
    """
    for _ in range(moves):
        root = roots[below(memory.random, len(roots))]
        count = grow(net, memory, root, 1 + below(memory.random, most))
        choose_tree(net, memory, choice, count, own)
        if not move_usage(net, memory, choice, count, used, False):
            move_usage(net, memory, choice, count, used, True)
            for p in range(count):
                choice[memory.order[p]] = memory.before[p]
        forget_tree(memory, count)
