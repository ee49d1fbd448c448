"""Seconds by class of op: of a plan, and of the program that came of it.

    matmul            plan 1.10 s    program 1.19 s
    elementwise            0.02 s            0.13 s     the plan scales what a state spent that fused them further
    redistributions        0.51 s            0.56 s

A kernel counts with the op that it is named after.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopart.costmodel.compiled.facts.op_classes import CLASS_NAMES
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.simulator import Simulation
from autopart.search.ilp.sharding_model import Model, PlanCosts

MOVES = "redistributions"


def plan_by_class(model: Model, costs: PlanCosts, choice: Sequence[int]) -> dict[str, float]:
    """Seconds of a choice's strategies by class, and of the moves between them."""
    found: dict[str, float] = {}
    for node, options in enumerate(model.nodes.strategies):
        if options is not None:
            name = CLASS_NAMES[int(model.arrays.ops["op_class"][model.nodes.member[node]])]
            found[name] = found.get(name, 0.0) + float(costs.seconds[node][choice[node]])
    edges = costs.flow.edges(model.table, least=False)
    found[MOVES] = float(sum(matrix[choice[u], choice[v]] for (u, v), matrix in edges.items()))
    return {name: seconds for name, seconds in found.items() if seconds}


def program_by_class(model: Model, run: Simulation) -> dict[str, float]:
    """Seconds of a simulated program by class, and of its redistributions, local copies included."""
    nodes, op_class = run.graph.nodes, model.arrays.ops["op_class"]
    seconds, kernels = run.node_s * run.node_trips, nodes["kind"] == KERNEL
    found = np.bincount(op_class[nodes["subject"][kernels]], seconds[kernels], minlength=len(CLASS_NAMES))
    by_class = {name: float(s) for name, s in zip(CLASS_NAMES, found.tolist(), strict=True) if s}
    return {**by_class, MOVES: float(seconds[~kernels].sum())}
