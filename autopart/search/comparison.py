"""What a result is compared with in its report: the named schedules, and what would come next.

baselines     FSDP(data,fsdp)+Megatron(model)  1.91 s  31 GB; DP(data,fsdp)  9.3 s  120 GB, does not fit; ...
named         "HSDP(data,fsdp)", where the result is that very state
unused_axes   ("model",)
remarks       axis "model" is not used: the best found that uses it takes 1.98 s, 33.2 GB (Megatron(model))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autopart.search.evaluator import SearchTask
from autopart.search.jobs import State
from autopart.search.problem import Problem
from autopart.search.progress import seconds_text
from autopart.search.space.open_tiles import in_use

REPLICATED = "replicated"
STARTING_STATE = "earlier tactics"
"""What the starting state is called: without tactics before the search, and with."""


def compared(task: SearchTask, problem: Problem, best: State) -> dict[str, Any]:
    """The entries of a report that the module shows, of the result `best`, as plain values. Leaves the task's
    partitioning as it was."""
    start = REPLICATED if not _used(task, problem.start) else STARTING_STATE
    rows = [(start, problem.start), *problem.baselines]
    named = next((name for name, state in rows if state.key == best.key), "")
    unused = [axis for axis in task.space.axes if axis not in _used(task, best)]
    remarks = [_next_best(problem, best, named)] if named else []
    remarks += [_if_used(task, problem, axis, rows) for axis in unused]
    return {
        "baselines": [_row(name, state) for name, state in rows],
        "named": named,
        "unused_axes": unused,
        "remarks": remarks,
    }


def _row(name: str, state: State) -> dict[str, Any]:
    cost = state.cost
    return {
        "name": name,
        "step_s": cost.step_s,
        "peak_bytes": cost.peak_bytes,
        "fits": cost.fits,
        "rank": list(cost.rank[:2]),
    }


def _next_best(problem: Problem, best: State, named: str) -> str:
    text = f"the result is {named} exactly"
    other = next((s for s in problem.ahead if s.key != best.key), None)
    return f"{text}; nothing else was tried" if other is None else f"{text}; the next best takes {cost_text(other)}"


def _if_used(task: SearchTask, problem: Problem, axis: str, rows: list[tuple[str, State]]) -> str:
    """What the best schedule that uses `axis` would cost, of those that are the best with their axes."""
    text = f'axis "{axis}" is not used'
    tried = [state for axes, state in problem.by_axes.items() if axis in axes]
    for state in sorted(tried, key=lambda s: s.cost.rank):
        if axis in _used(task, state):
            name = next((name for name, row in rows if row.key == state.key), "")
            return f"{text}: the best found that uses it takes {cost_text(state)}" + (f" ({name})" if name else "")
    return f"{text}: nothing that was tried uses it"


def _used(task: SearchTask, state: State) -> set[str]:
    """The axes that tile something in a state."""
    partitioning, start = task.partitioning, task.partitioning.mark()
    for decision in state.decisions:
        task.space.apply(partitioning, decision)
    mesh = partitioning.mesh
    used = {axis for axis in task.space.axes if in_use(partitioning.state, mesh.index(axis))}
    partitioning.undo(start)
    return used


def cost_text(state: State) -> str:
    """Seconds and memory of a state, for readers."""
    fits = "" if state.cost.fits else ", more than there is"
    return f"{seconds_text(state.cost.step_s)}, {state.cost.peak_bytes / 1e9:.3g} GB{fits}"


def baseline_lines(baselines: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """The best baselines of a report, one a line, and how many more there are."""
    ranked = sorted(baselines, key=lambda row: row["rank"])
    width = max((len(row["name"]) for row in ranked[:most]), default=0)
    left = len(ranked) - most
    return [row_text(row, width) for row in ranked[:most]] + ([f"and {left} more"] if left > 0 else [])


def row_text(row: Mapping[str, Any], width: int) -> str:
    """A baseline as a line: name, seconds, memory, and whether it does not fit."""
    fits = "" if row["fits"] else "  does not fit"
    return f"{row['name']:{width}}  {seconds_text(row['step_s']):>8}  {row['peak_bytes'] / 1e9:8.3g} GB{fits}"
