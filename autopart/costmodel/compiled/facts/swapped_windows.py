"""Convolutions that XLA swaps (`core/ops/swapped_operands.py`): it writes the new images reversed.

    %g = convolution %y, %dy     f32[400,7,7,64] by windows of 14 x 14, as a gradient of a gradient has them
    %r = reverse %dy             bf16[400,14,14,64], written: 111 us on a v5e, 5.7 passes through HBM
    %g = convolution %r, %y      windows of 7 x 7, read backwards, which costs nothing

Where features lie along the lanes, the kernel that writes %dy reverses it. A window that is reversed already is read
as it is, and nothing is written; but XLA splits groups before it looks, so that of a convolution in groups both
reverses are written. Found with libtpu 0.0.51 on v5e and v3, in 12 programs of 32 to 400 images and in learning to
learn, which has 14 such windows.
"""

from __future__ import annotations

import math

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.swapped_operands import swaps_operands
from autopart.core.ops.traits import Convolution, Sides


def spreads_less(spec: OpSpec, sides: Sides) -> bool:
    """True for a convolution that is swapped of images with holes between their places: none of the holes is there any
    more, but all places of the result meet all of the images."""
    return sides.apart > 1 and swaps_operands(spec)


def swapped_work(spec: OpSpec) -> float:
    """Multiply-adds done over those counted of a convolution that is swapped so.

    An image of 4 x 4 that windows of 8 x 8 spread to 32 x 32 takes 16 for one that counts.
    """
    traits, numbers = traits_of(spec), spec.attributes["dimension_numbers"]
    assert isinstance(traits, Convolution)
    (lhs, rhs), (out,) = spec.operands, spec.results
    places = math.prod(lhs.shape[d] for d in numbers["input_spatial_dimensions"])
    left = math.prod(out.shape[d] for d in numbers["output_spatial_dimensions"])
    features = out.shape[numbers["output_feature_dimension"]] * rhs.shape[numbers["kernel_input_feature_dimension"]]
    if not traits.flop(spec):  # nothing to convolve
        return 1.0
    done = 2.0 * places * left * features * out.shape[numbers["output_batch_dimension"]]
    return done / traits.flop(spec)
