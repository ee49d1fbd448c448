"""Copies that the TPU compiler makes of donated arguments: around updates in another layout, and for gathered outputs.

    %g = all_reduce(dot ...)     f32[f,d], rows of d
    %t = transpose %g            f32[d,f], but its memory is still rows of d
    %w' = %w - %t                in %t's layout: %w is copied into it, %w' waits for the end and is copied back

A transpose of what a matmul leaves is free, the matmul writes it either way; a collective in between fixes the layout.
Found with libtpu 0.0.51 on v3: such an update of four matrices took 16 copies and 1.2 GB where the same sum, taken
after the transpose, took none and 0.13 GB.

    %s = %w[part] - ...          the update of a part of %w, which is held whole and donated
    %w' = all_gather %s          no gather or permute writes into %w's memory: %w is copied at the start, %w' at the end

Of what a gather leaves in another layout, along an inner dim by shards that are not whole layout tiles, %w' alone is
copied, into order; reductions write in place. The same version, v3 and v5e, in 45 programs of one such update: whoever
else reads %w, and by shards of 4 to 4096 rows or columns. A mixture of experts whose two stacks of weights, 75 MB each,
were updated so took 0.21 GB more than with outputs in place, and T32 under Megatron and ZeRO-2 1.33 GB, its parameters.

On a v5e %w and %w' pass the chip beside other kernels where they are small enough for it, and the copies take no time:
of 48 MiB neither does, of 64 MiB and 96 MiB both; of six arrays of 8 MiB, or four of 16, one copy takes its time, of
three of 32 MiB four do, which are not counted. T32's embedding has 125 MiB, its other matrices up to 32.
"""

from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, STREAMED, TRANSPOSED, KernelGraph
from autopart.costmodel.compiled.links.redistribution_costs import AS_OUTPUT

READ_AND_WRITE = 2
"""Bytes that a copy moves for each byte."""

PASSING_SHARE = 0.375
"""An array of at most this share of the memory on the chip passes it on its way in HBM, beside other kernels."""

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


@kernel
def output_copies(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    plan_rows: np.ndarray,
    figures: np.ndarray,
    on_chip_bytes: float,
    writer: np.ndarray,
    copied: np.ndarray,
    traffic: np.ndarray,
) -> None:
    """Fills in copied[output], whether its argument is copied, and traffic[node], bytes of the copies by collective.

    on_chip_bytes: of the chip, if the compiler says what lies there, else 0.
    plan_rows[k]: the row of node k's plan in `figures`, which has the copies that are made where its result replaces an
    argument. Scratch: writer[buffer] of an output, the collective that makes it, -1 for none.
    """
    for i in range(program.outputs.shape[0]):
        writer[_output_buffer(program, local, i)], copied[i] = -1, False
    for k in range(graph.nodes.shape[0]):
        traffic[k] = 0.0
        if graph.nodes.kind[k] != KERNEL and graph.nodes.scope[k] == 0:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                writer[graph.write_buffer[i]] = k
    for i in range(program.outputs.shape[0]):
        k, argument = writer[_output_buffer(program, local, i)], program.outputs.output_argument[i]
        copies = figures[AS_OUTPUT, plan_rows[k]] if k >= 0 else 0.0
        if argument < 0 or copies == 0:
            continue
        copied[i] = copies == 2
        if graph.nodes.written[k] > PASSING_SHARE * on_chip_bytes:
            traffic[k] += copies * READ_AND_WRITE * graph.nodes.written[k]


@kernel
def _output_buffer(program: ProgramArrays, local: LocalArrays, output: int) -> int:
    use = program.outputs.output_use[output]
    return local.uses.use_buffer[use] if use >= 0 else local.values.shows[program.outputs.output_value[output]]
