"""Seconds of kernels whose bytes are counted (`kernel_seconds.py`): a roofline, and what a kernel takes more.

Where the vector unit is fed at HBM's rate (`Device.fed_at_hbm_rate`), a kernel takes more:

    reads on the chip   as long as from HBM, without matrix work
    a sum, a mask, a    as long again as if it also wrote, in f32, all that it walks through, or the result of its
    bf16 array          matrix product: only an f32 array that is left on the chip is free

A reduction whose kernel computes nothing else, but for widening what it reads, takes a time for each number on top: the
mean of a LayerNorm, the maximum of a softmax whose scores are written. So does an elementwise op of arrays by itself,
as weights that are rounded before a step, which takes as long on the chip as in HBM, and what fills an array.

What a kernel computes in f32 and leaves in bf16, since products alone read it, is a bf16 array, too: of 32,768 rows of
256 on a v5e, `(%g . %w') (%h > 0)` takes 58 us with all arrays on the chip, a product left in f32 23 us; a sum of
400 x 14 x 14 x 64 elements that a convolution reads takes 118,300 cycles, 18.9 for 8 x 128.

On a v5e, by libtpu 0.0.51, 4096 x 1024 f32 are 38,400 cycles of HBM. `3 x` takes 44,000 on the chip, `x y + 1` 82,500;
a sum of `3 x` 76,500, be x on the chip or in HBM, a sum of `x y + 1` 114,500, `x > 1` 77,300, `3 x` in bf16 78,700. A
v3, all in HBM, has the same ratios.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import (
    CARRIED_SHARE,
    F32_BYTES,
    NARROW_SHARE,
    LocalArrays,
    ProgramArrays,
    Records,
)
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, RESHAPED, STREAMED, TRANSPOSED, KernelGraph
from autopart.costmodel.compiled.roofline import roofline_s
from autopart.costmodel.hardware.devices import ALONE_S, FED, HBM, LAUNCH, ON_CHIP


@kernel
def kernel_rooflines(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, leader: np.ndarray, nodes: Records, row: np.ndarray
) -> None:
    """Fills in the seconds of kernels that join no other."""
    for k in range(nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL and leader[k] == k:
            dtype, is_conv, fed_bytes = nodes.matrix_dtype[k], nodes.is_conv[k], nodes.hbm[k]
            op = graph.nodes.subject[k]
            numbers = 0.0
            if nodes.work[k] == 0 and row[ALONE_S] > 0:
                numbers = _computed_alone(program, local, graph, k, nodes.vector[k], nodes.hbm[k], row[ON_CHIP])
            if row[FED] > 0 and numbers > 0 and program.ops.op_class[op] == ELEMENTWISE:
                narrow = program.values.element_bytes[program.result_ptr[op]] < F32_BYTES
                fed_bytes = nodes.read[k] + (1.0 + NARROW_SHARE if narrow else 1.0) * F32_BYTES * numbers
            elif row[FED] > 0:
                alone = nodes.work[k] == 0 and nodes.walked[k] > 0
                walked = nodes.walked[k] if alone else nodes.product[k]
                fed_bytes += max(0.0, walked - nodes.left_f32[k]) + (nodes.on_chip[k] if alone else 0.0)
            more = local.ops.registers[op]
            work, vector, most = nodes.work[k], more * nodes.vector[k], more * nodes.largest[k]
            nodes.seconds[k] = roofline_s(work, dtype, is_conv, vector, more * fed_bytes, most, row)
            nodes.seconds[k] += row[ALONE_S] * numbers
    for k in range(nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL:
            op = graph.nodes.subject[k]
            if local.ops.copied_bytes[op] > 0:
                nodes.seconds[leader[k]] += row[LAUNCH] + local.ops.copied_bytes[op] / row[HBM]


@kernel
def _computed_alone(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    k: int,
    vector_flop: float,
    on_hbm: float,
    on_chip_bytes: float,
) -> float:
    """Numbers that a kernel with so much vector work walks through if it is one elementwise
    op of arrays, or fills an array in bf16, or in HBM; 0 for any other, as an op of an array and a constant, or behind
    a reshape."""
    op = graph.nodes.subject[k]
    if program.result_ptr[op + 1] - program.result_ptr[op] != 1:
        return 0.0
    if vector_flop > local.ops.vector_flop[op]:
        return 0.0
    if program.ops.op_class[op] != ELEMENTWISE:
        return 0.0
    if vector_flop == 0.0:
        narrow = program.values.element_bytes[program.result_ptr[op]] < F32_BYTES
        leaves = on_hbm > 0 or graph.nodes.written[k] > CARRIED_SHARE * on_chip_bytes
        fills = graph.read_ptr[k] == graph.read_ptr[k + 1] and (narrow or leaves)
        return in_f32(program, local, program.result_ptr[op]) / F32_BYTES if fills else 0.0
    given = 0.0
    if graph.read_ptr[k + 1] - graph.read_ptr[k] != program.ops.operands[op]:
        return 0.0
    for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
        if graph.reads.read_how[i] & (STREAMED | TRANSPOSED | RESHAPED) != STREAMED:
            return 0.0
        given = max(given, graph.reads.read_bytes[i] / element_bytes(program, local, graph.reads.read_buffer[i]))
    return min(given, in_f32(program, local, program.result_ptr[op]) / F32_BYTES)


@kernel
def element_bytes(program: ProgramArrays, local: LocalArrays, buffer: int) -> float:
    """Bytes of an element of a buffer, be it what was moved or not."""
    values = program.values.shape[0]
    return program.values.element_bytes[buffer if buffer < values else local.moves.moved_value[buffer - values]]


@kernel
def in_f32(program: ProgramArrays, local: LocalArrays, value: int) -> float:
    """Bytes that a result takes in f32, padded as it is."""
    return local.values.native_bytes[value] * F32_BYTES / program.values.element_bytes[value]
