"""Copies that the TPU compiler makes of donated arguments: around updates in another layout, and for gathered outputs.

    %g = all_reduce(dot ...)     f32[f,d], rows of d
    %t = transpose %g            f32[d,f], but its memory is still rows of d
    %w' = %w - %t                in %t's layout: %w is copied into it, %w' waits for the end and is copied back

A transpose of what a matmul leaves is free, the matmul writes it either way; a collective in between fixes the layout.
Found with libtpu 0.0.51 on v3: such an update of four matrices took 16 copies and 1.2 GB where the same sum, taken
after the transpose, took none and 0.13 GB.

    %s = %w[part] - ...          the update of a part of %w, which is held whole and donated
    %w' = all_gather %s          no collective writes into %w's memory: %w is copied at the start, %w' at the end;
                                 a gather along an inner dim leaves another layout, and %w' alone is copied

The same version: a mixture of experts whose two stacks of weights, 75 MB each, were updated so took 0.21 GB more than
with outputs in place, and T32 under Megatron and ZeRO-2 1.33 GB, which are its parameters.
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.simulator.kernel_graph import KERNEL, STREAMED, TRANSPOSED, KernelGraph
from autopart.costmodel.simulator.op_classes import ELEMENTWISE
from autopart.costmodel.simulator.redistribution_costs import OUT_OF_ORDER

READ_AND_WRITE = 2
"""Bytes that a copy moves for each byte."""

SMALL_BYTES = 2.0**20
"""Below this the compiler's copies are not worth counting."""


@kernel
def transposed_nodes(
    program: ProgramArrays,
    graph: KernelGraph,
    moved: np.ndarray,
    follows: np.ndarray,
    transposed: np.ndarray,
) -> None:
    """Marks elementwise kernels that read a collective's result transposed, or another such kernel's result.

    Scratch: moved[buffer], whether a collective makes it; follows[buffer], whether a transposed node does.
    """
    values = program.values.shape[0]
    for buffer in range(moved.shape[0]):
        moved[buffer] = follows[buffer] = False
    for k in range(graph.nodes.shape[0]):
        transposed[k] = False
        if graph.nodes.kind[k] != KERNEL:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                moved[graph.write_buffer[i]] = True
            continue
        op = graph.nodes.subject[k]
        if program.ops.op_class[op] != ELEMENTWISE or graph.nodes.written[k] < SMALL_BYTES:
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer, how = graph.reads.read_buffer[i], graph.reads.read_how[i]
            if not how & STREAMED:
                continue
            if moved[buffer] and how & TRANSPOSED:
                transposed[k] = True
            if buffer < values and follows[buffer]:
                transposed[k] = True
        if transposed[k]:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                follows[graph.write_buffer[i]] = True


@kernel
def copied_bytes(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, transposed: np.ndarray, copied: np.ndarray
) -> None:
    """Fills in bytes of the arguments that each transposed kernel reads in step: each is copied first."""
    for k in range(copied.shape[0]):
        copied[k] = 0.0
        if not transposed[k]:
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            is_argument = buffer < program.values.shape[0] and program.ops.is_argument[program.values.value_op[buffer]]
            if is_argument and graph.reads.read_how[i] & STREAMED:
                copied[k] += local.values.settled_bytes[buffer]


def read_beside(program: ProgramArrays) -> np.ndarray:
    """bool[outputs]: the output takes an argument's memory, and an op reads the argument that the output does not need.

    Such a reader, as a weight's use in the gradient of its layer's input, may run after the output is made. Outputs are
    looked at 64 at a time, each a bit; twice, since what a loop carries is made after it is read.
    """
    beside, needed = np.zeros(len(program.outputs), np.bool_), np.zeros(len(program.ops), np.uint64)
    _find_beside(program, needed, np.full(len(program.values), -1, np.int64), beside)
    return beside


@kernel
def _find_beside(program: ProgramArrays, needed: np.ndarray, output_of: np.ndarray, beside: np.ndarray) -> None:
    """Fills in `beside`, which begins with False.

    needed[op]         scratch: the outputs of the 64 at hand that need what the op computes
    output_of[value]   the output that takes over an argument's memory; -1, as they begin, for none
    """
    outputs, ops = program.outputs.shape[0], program.ops.shape[0]
    for i in range(outputs):
        if program.outputs.output_argument[i] >= 0:
            output_of[program.outputs.output_argument[i]] = i
    for first in range(0, outputs, 64):
        needed[:] = 0
        for i in range(first, min(first + 64, outputs)):
            needed[program.values.value_op[program.outputs.output_value[i]]] |= np.uint64(1) << np.uint64(i - first)
        for _ in range(2):
            for op in range(ops - 1, -1, -1):
                if not program.ops.is_argument[op]:
                    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
                        needed[program.values.value_op[program.uses.operands[use]]] |= needed[op]
        for op in range(ops):
            if program.ops.is_argument[op]:
                continue
            for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
                i = output_of[program.uses.operands[use]]
                if first <= i < first + 64 and needed[op] >> np.uint64(i - first) & np.uint64(1) == 0:
                    beside[i] = True


@kernel
def output_copies(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    beside: np.ndarray,
    plan_rows: np.ndarray,
    figures: np.ndarray,
    writer: np.ndarray,
    copied: np.ndarray,
    traffic: np.ndarray,
) -> None:
    """Fills in copied[output], whether its argument is copied, and traffic[node], bytes of the copies by collective.

    plan_rows[k]: the row of node k's plan in `figures`; a collective may leave its result in no row-major order, and
    the copy that this takes is then made in place. Scratch: writer[buffer], the collective that makes it, -1 for none.
    """
    for buffer in range(writer.shape[0]):
        writer[buffer] = -1
    for i in range(copied.shape[0]):
        copied[i] = False
    for k in range(graph.nodes.shape[0]):
        traffic[k] = 0.0
        if graph.nodes.kind[k] != KERNEL and graph.nodes.scope[k] == 0:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                writer[graph.write_buffer[i]] = k
    for i in range(program.outputs.shape[0]):
        use = program.outputs.output_use[i]
        buffer = local.uses.use_buffer[use] if use >= 0 else local.values.shows[program.outputs.output_value[i]]
        k = writer[buffer]
        if k < 0:
            continue
        if figures[OUT_OF_ORDER, plan_rows[k]] > 0:
            traffic[k] += READ_AND_WRITE * graph.nodes.written[k]
        elif beside[i]:
            copied[i] = True
            traffic[k] += 2 * READ_AND_WRITE * graph.nodes.written[k]
