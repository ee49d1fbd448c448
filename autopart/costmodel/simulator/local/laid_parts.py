"""Parts that are laid beside each other inside a kernel: each is put in its place in every layout tile of the whole.

    %g = concatenate %q, %k, %v      f32[512,49,3,96] of three of 32 features, as gradients of heads come together
    %b = reduce %g                   27.5 cycles for 8 x 128 elements of %g
    %s = add (multiply %g, 2), 1     28.7

With libtpu 0.0.51 it takes 14.4 cycles for each tile and 4.7 more for each part, on v3 and v5e alike, whichever dim the
parts lie along: 9.3 along the lanes where more is left than a sum, and nothing where each fills whole rows of them. A
matrix product lays out what it reads for a cycle or three. Some of the 14.4 are of a tenth of the kernel's bytes.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays

ONCE, OF_PART = 17.0 / 1024, 4.5 / 1024
"""Numbers that the vector unit could put along a row each, for an element of the whole: once in a kernel, for the first
part, and for each that is put beside it."""


@kernel
def lay_parts(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Fills in what the vector unit could do meanwhile."""
    parts, result = program.ops.laid_parts[op], program.result_ptr[op]
    held.ops.laid_flop[op] = held.ops.laid_once[op] = 0.0
    if parts > 0:
        elements = held.values.native_bytes[result] / program.values.element_bytes[result]
        held.ops.laid_once[op] = lowered.spread_flop * ONCE * elements
        held.ops.laid_flop[op] = lowered.spread_flop * OF_PART * (parts - 1) * elements
