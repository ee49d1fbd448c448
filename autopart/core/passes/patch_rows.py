"""The pass `patch_rows`: where images of few features are read in patches, a row of a patch becomes features.

    convolution %x, %w, stride 16 x 16         f32[8,256,256,3], f32[16,16,3,768]
    %r = reshape %x                            f32[8,256,16,48]
    %v = reshape %w                            f32[16,1,48,768]
    convolution %r, %v, stride 16 x 1

A matrix unit is nearly empty with 3 features. Along the last dim of space windows lie side by side, so what is in a
window there can lie side by side with the features. The same is done in the gradient of %w, which reads the same %r.
With dims in another order there is a transpose in between.

By libtpu 0.0.51 for v3 and v5e, f32 and bf16, both convolutions together then take 0.5 to 0.8 of the seconds, where
there are fewer than 8 features before and more than 16 after. With 16 and more before they would take up to twice as
long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rules.convolution import windows_of
from autopart.core.ops.traits import FEW_FEATURES
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

FEW_AFTER = 16
"""With up to so many a matrix unit is as empty as with 3: with 12 convolutions take 0.9 to 1.1 of the seconds."""


class _Fold(NamedTuple):
    """Dim `dim` of an array is cut into pieces of `length`, whose elements go before those of dim `into`."""

    dim: int
    into: int
    length: int

    def cut(self, whole: TensorType) -> TensorType:
        """The type with the pieces in a dim, and what is in them in the next one."""
        shape = list(whole.shape)
        shape[self.dim : self.dim + 1] = [shape[self.dim] // self.length, self.length]
        return TensorType(tuple(shape), whole.dtype)

    def order(self, whole: TensorType) -> list[int]:
        """The dims of what is cut, each piece's elements before `into`."""
        dims, inside = list(range(len(whole.shape) + 1)), self.dim + 1
        dims.remove(inside)
        dims.insert(dims.index(self.into + (self.into > self.dim)), inside)
        return dims

    def moved(self, whole: TensorType) -> TensorType:
        """The type of what is cut and in that order."""
        shape = self.cut(whole).shape
        return TensorType(tuple(shape[d] for d in self.order(whole)), whole.dtype)

    def folded(self, whole: TensorType) -> TensorType:
        """The type in the end."""
        shape = list(whole.shape)
        shape[self.dim] //= self.length
        shape[self.into] *= self.length
        return TensorType(tuple(shape), whole.dtype)


class _Patches(NamedTuple):
    """A convolution that reads patches: what is folded of its images and of its kernel, or of the gradient that it is.

    apart    the attribute that says how far patches are apart, along each dim of space
    space    which of these is folded
    """

    images: _Fold
    kernel: _Fold
    of_kernel: bool
    apart: str
    space: int


@register_pass("patch_rows")
@dataclass(frozen=True)
class PatchRows(PatternPass):
    """Rows of patches become features, where there are few, in convolutions and the gradients of their kernels."""

    roots = ("convolution",)

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return _patches(spec) is not None

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        spec, (images, other), found = at.spec(op), at.operands(op), _patches(at.spec(op))
        if found is None:
            return None
        result, apart = spec.results[0], list(spec.attributes[found.apart])
        apart[found.space] = 1
        images = at.once((images, at.place.scope, found.images), lambda: _folded(at, images, found.images))
        if not found.of_kernel:
            return at.again(op, [images, _folded(at, other, found.kernel)], **{found.apart: apart})[0]
        [made] = at.again(op, [images, other], [found.kernel.folded(result)], **{found.apart: apart})
        order = found.kernel.order(result)
        if order != sorted(order):
            made = at.transpose(at.reshape(made, found.kernel.moved(result).shape), np.argsort(order).tolist())
        return at.reshape(made, result.shape)


def _patches(spec: OpSpec) -> _Patches | None:
    """How a convolution reads patches, if it does and folding them pays."""
    numbers, space = spec.attributes["dimension_numbers"], len(spec.operands[0].shape) - 3
    if space < 0 or spec.attributes["feature_group_count"] != 1 or spec.attributes["batch_group_count"] != 1:
        return None
    window, dim = windows_of(spec)[space], numbers["input_spatial_dimensions"][space]
    side_by_side = window.window_dilation == 1 and window.window == window.stride and not window.reversed
    if window.tiles and side_by_side:
        images = _Fold(dim, numbers["input_feature_dimension"], window.stride)
        kernel = numbers["kernel_spatial_dimensions"][space], numbers["kernel_input_feature_dimension"]
        found = _Patches(images, _Fold(*kernel, window.stride), False, "window_strides", space)
    elif window.covers and window.out == window.window_dilation:
        images = _Fold(dim, numbers["input_batch_dimension"], window.out)
        kernel = numbers["output_spatial_dimensions"][space], numbers["output_batch_dimension"]
        found = _Patches(images, _Fold(*kernel, window.out), True, "rhs_dilation", space)
    else:
        return None
    features = spec.operands[0].shape[images.into]
    return found if features < FEW_FEATURES and features * images.length > FEW_AFTER else None


def _folded(at: PatternRewriter, value: int, fold: _Fold) -> int:
    whole = at.type_of(value)
    order = fold.order(whole)
    if order != sorted(order):
        value = at.transpose(at.reshape(value, fold.cut(whole).shape), order)
    return at.reshape(value, fold.folded(whole).shape)
