"""Tile mappings of Fourier transforms: the dims that are not transformed.

    x[b,n] -> y[b,n]      b  (0) -> tile 0      n  (_): every result needs all of it

TPUs have no kernel for them. Their compiler makes products with matrices of roots of unity, in f32 by six passes:

    [b,256] . [256,256]                      one product for real and one for imaginary parts, three of complex numbers
    [b,1024] = [b,8,128]: . [8,8], . [128,128]      three for each factor, and copies into the layout of the next
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.batching import alike
from autopart.core.ops.passages import linear_in
from autopart.core.ops.rule import Example, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims, exchanged
from autopart.core.ops.traits import Opaque, Products, elements

_NEAR = 1e-4

_TILE = 128
"""Rows and columns of a tile of the matrix unit, which is filled up."""

_PASSES = 6
"""Products in bf16 for one in f32: libtpu 0.0.51 takes as many cycles on v5e, of 24 transforms."""

_LONGEST = 256
"""Longer transforms are factored if they are multiples of `_FACTOR`. So is one of 96, but none of 64, 100 or 128."""

_FACTOR = 32


def _fft(kind: str, types: str, length: str) -> Example:
    return op(
        "fft", types, f"fft_type = #stablehlo<fft_type {kind}>, fft_length = array<i64: {length}>", tolerance=_NEAR
    )


def _real(spec: OpSpec) -> bool:
    return not all(t.dtype.startswith("complex") for t in (spec.operands[0], spec.results[0]))


def _points(spec: OpSpec) -> float:
    return max(elements(spec.operands[0]), elements(spec.results[0]))


def _flop(spec: OpSpec) -> float:
    """5 n log2 n per transform of n complex numbers, half of it of n real ones: how FFTW counts."""
    each = 2.5 if _real(spec) else 5.0
    return each * _points(spec) * math.log2(max(1, math.prod(spec.attributes["fft_length"])))


def _by_products(spec: OpSpec) -> Products:
    """Only the last dim of a real transform is real: along the others are half as many numbers.

    What is factored is copied once, what is not half of that along the last dim, and twice where a real result is made
    of half of the complex numbers.
    """
    lengths, points, flop, copies = spec.attributes["fft_length"], _points(spec), 0.0, 0.0
    for dim, length in enumerate(lengths):
        is_last = dim == len(lengths) - 1
        half = 0.5 if _real(spec) and not is_last else 1.0
        reads_real = is_last and not spec.operands[0].dtype.startswith("complex")
        makes_real = is_last and not spec.results[0].dtype.startswith("complex")
        flop += half * points * _flop_of_each(length, reads_real)
        copies += 2.0 if makes_real else half if _is_factored(length) else 0.5 * is_last
    return Products(_PASSES * flop, copies)


def _is_factored(length: int) -> bool:
    return length % _FACTOR == 0 and (length > _LONGEST or bool(length & (length - 1)))


def _flop_of_each(length: int, reads_real: bool) -> float:
    """Flop for each number along one dim."""
    if _is_factored(length):
        factor = _TILE if length <= _TILE * _TILE else 2 * _TILE
        return 3 * 2 * _filled(length // factor) + 3 * 2 * factor
    return (2 if reads_real else 3) * 2 * _filled(length) * _filled(length) / max(1, length)


def _filled(length: int) -> int:
    return -(-length // _TILE) * _TILE


@rule(
    "fft",
    traits=Opaque(
        flop=_flop,
        by_products=_by_products,
        passes=linear_in(0),
        flop_reason="5 n log2 n; XLA counts 8 n, times the product of the dims' logarithms",
    ),
    batched=alike,
    examples=(
        _fft("FFT", "4x2x6xcomplex<f32> -> 4x2x6xcomplex<f32>", "6"),
        _fft("RFFT", "4x6xf32 -> 4x4xcomplex<f32>", "6"),
        _fft("IRFFT", "4x2x4xcomplex<f32> -> 4x2x6xf32", "2, 6"),
    ),
)
def fft(spec: OpSpec) -> Iterable[TileMapping]:
    """The dims that are not transformed."""
    return exchanged(spec, common_dims(spec, range(len(spec.results[0].shape) - len(spec.attributes["fft_length"]))))
