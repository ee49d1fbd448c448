"""A simulated step as a Chrome trace: three rows in Perfetto.

compute      | dot_general | add ... |  dot_general   |
collectives         | all_reduce<batch> |
memory       ___----====______
"""

from __future__ import annotations

from typing import Any

from autopart.costmodel.breakdown import node_text
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.simulator import Simulation

MAX_MEMORY_POINTS = 4096
"""Changes of live memory that the counter row shows at most."""


def chrome_trace(run: Simulation) -> dict[str, Any]:
    """The trace event format: complete events in microseconds, a loop's iterations as one event."""
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": t, "args": {"name": name}}
        for t, name in enumerate(("compute", "collectives"))
    ]
    fixed = run.argument_bytes + run.output_bytes
    seconds = run.node_s * run.node_trips
    step = max(1, len(seconds) // MAX_MEMORY_POINTS)
    for node in range(len(seconds)):
        if run.leader[node] != node:
            continue
        what, _, _, where, path = node_text(run, node)
        start_us = float(run.node_start_s[node]) * 1e6
        events.append(
            {
                "name": what, "ph": "X", "pid": 0, "tid": int(run.graph.nodes["kind"][node] != KERNEL), "ts": start_us,
                "dur": float(seconds[node]) * 1e6,
                "args": {"where": where, "path": path, "runs": int(run.node_trips[node])},
            }
        )  # fmt: skip
        if node % step == 0:
            live = {"bytes": float(fixed + run.live[run.slot[node]])}
            events.append({"name": "memory", "ph": "C", "pid": 0, "ts": start_us, "args": live})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
