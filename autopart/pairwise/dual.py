"""A bound from below: costs moved along edges until each node can be judged alone, usage priced at each time.

    L(price, messages) = sum over nodes of min over x of theta(x)  -  sum over times of price * room

`theta` is the node's cost, plus its usage at the prices of the times it lives, plus what its edges have passed to it;
what an edge passes to a node it lacks itself. Whatever the messages and the prices (none negative), no choice that
stays within the room costs less than L. One sweep of TRW-S (Kolmogorov 2006, in the form of SRMP, 2015) visits the
nodes in order: each takes from the edges behind it all they can give, and leaves equal parts of it on the edges ahead.
After a sweep backwards no edge has anything left to give, so L is the sum above.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import allocating_kernel, fast_allocating_kernel
from autopart.pairwise.network import Network
from autopart.pairwise.pairwise_problem import Floats, Ints


class Messages(NamedTuple):
    """theta float64[S]; to_u, to_v: what edge e has passed to its ends, from net.u_start[e], net.v_start[e] on."""

    theta: Floats
    to_u: Floats
    to_v: Floats


def no_messages(net: Network) -> Messages:
    """Costs as they are."""
    return Messages(net.cost.copy(), np.zeros(net.u_start[-1]), np.zeros(net.v_start[-1]))


@fast_allocating_kernel
def take(net: Network, messages: Messages, e: int, up: bool) -> None:
    """Moves to one end of edge e, its second if `up`, the least cost of each strategy there with any of the other."""
    width = net.start[net.v[e] + 1] - net.start[net.v[e]]
    height = net.start[net.u[e] + 1] - net.start[net.u[e]]
    costs = net.edge_cost[net.edge_start[e] : net.edge_start[e + 1]]
    to_u = messages.to_u[net.u_start[e] : net.u_start[e + 1]]
    to_v = messages.to_v[net.v_start[e] : net.v_start[e + 1]]
    if up:
        least = np.full(width, np.inf)
        for a in range(height):
            row, given = costs[a * width : (a + 1) * width], to_u[a]
            for b in range(width):
                value = row[b] - given
                least[b] = value if value < least[b] else least[b]
        theta = messages.theta[net.start[net.v[e]] : net.start[net.v[e] + 1]]
        for b in range(width):
            theta[b] += least[b] - to_v[b]
            to_v[b] = least[b]
    else:
        theta = messages.theta[net.start[net.u[e]] : net.start[net.u[e] + 1]]
        for a in range(height):
            row, least_a = costs[a * width : (a + 1) * width], np.inf
            for b in range(width):
                value = row[b] - to_v[b]
                least_a = value if value < least_a else least_a
            theta[a] += least_a - to_u[a]
            to_u[a] = least_a


@allocating_kernel
def sweep(net: Network, messages: Messages, forward: bool) -> float:
    """One visit of all nodes in order. Returns the sum of min theta: after a sweep backwards, the bound plus prices."""
    count, total = len(net.start) - 1, 0.0
    for visit in range(count):
        i = visit if forward else count - 1 - visit
        first, last = net.link_start[i], net.link_start[i + 1]
        ahead = 0
        for at in range(first, last):
            e = net.link[at]
            if (net.u[e] == i) == forward:
                ahead += 1
            else:
                take(net, messages, e, forward)
        theta = messages.theta[net.start[i] : net.start[i + 1]]
        behind = last - first - ahead
        if ahead:
            part = 1.0 / max(ahead, behind)
            for at in range(first, last):
                e = net.link[at]
                if (net.u[e] == i) == forward:
                    begin = net.u_start[e] if forward else net.v_start[e]
                    given = (messages.to_u if forward else messages.to_v)[begin : begin + len(theta)]
                    for k in range(len(theta)):
                        given[k] -= part * theta[k]
            theta *= 1.0 - part * ahead if behind > ahead else 0.0
        total += theta.min()
    return total


@allocating_kernel
def decoded(net: Network, messages: Messages, own: Floats) -> Ints:
    """int64[n]: nodes in order, each the best for those decided, and for what the rest passes to it.

    `own` float64[S] is what strategies cost, and pay for usage. Meant for messages after a sweep backwards.
    """
    choice = np.zeros(len(net.start) - 1, np.int64)
    for i in range(len(choice)):
        first, last = net.start[i], net.start[i + 1]
        value = own[first:last].copy()
        for at in range(net.link_start[i], net.link_start[i + 1]):
            e = net.link[at]
            if net.u[e] == i:
                value += messages.to_u[net.u_start[e] : net.u_start[e + 1]]
            else:
                row = net.edge_start[e] + choice[net.u[e]] * (last - first)
                value += net.edge_cost[row : row + last - first]
        choice[i] = value.argmin()
    return choice
