"""Rows of a case, and what they say: estimate over compiler, and our program over XLA's partitioner's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import autopart as ap
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from experiments.simulator_accuracy.headline import headline

Rows = Sequence[dict[str, Any]]

BARS: dict[str, tuple[Callable[[dict[str, Any]], float], float, float]] = {
    "memory": (lambda r: r["estimate"]["peak_bytes"] / r["ours"]["peak_bytes"], 0.92, 1.10),
    "links": (lambda r: r["estimate"]["link_s"] / r["ours"]["link_s"] if r["ours"]["link_s"] else 1.0, 0.75, 1.3),
    "step": (lambda r: r["estimate"]["step_s"] / r["ours"]["step_s"], 0.85, 1.2),
    "compute": (lambda r: r["estimate"]["compute_s"] / r["ours"]["compute_s"], 0.85, 1.2),
    "kernels": (lambda r: r["estimate"]["kernels"] / r["ours"]["kernels"], 0.8, 1.25),
}
"""Estimate over the compiler's, and within what it should be."""


def estimate_of(low: ap.Lowered) -> dict[str, float]:
    """Our figures of a program."""
    e, run = low.estimate, low.estimate.simulation
    assert run is not None
    ran = (run.graph.nodes["kind"] == KERNEL) & (run.node_s > 0)
    return {
        "peak_bytes": e.peak_bytes,
        "argument_bytes": e.argument_bytes,
        "compute_s": e.compute_s,
        "link_s": e.collective_s,
        "step_s": e.step_s,
        "serial_s": e.serial_s,
        "overlapped_s": e.overlapped_s,
        "kernels": float((run.node_trips * ran).sum()),
    }


def ratios(rows: Rows, of: Callable[[dict[str, Any]], float], low: float, high: float) -> dict[str, float]:
    """Geometric mean, spread as a factor, least, most, and the share within (low, high)."""
    found = [of(row) for row in rows]
    logs = [math.log(ratio) for ratio in found]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / len(logs))
    within = sum(low <= ratio <= high for ratio in found) / len(found)
    return {
        "mean": math.exp(mean), "spread": math.exp(spread), "least": min(found), "most": max(found), "within": within,
    }  # fmt: skip


def summary(rows: Rows) -> dict[str, Any]:
    """What the bars are about."""
    found: dict[str, Any] = {name: ratios(rows, *bar) for name, bar in BARS.items()} if rows else {}
    decided = headline([_as_pair(row) for row in rows])
    both = [row for row in rows if "xla" in row]
    for name in ("peak_bytes", "step_s"):
        if both:
            found[f"ours over XLA's, {name}"] = ratios(both, lambda r, n=name: r["ours"][n] / r["xla"][n], 0.0, 1.03)
    return {**found, "ordered": decided["ordered"], "fits": decided["fits"], "regret_most": decided["regret_most"]}


def _as_pair(row: dict[str, Any]) -> dict[str, Any]:
    estimate, ours = row["estimate"], row["ours"]
    return {
        "model": f"{row['program']} {row['on']}", "hbm_bytes": row["hbm_bytes"],
        "peak_bytes": estimate["peak_bytes"], "compiler_peak_bytes": ours["peak_bytes"],
        "compute_s": estimate["compute_s"], "compiler_compute_s": ours["compute_s"],
        "step_s": estimate["step_s"], "compiler_step_s": ours["step_s"],
    }  # fmt: skip


def table(rows: Iterable[dict[str, Any]]) -> str:
    """A line per row as Markdown."""
    lines = [
        "| program, schedule, mesh | peak GB | memory | compute | links | step | kernels | collectives "
        "| ours over XLA's: memory, step |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = " | ".join(f"{BARS[name][0](row):.2f}" for name in ("memory", "compute", "links", "step", "kernels"))
        beside = [f"{row['ours'][n] / row['xla'][n]:.2f}" for n in ("peak_bytes", "step_s")] if "xla" in row else []
        many = sum(c[-1] for c in row["ours"]["collectives"])
        lines.append(
            f"| {row['name']} | {row['ours']['peak_bytes'] / 1e9:.2f} | {shown} | {many} | {', '.join(beside)} |"
        )
    return "\n".join(lines)


def said(found: dict[str, Any]) -> str:
    """The summary as Markdown."""
    lines = ["| | mean | spread | least | most | within |", "|---|---|---|---|---|---|"]
    for name, of in found.items():
        if isinstance(of, dict):
            lines.append(f"| {name} | " + " | ".join(f"{of[key]:.3f}" for key in of) + " |")
    rest = ", ".join(f"{name} {of:.3f}" for name, of in found.items() if not isinstance(of, dict))
    return "\n".join([*lines, "", rest])
