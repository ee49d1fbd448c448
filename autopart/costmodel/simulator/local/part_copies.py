"""What copies of images in parts take: kernels, and how often their bytes pass at HBM's rate (`few_images.py`).

    TURN                     an argument, into another order of dims
    PAD                      an image with the padding of all its parts
    BORDER, ODD_BORDER       parts of an even or an odd number of places, with borders
    STAY                     borders alone
    LEAVE, LEAVE_NARROW      whole images of parts, in words or in narrower elements
    SUM                      each operand of a gradient
    SHIFT, LONG_SHIFT        one operand for each place of a window; the same for those beyond `FEW_PLACES`
    FEW                      parts of few features, so that parts lie along the lanes: of patches and first convolutions
    FEW_SHIFT                the same for each place of a window of more than `FEW_PLACES`: of a ResNet's first
    MASK                     parts with zeros beyond the image: of ResNets
    RECUT, LONG_RECUT        parts that are cut again, on the chip or through memory, one byte as slowly as a word: of
                             segmentation nets
    SPREAD                   what is spread over the places of an image by groups of features, in words

Turning dims and shifting rows of tiles takes longer than reading and writing. Fitted on v5e, libtpu 0.0.51 (`python -m
experiments.few_images`), all but those that are of some nets on single convolutions.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays

TURN, PAD, BORDER, ODD_BORDER, STAY, LEAVE, LEAVE_NARROW, SUM, SHIFT, LONG_SHIFT = range(10)
FEW, FEW_SHIFT, MASK, RECUT, LONG_RECUT, SPREAD = range(10, 16)

KERNELS = (1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 3.5, 0.0, 0.0, 1.0, 0.0, 2.0, 3.0, 3.0, 2.0)

PASSES = (4.5, 5.3, 2.1, 4.2, 2.3, 3.9, 7.9, 10.5, 3.7, 5.3, 2.3, 12.0, 8.0, 4.5, 12.0, 2.0)

COPIED_BYTES = 2.0
"""Of an element that is copied: products of f32 round their operands to bf16 before they are cut."""

FEW_PLACES = 3
"""Copies shifted to so many places of a window are made at once."""

SPREAD_ROWS, SPREAD_FEATURES = 4.75, 1.75
"""How often what is spread passes with rows, and with features along the lanes: a broadcast takes three times its
bytes, a copy between both 1.75 times (a 3-d U-Net, DeepLab)."""


@kernel
def count_copy(held: LocalArrays, op: int, how: int, elements: float) -> None:
    """Counts a copy to an op."""
    held.padding.copies[op] += KERNELS[how]
    held.padding.copied_bytes[op] += PASSES[how] * COPIED_BYTES * elements
