"""From a lowering to the graph of its kernels, in one kernel: sizes on a device, fusion, nodes and what they read.

Lowered  ->  LocalArrays (arrays.py)  ->  Fused (fusion.py)  ->  KernelGraph (kernel_graph.py)
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.arrays import LocalArrays, Lowered, ProgramArrays, empty_local_arrays
from autopart.costmodel.compiled.fusion.fusion import Fused, fuse
from autopart.costmodel.compiled.fusion.kernel_graph import (
    DEF_MOVE,
    KERNEL,
    KernelGraph,
    Walk,
    cut_to,
    empty_graph,
    fill_nodes,
    list_nodes,
    with_more_reads,
)
from autopart.costmodel.compiled.local.local_arrays import local_arrays
from autopart.costmodel.compiled.sizes import SizeTable


class LocalGraph(NamedTuple):
    """A device-local program as the simulator sees it.

    operands      per value: how many arrays its expression reads, be they read inside its op
    plan_rows     int32[nodes]: the row of a node's plan in `KnownPlans.figures`; 0 for kernels
    """

    held: LocalArrays
    graph: KernelGraph
    operands: np.ndarray
    plan_rows: np.ndarray


def local_graph(
    program: ProgramArrays, known: SizeTable, lowered: Lowered, able: np.ndarray, duplicate: bool, empty: Empty
) -> LocalGraph:
    """The graph of a lowering; `able` and `duplicate` as `fuse` has them."""
    moves, defs = len(lowered.value), len(lowered.at_def)
    ops, buffers = len(program.ops), len(program.values) + moves + defs
    most = ops + moves + defs
    held, fused = empty_local_arrays(program, moves, defs, empty), Fused.empty(len(program.values), empty)
    graph, walk = empty_graph(ops, most, buffers, empty), Walk.empty(program, fused.away, buffers, empty)
    plan_rows = empty(most, np.int32)
    nodes, done = _build(program, known, lowered, able, duplicate, held, fused, graph, plan_rows, walk)
    while done < nodes:
        graph = with_more_reads(graph, ops, empty)
        done = fill_nodes(program, held, lowered.at_def, graph, done, nodes, walk)
    return LocalGraph(held, cut_to(graph, nodes), fused.operands, plan_rows[:nodes])


@kernel
def _build(
    program: ProgramArrays,
    known: SizeTable,
    lowered: Lowered,
    able: np.ndarray,
    duplicate: bool,
    held: LocalArrays,
    fused: Fused,
    graph: KernelGraph,
    plan_rows: np.ndarray,
    walk: Walk,
) -> tuple[int, int]:
    """Fills in all that has room; returns how many nodes there are, and the first that is not filled in."""
    local_arrays(program, known, lowered, held)
    fuse(program, held, lowered.at_def, lowered.looks_up, able, duplicate, lowered.byte_cycles, fused)
    nodes = list_nodes(program, held, lowered.at_def, lowered.by_position, graph, walk)
    defs = lowered.at_def.shape[0]
    for k in range(nodes):
        kind, subject = graph.nodes.kind[k], graph.nodes.subject[k]
        plan_rows[k] = 0
        if kind != KERNEL:
            plan_rows[k] = lowered.plan_rows[subject if kind == DEF_MOVE else defs + subject]
    return nodes, fill_nodes(program, held, lowered.at_def, graph, 0, nodes, walk)
