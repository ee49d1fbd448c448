"""Seconds of ops in a plan: what a simulated state spends on each, as far as a strategy divides it further.

    %y = dot_general, 2 TFLOP      (m, -) on {a: 4, b: 2}: a quarter of the flop on each device, one launch

Flop are scaled by how much further the strategy divides the op, traffic by the bytes of its operands and results on a
device. What an op costs at least is in `least_seconds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import CONV
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.roofline import roofline_s
from autopart.costmodel.compiled.simulator import Simulation
from autopart.search.ilp.labels import ways
from autopart.search.ilp.strategies import OpStrategies


@dataclass(frozen=True, eq=False)
class SimulatedWork:
    """What the kernels of a simulated state do, put down to the op that each is named after; make it with `of`.

    work, vector_flop, hbm_bytes    float64[ops]: of one run on one device
    io_bytes                        float64[ops]: of the op's operands and results on one device
    ways                            float64[ops]: over how many devices the state divides the op
    runs[op]                        True where a kernel is named after the op
    """

    work: np.ndarray
    vector_flop: np.ndarray
    hbm_bytes: np.ndarray
    io_bytes: np.ndarray
    ways: np.ndarray
    runs: np.ndarray

    @staticmethod
    def of(run: Simulation) -> SimulatedWork:
        """The kernels of a run: joined ones count with the kernel that they joined."""
        program, nodes = run.local.program, run.graph.nodes
        kernels = np.flatnonzero(nodes["kind"] == KERNEL)
        head = nodes["subject"][run.leader[kernels]]
        figures = np.zeros((3, program.op_count))
        for row, column in enumerate((nodes["matrix_work"], nodes["vector_flop"], run.node_hbm_bytes)):
            np.add.at(figures[row], head, column[kernels])
        runs = np.zeros(program.op_count, np.bool_)
        runs[head] = True
        uses, values = run.arrays.uses, run.arrays.values
        used_bytes = uses["use_elements"] * program.element_bytes[program.operands]
        left_bytes = values["native_elements"] * program.element_bytes
        io_bytes = np.bincount(program.use_op, used_bytes, minlength=program.op_count)
        io_bytes += np.bincount(program.value_op, left_bytes, minlength=program.op_count)
        return SimulatedWork(figures[0], figures[1], figures[2], io_bytes, ways=run.arrays.ops["ways"], runs=runs)


def planned_seconds(
    arrays: ProgramArrays,
    row: np.ndarray,
    ops: np.ndarray,
    done: SimulatedWork,
    options: OpStrategies,
    sizes: tuple[int, ...],
) -> np.ndarray:
    """float64[ops, strategies]: seconds of a run of each of some ops that have these strategies."""
    first = int(ops[0])
    dtype, is_conv = int(arrays.ops["matrix_dtype"][first]), bool(arrays.ops["op_class"][first] == CONV)
    io_bytes = _io_bytes(arrays, first, options, sizes)
    seconds = np.zeros((len(ops), options.count))
    for i, op in enumerate(ops.tolist()):
        divided = (done.ways[op] / options.ways).tolist()
        moved = (io_bytes / max(done.io_bytes[op], 1.0)).tolist()
        for s, (part, share) in enumerate(zip(divided, moved, strict=True)):
            figures = (done.work[op] * part, dtype, is_conv, done.vector_flop[op] * part, done.hbm_bytes[op] * share)
            seconds[i, s] = roofline_s(*figures, 0.0, row)
    return seconds


def _io_bytes(arrays: ProgramArrays, op: int, options: OpStrategies, sizes: tuple[int, ...]) -> np.ndarray:
    """float64[strategies]: bytes of the op's operands and results on a device."""
    values = arrays.values["elements"] * arrays.values["element_bytes"]
    read = arrays.uses["operands"][arrays.operand_ptr[op] : arrays.operand_ptr[op + 1]].tolist()
    made = range(int(arrays.result_ptr[op]), int(arrays.result_ptr[op + 1]))
    found = np.zeros(options.count)
    for value, labels in zip((*read, *made), (*options.required, *options.native), strict=True):
        found += [values[value] / ways(label, sizes) for label in labels]
    return found
