"""The seconds of a simulated step, by class of op, by kind of collective, and by source line.

Each of the first two adds up to the step, collectives in turn: kernels by what their root is, the copies that
collectives bring along, and the collectives as they run, small ones combined.
"""

from __future__ import annotations

import numpy as np

from autopart.base.quoting import one_line
from autopart.core.ops.rule import traits_of
from autopart.costmodel.breakdown import line_op
from autopart.costmodel.compiled.fusion.kernel_graph import DEF_MOVE, KERNEL
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.estimate import Estimate

COPIES = "copies for collectives"
"""What local copies of collectives are listed as."""

LINES_OF_NODES = 4000
"""Of how many kernels and collectives, the costliest, source lines are looked up; the rest is "other lines"."""


def by_class(run: Simulation) -> dict[str, float]:
    """Seconds of kernels by the class of their root, and of the copies around collectives; the most first."""
    seconds, names = run.node_s * run.node_trips, class_names(run)
    found: dict[str, float] = {}
    for node in np.flatnonzero(run.graph.nodes["kind"] == KERNEL).tolist():
        found[names[node]] = found.get(names[node], 0.0) + float(seconds[node])
    copies = run.serial_s - sum(found.values()) - run.collective_s
    if copies > 1e-9 * run.serial_s:
        found[COPIES] = copies
    return {name: s for name, s in sorted(found.items(), key=lambda row: -row[1]) if s > 0}


def class_names(run: Simulation) -> list[str]:
    """Of each node: the class of a kernel's root, or the kinds of the collectives that it is."""
    program, nodes = run.local.program, run.graph.nodes
    classes = [type(traits_of(spec)).__name__.lower() for spec in program.specs]
    found: list[str] = []
    for kind, subject, flop, is_conv in zip(
        *(nodes[name].tolist() for name in ("kind", "subject", "matrix_flop", "is_conv")), strict=True
    ):
        if kind != KERNEL:
            steps = run.plans[0 if kind == DEF_MOVE else 1][subject].steps
            found.append("+".join(dict.fromkeys(step.kind for step in steps)) or COPIES)
        else:
            product = "convolution" if is_conv else "matmul"
            found.append(product if flop > 0 else classes[program.op_spec[subject]])
    return found


def by_collective(estimate: Estimate) -> dict[str, tuple[float, float, int]]:
    """Kind -> (seconds as they run, seconds one by one, count), of the kinds that are there."""
    there = {kind: (t.seconds, t.uncombined_s, t.count) for kind, t in estimate.collectives.items() if t.count}
    return dict(sorted(there.items(), key=lambda row: -row[1][0]))


def by_line(run: Simulation) -> dict[str, tuple[float, float]]:
    """`file.py:12` -> (seconds of kernels, of collectives), the most first; "" is what has no line."""
    program, nodes = run.local.program, run.graph.nodes
    seconds = run.node_s * run.node_trips
    found: dict[str, list[float]] = {}
    lines: dict[int, str] = {}
    ranked = np.argsort(-seconds, kind="stable").tolist()
    for place, node in enumerate(ranked):
        if seconds[node] <= 0:
            break
        op = line_op(run, node)
        if place >= LINES_OF_NODES:
            lines.setdefault(op, "other lines")
        if op not in lines:
            lines[op] = one_line(program.where(op).partition(" ")[0].rpartition("/")[2])
        found.setdefault(lines[op], [0.0, 0.0])[int(nodes["kind"][node] != KERNEL)] += float(seconds[node])
    return dict(sorted(((k, (a, b)) for k, (a, b) in found.items()), key=lambda row: -sum(row[1])))
