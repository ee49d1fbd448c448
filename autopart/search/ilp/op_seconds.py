"""Seconds of ops: what a strategy leaves of an op's work on one device.

    least     never more than the simulator says: launch, matrix work and certain reads of each matrix op, the vector
              work of kernels into which nothing else is joined; nothing for ops that may be computed inside others
    planned   what a simulated state spends on the op: flop scaled by how much further the strategy divides it, traffic
              by the bytes of its operands and results on a device

    %y = dot_general, 2 TFLOP      (m, -) on {a: 4, b: 2}: a quarter of the flop on each device, one launch

`least` holds whatever is fused: matrix ops are never computed inside other ops, and what is fused into a kernel can
only add to each term of the roofline. A read is certain if its bytes exceed what stays on the chip, and if no compiler
can compute the operand inside the matrix op instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.costmodel.hardware.devices import ON_CHIP
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.compute import roofline_s
from autopart.costmodel.simulator.kernel_graph import KERNEL
from autopart.costmodel.simulator.op_classes import CONV, MATMUL, OPAQUE, UPDATE
from autopart.costmodel.simulator.simulator import Simulation
from autopart.search.ilp.labels import ways
from autopart.search.ilp.strategies import OpStrategies


def least_seconds(
    arrays: ProgramArrays, row: np.ndarray, op: int, options: OpStrategies, sizes: tuple[int, ...]
) -> np.ndarray:
    """float64[strategies]: seconds that a run of the op takes at least. `row` is the device's (`device_row`)."""
    ops, passes = arrays.ops, arrays.specs["passes"][arrays.ops["spec"][op]]
    work, is_conv = float(passes * ops["matrix_flop"][op]), bool(ops["op_class"][op] == CONV)
    vector = _vector_flop(arrays, op, options, sizes)
    if work <= 0 and not vector.any():
        return np.zeros(options.count)
    read = _certain_bytes(arrays, float(row[ON_CHIP]), op, options, sizes)
    dtype, columns = int(ops["matrix_dtype"][op]), zip(options.ways, vector, read, strict=True)
    return np.array([roofline_s(work / w, dtype, is_conv, v, b, 0.0, row) for w, v, b in columns])


def _certain_bytes(
    arrays: ProgramArrays, on_chip_bytes: float, op: int, options: OpStrategies, sizes: tuple[int, ...]
) -> np.ndarray:
    """float64[strategies]: bytes that a kernel of the op reads from memory, whatever is fused."""
    found = np.zeros(options.count)
    if int(arrays.ops["op_class"][op]) not in (MATMUL, CONV):
        return found
    seen: set[int] = set()
    for k in range(int(arrays.operand_ptr[op + 1] - arrays.operand_ptr[op])):
        value = int(arrays.uses["operands"][arrays.operand_ptr[op] + k])
        maker = int(arrays.values["value_op"][value])
        if value in seen or arrays.ops["fuses"][maker] or arrays.ops["is_view"][maker]:
            continue
        seen.add(value)
        narrowed = 2.0 if arrays.ops["narrows"][op] and arrays.values["element_bytes"][value] == 4 else 1.0
        whole = arrays.values["elements"][value] * arrays.values["element_bytes"][value] / narrowed
        held = np.array([whole / ways(label, sizes) for label in options.required[k]])
        found += np.where(held > on_chip_bytes, held, 0.0)
    return found


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
