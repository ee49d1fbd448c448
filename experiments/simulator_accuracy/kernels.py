"""Kernel by kernel: our seconds beside the compiler's, so that a difference has a cause.

    python -m experiments.simulator_accuracy.kernels "mixer BP v3:4x4"     what differs most; needs its labels

    ours ms       compiler ms
     0.41 (1)      1.02 (3)     dot_general f32[512,768] up  mixer.py:31; {1,0:T(8,128)} copy copy
     1.80 (3)      1.40 (3)     ...

Kernels are matched by their members: ops have numbers, which the compiled text keeps (`labels.py`). Kernels of ours and
of the compiler's that have an op in common, directly or by way of others, are one row. What the compiler adds, as
copies between layouts, counts where its operand was made.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo
from autopart.costmodel.xla.xla_compile import DEVICE_CLOCK_HZ
from experiments.simulator_accuracy import labels
from experiments.simulator_accuracy.outside_pairs import all_pairs

_OP = re.compile(r"#op (\d+)")
_LAYOUT = re.compile(r"\{[\d,]*:?[^}]*\}")


@dataclass
class Row:
    """Kernels that have ops in common: seconds a step and numbers of kernels, ours and the compiler's."""

    ops: list[int] = field(default_factory=list)
    our_s: float = 0.0
    their_s: float = 0.0
    ours: int = 0
    theirs: list[Instruction] = field(default_factory=list)


def members(module: OptimisedHlo, instruction: Instruction) -> list[int]:
    """The numbers of the ops that a kernel was made of."""
    lines = [instruction.line, *(inside.line for inside in module.inside(instruction))]
    return [int(number) for line in lines for number in _OP.findall(line)]


def compiler_kernels(module: OptimisedHlo) -> list[tuple[Instruction, int, list[int]]]:
    """Each that takes cycles, with how often it runs and its ops; those of its operands where it has none."""
    found, made_of = [], dict[tuple[str, str], list[int]]()
    for instruction, times in module.ran():
        ops = members(module, instruction)
        for operand in instruction.operands if not ops else ():
            ops = ops or made_of.get((instruction.computation, operand), [])
        made_of[instruction.computation, instruction.name] = ops
        if instruction.cycles:
            found.append((instruction, times, ops))
    return found


def rows(run: Simulation, module: OptimisedHlo, clock_hz: float) -> list[Row]:
    """Those of a run of the simulator and of the compiled text."""
    nodes, program = run.graph.nodes, run.local.program
    is_kernel, theirs = nodes["kind"] == KERNEL, compiler_kernels(module)
    leads = np.flatnonzero(is_kernel & (run.leader == np.arange(len(nodes))))
    of_op = np.full(program.op_count, -1)
    of_op[nodes["subject"][is_kernel]] = run.leader[is_kernel]
    count = len(nodes) + program.op_count + len(theirs)
    pairs = [(len(nodes) + op, of_op[op]) for op in np.flatnonzero(of_op >= 0).tolist()]
    for place, (_, _, ops) in enumerate(theirs):
        pairs += [(len(nodes) + op, len(nodes) + program.op_count + place) for op in ops]
    first, second = np.array(pairs).T
    joined = connected_components(coo_array((np.ones(len(first)), (first, second)), (count, count)), directed=False)[1]
    found: dict[int, Row] = defaultdict(Row)
    for k in leads.tolist():
        row = found[joined[k]]
        row.our_s, row.ours = row.our_s + float(run.node_s[k] * run.node_trips[k]), row.ours + 1
    for op in np.flatnonzero(of_op >= 0).tolist():
        found[joined[len(nodes) + op]].ops.append(op)
    for place, (instruction, times, _) in enumerate(theirs):
        row = found[joined[len(nodes) + program.op_count + place]]
        row.their_s += times * instruction.cycles / clock_hz
        row.theirs.append(instruction)
    return sorted(
        (row for row in found.values() if row.ours or row.theirs), key=lambda row: -abs(row.our_s - row.their_s)
    )


def described(run: Simulation, row: Row) -> str:
    """The row's most costly op with its line, and the kinds and layouts of the compiler's kernels."""
    program, flop = run.local.program, run.graph.nodes["matrix_flop"]
    subject = run.graph.nodes["subject"]
    work = {int(op): float(f) for op, f in zip(subject, flop, strict=True)}
    ops = sorted(row.ops, key=lambda op: (-work.get(op, 0.0), op))[:1]
    ours = "; ".join(f"{program.spec(op).kind} {program.spec(op).results[0]} {program.where(op)}" for op in ops)
    theirs = sorted({f"{i.kind} {' '.join(_LAYOUT.findall(i.type)[:1])}" for i in row.theirs})
    return f"{ours} | {', '.join(theirs)[:120]}"


def table(run: Simulation, found: list[Row], most: int = 40) -> str:
    """The rows that differ most, and all of them together."""
    lines = ["ours ms       compiler ms"]
    total = (
        sum(r.our_s for r in found),
        sum(r.ours for r in found),
        sum(r.their_s for r in found),
        sum(len(r.theirs) for r in found),
    )
    lines.append(
        "{:8.3f} {:5}  {:8.3f} {:5}   in all".format(1e3 * total[0], f"({total[1]})", 1e3 * total[2], f"({total[3]})")
    )
    for r in found[:most]:
        ours, theirs = f"({r.ours})", f"({len(r.theirs)})"
        lines.append(f"{1e3 * r.our_s:8.3f} {ours:5}  {1e3 * r.their_s:8.3f} {theirs:5}   {described(run, r)}")
    return "\n".join(lines)


def main() -> None:
    pairs = {pair.name: pair for pair in all_pairs()}
    name, *rest = sys.argv[1:] or [""]
    module = labels.kept(name) if name in pairs else None
    if module is None:
        sys.exit(f"{name!r} is no pair with labels; there are: {', '.join(n for n in pairs if labels.kept_text(n))}")
    run = pairs[name].lower().estimate.simulation
    clock_hz = DEVICE_CLOCK_HZ[pairs[name].on[1].device]
    print(table(run, rows(run, module, clock_hz), int(rest[0]) if rest else 40))


if __name__ == "__main__":
    main()
