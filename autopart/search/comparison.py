"""What a result is compared with in its report: the named schedules, and what would come next.

baselines     FSDP(data,fsdp)+Megatron(model)  1.91 s  31 GB; DP(data,fsdp)  9.3 s  120 GB, does not fit; ...
named         "HSDP(data,fsdp)", where the result is that very state
unused_axes   ("model",)
remarks       axis "model" is not used: the best found that uses it takes 1.98 s, 33.2 GB, 130 all_reduces
              (Megatron(model)), against 1.91 s (+3.7 %)
              66 is not divisible by data=4, so it was not offered: dim 0 of batch/inputs; uneven="pad" makes it longer
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from autopart.base.units import bytes_text, seconds_text
from autopart.core.passes.padding.twins import twin_of
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import State
from autopart.search.problem import Problem
from autopart.search.space.next_values import next_values
from autopart.search.space.open_tiles import in_use
from autopart.search.space.several_axes import REPLICATED

STARTING_STATE = "earlier tactics"
"""What the starting state is called where there are tactics before the search; else it is replicated."""


def compared(task: SearchTask, problem: Problem, best: State) -> dict[str, Any]:
    """The entries of a report that the module shows, of the result `best`, as plain values. Leaves the task's
    partitioning as it was."""
    start = REPLICATED if not _used(task, problem.start) else STARTING_STATE
    rows = [(start, problem.start), *problem.baselines]
    named = next((name for name, state in rows if state.key == best.key), "")
    unused = [axis for axis in task.space.axes if axis not in _used(task, best)]
    remarks = [_next_best(problem, best, named)] if named else []
    remarks += [_if_used(task, problem, axis, rows, best) for axis in unused]
    remarks += _not_offered(task)
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


def _if_used(task: SearchTask, problem: Problem, axis: str, rows: list[tuple[str, State]], best: State) -> str:
    """What the best schedule that uses `axis` would cost, of those that are the best with their axes."""
    text = f'axis "{axis}" is not used'
    tried = [state for axes, state in problem.by_axes.items() if axis in axes]
    for state in sorted(tried, key=lambda s: s.cost.rank):
        if axis in _used(task, state):
            name = next((name for name, row in rows if row.key == state.key), "")
            text += f": the best found that uses it takes {cost_text(state)}"
            moved = ", ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in _collectives(task, state).items() if n)
            text += (f", {moved}" if moved else "") + (f" ({name})" if name else "")
            return f"{text}, against {seconds_text(best.cost.step_s)}{_more(state.cost.step_s, best.cost.step_s)}"
    return f"{text}: nothing that was tried uses it"


def _more(seconds: float, least: float) -> str:
    """By how much it is more, " (+3.7 %)" or " (24 times)": it may be less than what is written tells apart."""
    if least <= 0:
        return ""
    ratio = seconds / least
    return f" ({100 * (ratio - 1.0):+.2g} %)" if ratio < 2 else f" ({ratio:.2g} times)"


def _collectives(task: SearchTask, state: State) -> Mapping[str, int]:
    """How many of each kind a state has."""
    with _reached(task, state) as partitioning:
        return lower_for_device(partitioning, task.options).collectives()


def _not_offered(task: SearchTask) -> list[str]:
    """Dims of data that an axis of the search does not divide, and which it therefore never tiles.

    Data is what the program does not update. Dims that were made longer are offered as such. Dims shorter than the
    axis are left out: nothing could divide those.
    """
    partitioning, program = task.partitioning, task.partitioning.program
    updated = {program.arguments[p] for p in next_values(program).values()}
    found: dict[tuple[int, str], list[str]] = {}
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        for dim, extent in enumerate(() if value in updated else program.type_of(value).shape):
            for axis in task.space.axes:
                size = partitioning.mesh.shape[axis]
                if extent > size and extent % size and twin_of(program, value, dim) is None:
                    found.setdefault((extent, axis), []).append(f"dim {dim} of {name}")
    return [
        f"{extent} is not divisible by {axis}={partitioning.mesh.shape[axis]}, so it was not offered: "
        f'{", ".join(dims[:2])}{f" and {len(dims) - 2} more" if len(dims) > 2 else ""}; uneven="pad" makes it longer'
        for (extent, axis), dims in found.items()
    ]


@contextlib.contextmanager
def _reached(task: SearchTask, state: State) -> Generator[Partitioning]:
    """The task's partitioning in a state; it is as it was afterwards."""
    partitioning, start = task.partitioning, task.partitioning.mark()
    for decision in state.decisions:
        task.space.apply(partitioning, decision)
    try:
        yield partitioning
    finally:
        partitioning.undo(start)


def _used(task: SearchTask, state: State) -> set[str]:
    """The axes that tile something in a state."""
    with _reached(task, state) as partitioning:
        index = partitioning.mesh.index
        return {axis for axis in task.space.axes if in_use(partitioning.state, index(axis))}


def cost_text(state: State) -> str:
    """Seconds and memory of a state, for readers."""
    fits = "" if state.cost.fits else ", more than there is"
    return f"{seconds_text(state.cost.step_s)}, {bytes_text(state.cost.peak_bytes)}{fits}"


def baseline_lines(
    baselines: Sequence[Mapping[str, Any]], most: int, found: tuple[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """The best baselines of a report, one a line, and how many more there are; before them what was `found`."""
    ranked = sorted(baselines, key=lambda row: row["rank"])
    first = [{"name": found[0], **found[1]}] if found else []
    width = max((len(row["name"]) for row in (*first, *ranked[:most])), default=0)
    left = len(ranked) - most
    more = [f"and {left} more"] if left > 0 else []
    return [row_text(row, width) for row in (*first, *ranked[:most])] + more


def row_text(row: Mapping[str, Any], width: int) -> str:
    """A baseline as a line: name, seconds, memory, and whether it does not fit."""
    fits = "" if row["fits"] else "  does not fit"
    return f"{row['name']:{width}}  {seconds_text(row['step_s']):>8}  {bytes_text(row['peak_bytes']):>8}{fits}"
