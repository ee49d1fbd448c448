"""Products that a ReLU alone reads: what is kept for the backward pass is bits, and the rounded result.

    %y = dot %x %w          f32[16,512,2048]     not written, if a dim but the last two has 2 to 32 places on a device
    %r = maximum %y 0       bf16, 34 MB          both products that read it take it so
    %m = compare %y > 0     u16[512,2048]        2 MB: a word of bits for the 16 places; unpacked by a kernel of its own
    %d = select %m %g 0

Where a pool, or a product behind a reshape, reads %r the product leaves the bits and %y, of which another kernel writes
%r. Found with libtpu 0.0.51 on v5e: convolutions of 3 to 32 places along a dim of space, feed-forward layers of
transformers of 2 to 32 sequences a device; of 48 or 64 the f32 result is kept, as it is for SiLU and
between norms (`masked_products.py`).
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV
from autopart.costmodel.simulator.local.few_images import local_length

BIT_SHARE = 1 / 32
"""What is kept of an f32 of which another array is made: a bit."""

KEPT_SHARE = 0.5 + BIT_SHARE
"""What is kept of an f32 that is rounded: a bf16 and a bit."""

UNPACKED_BYTES = 5.0
"""Bytes of each element that take as long as to unpack its bit."""

FEWEST, MOST = 2, 32
"""Places along a dim that make a word."""

OFTEN_MOVED = 4
"""Of an array of so many dims the last but one lies outside its layout tiles where another is longer."""


@kernel
def makes_words(program: ProgramArrays, lowered: Lowered, value: int) -> bool:
    """True if a dim of a value that lies outside its layout tiles has so few places on a device that its bits make
    words."""
    rank, outer = np.int64(program.values.rank[value]), np.int64(program.values.outer[value])
    if program.ops.op_class[program.values.value_op[value]] != CONV or outer == 0:
        outer = (1 << max(0, rank - (2 if rank < OFTEN_MOVED else 1))) - 1
    for d in range(rank):
        if outer >> d & 1 and FEWEST <= local_length(program, lowered, value, lowered.native[value], d) <= MOST:
            return True
    return False
