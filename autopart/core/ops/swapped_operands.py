"""Convolutions whose window has more places than their images: XLA swaps the two, and turns the new images around.

    %g = convolution %y, %dy     images of 7 x 7 by windows of 14 x 14: images of 14 x 14 by windows of 7 x 7

Places are counted without holes (`AlgebraicSimplifierVisitor::SwapConvOperands`).
"""

from __future__ import annotations

import math

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution


def swaps_operands(spec: OpSpec) -> bool:
    """True where the window of a convolution has more places than its images, and is not reversed."""
    if not isinstance(traits_of(spec), Convolution):
        return False
    numbers, (lhs, rhs) = spec.attributes["dimension_numbers"], spec.operands
    images = math.prod(lhs.shape[d] for d in numbers["input_spatial_dimensions"])
    window = math.prod(rhs.shape[d] for d in numbers["kernel_spatial_dimensions"])
    return window > images and not any(spec.attributes.get("window_reversal") or ())
