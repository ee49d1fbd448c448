"""Images that become rows of a matrix product, or are made of them: written, and copied where features fill the lanes.

    %r = maximum %y 0         bf16[64,8,8,256] of what a convolution left: tiles of 64 images by 256 features; written
    %f = reshape %r           bf16[64,16384]: a copy, 7.2 us, as tiles of the 8 places in a row by 256 features
    %p = dot_general %f, %w

    %q = dot_general %g, %w   bf16[64,16384]
    %i = reshape %q           bf16[64,8,8,256]: copied back for a convolution, or in bf16; in f32 that takes no time

Images along the lanes need no copy, but %q takes two thirds of it to leave them so. Found with libtpu 0.0.51 on v5e, in
fifteen programs of 32 to 512 images of 4 to 40 places and 32 to 512 features: 10.5 to 13.5 cycles for a layout tile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.simulator.facts.behind_reshapes import is_view, runs
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, MATMUL

ROUNDED_BYTES = 2
"""Of an element whose copy takes time."""


class FlattenedImages(NamedTuple):
    """What products are given, or make, of images.

    copied    int32[ops]: the images that are copied in front of a product, or behind what makes them; -1 for none
    written   bool[values]
    """

    copied: np.ndarray
    written: np.ndarray


def flattened_images(program: Program, op_class: np.ndarray, outer: np.ndarray) -> FlattenedImages:
    """Those of a program.

    op_class   of each op
    outer      int[values]: a bit for each dim of space of images
    """
    found = FlattenedImages(np.full(program.op_count, -1, np.int32), np.zeros(program.value_count, np.bool_))
    views = np.array([is_view(spec) for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(views).tolist():
        given, made = int(program.operands[program.operand_ptr[op]]), int(program.result_ptr[op])
        if _is_flat(program, op, given, 0, outer):
            products = [by for by in program.readers_of(made) if op_class[by] == MATMUL]
            if products:
                found.copied[products[0]], found.written[given] = given, True
        elif _is_flat(program, op, made, 1, outer):
            maker, by = int(program.value_op[given]), program.readers_of(made)
            rounded = program.element_bytes[made] == ROUNDED_BYTES or all(op_class[b] == CONV for b in by)
            if op_class[maker] in (MATMUL, ELEMENTWISE) and rounded and by:
                found.copied[maker] = made
    return found


def _is_flat(program: Program, op: int, image: int, side: int, outer: np.ndarray) -> bool:
    """True for a view in which dims of space and features of an image on one side are one dim on the other."""
    last = int(program.value_rank[image]) - 1
    return bool(outer[image] > 0) and any(
        run[-1] == last and any(outer[image] >> d & 1 for d in run) for run in runs(program.spec(op), side)
    )
