"""Seconds of ops: what a strategy leaves of an op's work on one device.

    least     never more than the simulator says: launch and matrix work of each matrix op, the vector work of kernels
              into which nothing else is joined; nothing for ops that a compiler may compute inside others
    planned   what a simulated state spends on the op, divided by how much further the strategy divides it

    %y = dot_general, 2 TFLOP      (m, -) on {a: 4, b: 2}: a quarter of the flop on each device, one launch

`least` holds whatever is fused: matrix ops are never computed inside other ops, and a kernel takes at least as long as
the matrix work in it, since what is fused can only add to each term of the roofline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.compute import roofline_s
from autopart.costmodel.simulator.kernel_graph import KERNEL
from autopart.costmodel.simulator.op_classes import CONV, OPAQUE, UPDATE
from autopart.costmodel.simulator.simulator import Simulation
from autopart.search.ilp.labels import ways
from autopart.search.ilp.strategies import OpStrategies


def least_seconds(
    arrays: ProgramArrays, row: np.ndarray, op: int, options: OpStrategies, sizes: tuple[int, ...]
) -> np.ndarray:
    """float64[strategies]: seconds that a run of the op takes at least. `row` is the device's (`device_row`)."""
    ops = arrays.ops
    work, is_conv = float(ops["passes"][op] * ops["matrix_flop"][op]), bool(ops["op_class"][op] == CONV)
    vector = _vector_flop(arrays, op, options, sizes)
    if work <= 0 and not vector.any():
        return np.zeros(options.count)
    dtype = int(ops["matrix_dtype"][op])
    return np.array(
        [roofline_s(work / w, dtype, is_conv, v, 0.0, row) for w, v in zip(options.ways, vector, strict=True)]
    )


def _vector_flop(arrays: ProgramArrays, op: int, options: OpStrategies, sizes: tuple[int, ...]) -> np.ndarray:
    """float64[strategies]: of kernels into which nothing is joined, the vector flop on a device; else 0."""
    kind, weight = int(arrays.ops["op_class"][op]), float(arrays.ops["weight"][op])
    first, end = int(arrays.operand_ptr[op]), int(arrays.operand_ptr[op + 1])
    if kind not in (OPAQUE, UPDATE) or weight == 0 or first == end:
        return np.zeros(options.count)
    walked = range(0 if kind == OPAQUE else min(1, end - first - 1), end - first)
    whole = arrays.values["elements"][arrays.uses["operands"][first:end]]
    most = np.zeros(options.count)
    for k in walked:
        most = np.maximum(most, [whole[k] / ways(label, sizes) for label in options.required[k]])
    return weight * most


@dataclass(frozen=True, eq=False)
class SimulatedWork:
    """What the kernels of a simulated state do, put down to the op that each is named after; make it with `of`.

    work, vector_flop, hbm_bytes    float64[ops]: of one run on one device
    ways                            float64[ops]: over how many devices the state divides the op
    runs[op]                        True where a kernel is named after the op
    """

    work: np.ndarray
    vector_flop: np.ndarray
    hbm_bytes: np.ndarray
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
        return SimulatedWork(*figures, ways=run.arrays.ops["ways"], runs=runs)


def planned_seconds(
    arrays: ProgramArrays, row: np.ndarray, ops: np.ndarray, done: SimulatedWork, options: OpStrategies
) -> np.ndarray:
    """float64[ops, strategies]: seconds of a run of each of some ops that have these strategies."""
    share = done.ways[ops, None] / options.ways[None, :]
    first = int(ops[0])
    dtype, is_conv = int(arrays.ops["matrix_dtype"][first]), bool(arrays.ops["op_class"][first] == CONV)
    seconds = np.zeros(share.shape)
    for i in np.flatnonzero(done.runs[ops]).tolist():
        op = int(ops[i])
        for s, part in enumerate(share[i].tolist()):
            figures = (done.work[op] * part, dtype, is_conv, done.vector_flop[op] * part, done.hbm_bytes[op] * part)
            seconds[i, s] = roofline_s(*figures, row)
    return seconds
