"""Which kernels, collectives and buffers cost most, with the source line and the pytree path they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.compiled.fusion.kernel_graph import DEF_MOVE, KERNEL
from autopart.costmodel.compiled.simulator import Simulation

STEPS_TO_A_NAME = 12
"""How many ops a path is looked for, backwards and forwards."""


@dataclass(frozen=True)
class OpRow:
    """A kernel or collective: what runs, how often, its seconds in a step, where it is written, whose it is."""

    what: str
    count: int
    seconds: float
    where: str
    path: str


@dataclass(frozen=True)
class BufferRow:
    """A buffer that lives at the peak: what it is, its bytes on a device, where it is made, whose it is."""

    what: str
    bytes: float
    where: str
    path: str


def top_rows(run: Simulation, k: int, kind: str | None = None) -> list[OpRow]:
    """The costliest rows, of "kernels" or "collectives" alone if asked; rows of equal text and line are one."""
    seconds = run.node_s * run.node_trips
    if kind is not None:
        seconds = np.where((run.graph.nodes["kind"] == KERNEL) == (kind == "kernels"), seconds, 0.0)
    rows: dict[tuple[str, str, str], OpRow] = {}
    for node in np.argsort(-seconds, kind="stable")[: 50 * k]:
        if seconds[node] > 0:
            row = OpRow(*node_text(run, int(node)))
            row = replace(row, count=int(run.node_trips[node]), seconds=float(seconds[node]))
            key = (row.what, row.where, row.path)
            known = rows.get(key)
            rows[key] = row if known is None else replace(
                row, count=row.count + known.count, seconds=row.seconds + known.seconds
            )  # fmt: skip
    return sorted(rows.values(), key=lambda row: -row.seconds)[:k]


def node_text(run: Simulation, node: int) -> tuple[str, int, float, str, str]:
    """(what runs, 0, 0.0, source line, path) of a node: an `OpRow` without its figures."""
    program, graph, index = run.local.program, run.graph, int(run.graph.nodes["subject"][node])
    if graph.nodes["kind"][node] == KERNEL:
        value = int(program.result_ptr[index])
        joined = int(run.joined[node]) - 1
        what = program.spec(index).kind + (f" and {joined} joined" if joined else "")
        return f"{what} {_local(run, value, run.local.native)}", 0, 0.0, program.where(index), path(program, value)
    after_op = graph.nodes["kind"][node] == DEF_MOVE
    value = int(run.local.at_def[index] if after_op else run.local.placement.value[index])
    op = line_op(run, node)
    cost = run.plans[0 if after_op else 1][index]
    kinds = "+".join(f"{s.kind}<{','.join(s.mesh_axes)}>" for s in cost.steps)
    where = program.where(op)
    return f"{kinds} {_local(run, value, run.local.settled)}", 0, 0.0, where, path(program, value)


def line_op(run: Simulation, node: int) -> int:
    """The op whose source line a node belongs to: its root, or the op that makes what is moved.

    Arguments have no line. A gather of one belongs to the first op that reads it.
    """
    program, index = run.local.program, int(run.graph.nodes["subject"][node])
    kind = int(run.graph.nodes["kind"][node])
    if kind == KERNEL:
        return index
    op = int(program.value_op[run.local.at_def[index] if kind == DEF_MOVE else run.local.placement.value[index]])
    if kind == DEF_MOVE or program.spec(op).kind != "argument":
        return op
    return int(run.local.first_reader[index])


def _local(run: Simulation, value: int, layouts: np.ndarray) -> str:
    return str(run.local.local_type(value, int(layouts[value])))


def top_buffers(run: Simulation, k: int) -> list[BufferRow]:
    """The largest buffers that live when most memory is in use; arguments and outputs are among them."""
    program, at = run.local.program, int(run.live.argmax())
    rows = [
        BufferRow(f"argument {_local(run, v, run.local.settled)}", float(run.arrays.values["settled_bytes"][v]), "",
                  path(program, v))
        for v in (program.arguments[i] for i in program.passed_arguments)
    ]  # fmt: skip
    made, end, size = run.buffers.made, run.buffers.end, run.buffers.bytes
    live = np.flatnonzero((size > 0) & (made <= at) & (end >= at))
    rows += [_buffer_row(run, int(b)) for b in live[np.argsort(-size[live], kind="stable")][:k]]
    return sorted(rows, key=lambda row: -row.bytes)[:k]


def _buffer_row(run: Simulation, buffer: int) -> BufferRow:
    local, program = run.local, run.local.program
    values, moves = program.value_count, len(local.placement.value)
    value, layout, what = buffer, 0, ""
    if buffer < values:
        layout, what = int(local.settled[buffer]), program.spec(int(program.value_op[buffer])).kind
        what = "copy of argument" if what == "argument" else what
    elif buffer < values + moves:
        value, layout = int(local.placement.value[buffer - values]), int(local.placement.target[buffer - values])
        what = "redistributed"
    else:
        value = int(local.at_def[buffer - values - moves])
        layout, what = int(local.native[value]), "before redistribution"
    where = program.where(int(program.value_op[value]))
    return BufferRow(
        f"{what} {local.local_type(value, layout)}", float(run.buffers.bytes[buffer]), where, path(program, value)
    )


def path(program: Program, value: int) -> str:
    """The pytree path a value belongs to: the argument it is made from, or the one whose next value it leads to.

    Backwards only through ops of one operand; forwards only through values of its shape, to the argument farthest away:
    a gradient updates Adam's moments first, and the parameter with them.
    """
    here = value
    for _ in range(STEPS_TO_A_NAME):
        op = int(program.value_op[here])
        if program.spec(op).kind == "argument":
            return program.value_name(here)
        operands = program.operands_of(op)
        if len(operands) != 1:
            break
        here = int(operands[0])
    found = ""
    for reached in _same_shape_after(program, value):
        if program.spec(int(program.value_op[reached])).kind == "argument":
            found = program.value_name(reached)
    return found


def _same_shape_after(program: Program, value: int) -> Iterable[int]:
    """Values of the same shape computed from `value`, nearest first."""
    pointer, use = program.users
    shape = program.type_of(value).shape
    seen, line = {value}, [value]
    for _ in range(STEPS_TO_A_NAME):
        after = []
        for u in (u for v in line for u in use[pointer[v] : pointer[v + 1]].tolist()):
            for result in program.results_of(int(program.use_op[u])):
                if result not in seen and program.type_of(result).shape == shape:
                    seen.add(result)
                    after.append(result)
                    yield result
        line = after[:64]
