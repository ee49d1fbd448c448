"""The bound's problem with a node for every op and value, from the model of equal layers: judged once, counted apart.

    32 layers, grouped    one node for the 32 tanh, one move from it to the 32 products after it
    every op              32 nodes with that node's costs, 32 edges with the costs of that one move

What layers have in common is computed once, yet the problem is about all states, also those that decide layers
otherwise than each other. A training step is nearly a tree: most nodes are eliminated, and what is left is small.
"""

from __future__ import annotations

import numpy as np

from autopart.pairwise import PairwiseProblem
from autopart.search.ilp.held_bytes import node_bytes
from autopart.search.ilp.sharding_model import Model


def every_op(model: Model) -> PairwiseProblem:
    """The least costs of every op, waiting value and move of a model; usage is the bytes of arguments, at one time."""
    nodes, program = model.nodes, model.nodes.start.program
    group = np.concatenate([nodes.of_op, nodes.of_value])
    here = np.flatnonzero(group >= 0)
    number = np.full(len(group), -1)
    number[here] = np.arange(len(here))
    runs = np.concatenate([program.scope_trips[program.op_scope].astype(float), np.zeros(program.value_count)])
    is_argument = np.zeros(len(group), np.bool_)
    is_argument[program.op_count + np.array(program.arguments, np.int64)] = True
    once, held = model.least_once, node_bytes(nodes, model.device.layout_tile)
    costs = [runs[i] * once[n] for i, n in zip(here.tolist(), group[here].tolist(), strict=True)]
    usages = [is_argument[i] * held[n] for i, n in zip(here.tolist(), group[here].tolist(), strict=True)]
    intervals = np.column_stack([np.zeros(len(here), np.int64), is_argument[here]])
    flow = model.flow
    seconds = [flow.seconds(move, model.table, least=True) for move in flow.moves]
    moving = np.array([bool(matrix.any()) for matrix in seconds], np.bool_)
    edges: list[tuple[int, int, np.ndarray]] = []
    for i in np.flatnonzero(moving[flow.kind]).tolist():
        (u, v), matrix = number[flow.ends[i]].tolist(), seconds[flow.kind[i]]
        trips = float(flow.trips[i])
        if u == v:
            costs[u] = costs[u] + trips * matrix.diagonal()
        elif trips:
            edges.append((u, v, trips * matrix))
    return PairwiseProblem.of(costs, usages, intervals, edges, model.device.hbm_bytes)
