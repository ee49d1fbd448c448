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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rules.convolution import windows_of
from autopart.core.ops.traits import FEW_FEATURES
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, attributes_of, location_of, mlir_type, put_in
from autopart.core.program import Program

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
class PatchRows(Pass):
    """Rows of patches become features, where there are few, in convolutions and the gradients of their kernels."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        patches = [_patches(spec) if spec.kind == "convolution" else None for spec in program.specs]
        if program.source is None or not any(patches):
            return program
        rewriting, images = Rewriting(program), dict[tuple[int, int, _Fold], int]()
        for op in np.flatnonzero(np.array([p is not None for p in patches])[program.op_spec]).tolist():
            found = patches[program.op_spec[op]]
            assert found is not None
            _rewrite(rewriting, op, found, images)
        return rewriting.program()


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


def _rewrite(rewriting: Rewriting, op: int, found: _Patches, images: dict[tuple[int, int, _Fold], int]) -> None:
    """Puts in the convolution of what is folded; `images` holds what is folded already, by value, scope and fold."""
    program, spec = rewriting.before, rewriting.before.spec(op)
    place, (value, other) = Place(int(program.op_scope[op]), op, op), program.operands_of(op).tolist()
    (image_type, other_type), result = spec.operands, spec.results[0]
    key = (value, place.scope, found.images)
    if key not in images:
        images[key] = _fold(rewriting, value, image_type, found.images, place)
    if found.of_kernel:
        types = (found.images.folded(image_type), other_type, found.kernel.folded(result))
        made = _convolution(rewriting, found, (images[key], other), types, place)
        made = _unfold(rewriting, made, result, found.kernel, place)
    else:
        kernel = _fold(rewriting, other, other_type, found.kernel, place)
        types = (found.images.folded(image_type), found.kernel.folded(other_type), result)
        made = _convolution(rewriting, found, (images[key], kernel), types, place)
    rewriting.replace(int(program.result_ptr[op]), made)


def _fold(rewriting: Rewriting, value: int, whole: TensorType, fold: _Fold, place: Place) -> int:
    types, order = (whole, fold.cut(whole), fold.moved(whole), fold.folded(whole)), fold.order(whole)
    return _moved(rewriting, value, types, order, place)


def _unfold(rewriting: Rewriting, value: int, whole: TensorType, fold: _Fold, place: Place) -> int:
    types, order = (fold.folded(whole), fold.moved(whole), fold.cut(whole), whole), np.argsort(fold.order(whole))
    return _moved(rewriting, value, types, order.tolist(), place)


def _moved(rewriting: Rewriting, value: int, types: tuple[TensorType, ...], order: Sequence[int], place: Place) -> int:
    """A value reshaped, transposed and reshaped, or reshaped alone; `types` are its own and those of each step."""
    given, cut, turned, left = map(mlir_type, types)
    line = location_of(rewriting, place.like)
    if list(order) == sorted(order):
        steps = f"%d = stablehlo.reshape %a : ({given}) -> {left} {line}"
    else:
        steps = f"""%b = stablehlo.reshape %a : ({given}) -> {cut} {line}
        %c = stablehlo.transpose %b, dims = {list(order)} : ({cut}) -> {turned} {line}
        %d = stablehlo.reshape %c : ({turned}) -> {left} {line}"""
    text = f"""func.func @main(%a: {given}) -> {left} {{
        {steps}
        return %d : {left} {line}
    }}"""
    [made] = put_in(rewriting, text, [value], place)
    return made


def _convolution(
    rewriting: Rewriting, found: _Patches, operands: Sequence[int], types: tuple[TensorType, ...], place: Place
) -> int:
    """The convolution of types (images, kernel, result), in which patches lie side by side along the folded dim."""
    apart = list(rewriting.before.spec(place.like).attributes[found.apart])
    apart[found.space] = 1
    how = attributes_of(rewriting, place.like) | {found.apart: f"array<i64: {', '.join(map(str, apart))}>"}
    attributes = ", ".join(f"{name} = {attribute}" for name, attribute in how.items())
    (images, kernel, result), line = map(mlir_type, types), location_of(rewriting, place.like)
    text = f"""func.func @main(%a: {images}, %b: {kernel}) -> {result} {{
        %c = "stablehlo.convolution"(%a, %b) {{{attributes}}} : ({images}, {kernel}) -> {result} {line}
        return %c : {result} {line}
    }}"""
    [made] = put_in(rewriting, text, operands, place)
    return made
