"""Updates that the TPU compiler makes in another layout than the parameter's, with copies before and after.

    %g = all_reduce(dot ...)     f32[f,d], rows of d
    %t = transpose %g            f32[d,f], but its memory is still rows of d
    %w' = %w - %t                in %t's layout: %w is copied into it, %w' waits for the end and is copied back

A transpose of what a matmul leaves is free, the matmul writes it either way; a collective in between fixes the layout.
Found with libtpu 0.0.51 on v3: such an update of four matrices took 16 copies and 1.2 GB where the same sum, taken
after the transpose, took none and 0.13 GB.
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import allocating_kernel
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.simulator.kernel_graph import KERNEL, STREAMED, TRANSPOSED, KernelGraph
from autopart.costmodel.simulator.op_classes import ELEMENTWISE

SMALL_BYTES = 2.0**20
"""Below this the compiler's copies are not worth counting."""


@allocating_kernel
def transposed_nodes(program: ProgramArrays, local: LocalArrays, graph: KernelGraph) -> np.ndarray:
    """bool[nodes]: elementwise kernels that read a collective's result transposed, or another such kernel's result."""
    nodes, values = graph.nodes.shape[0], program.values.shape[0]
    transposed, moved, follows = (
        np.zeros(nodes, np.bool_),
        np.zeros(local.home.shape[0], np.bool_),
        np.zeros(local.home.shape[0], np.bool_),
    )
    for k in range(nodes):
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
    return transposed


@allocating_kernel
def copied_bytes(program: ProgramArrays, local: LocalArrays, graph: KernelGraph, transposed: np.ndarray) -> np.ndarray:
    """float64[nodes]: bytes of the arguments that a transposed kernel reads in step: each is copied first."""
    copied = np.zeros(graph.nodes.shape[0])
    for k in range(copied.shape[0]):
        if not transposed[k]:
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            is_argument = buffer < program.values.shape[0] and program.ops.is_argument[program.values.value_op[buffer]]
            if is_argument and graph.reads.read_how[i] & STREAMED:
                copied[k] += local.values.settled_bytes[buffer]
    return copied
