"""The pass `banded_products`: products with a known matrix that is zero but for a band are sums of a few shifted rows.

    y[j] = sum over i of w[i, j] x[i]      bilinear upsampling by 2: w[i, j] is 0 but for i in j // 2 - 1 .. j // 2 + 1
    -> y[2h + p] = w0[h,p] x[h-1] + w1[h,p] x[h] + w2[h,p] x[h+1]

A tile of x then reads a border of its neighbours, where a product with the whole matrix left a sum of all of y; and the
work is that of the band. `a` rows of x make `b` rows of y where these are the smallest numbers of their ratio: a resize
up has a = 1, one down b = 1, and their gradients the other way round. The band is added up in f32 at least. What is not
finite in x reaches only the rows whose band it is in, where times zero it would make NaN of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.passes.known_numbers import weights
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

MOST_ROWS = 16
"""Shifted rows that are added up."""

LEAST_SHARE = 8
"""The band is narrow if the matrix has so many times its rows."""


@register_pass("banded_products")
@dataclass(frozen=True)
class BandedProducts(PatternPass):
    """Products of an array with a matrix of known numbers, along one dim."""

    roots = ("dot_general",)

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        numbers = spec.attributes["dot_dimension_numbers"]
        alone = not numbers["lhs_batching_dimensions"] and len(numbers["lhs_contracting_dimensions"]) == 1
        real = all(t.dtype.startswith(("f", "bf")) for t in (*spec.operands, *spec.results))
        return alone and real and any(len(t.shape) == 2 for t in spec.operands)

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        spec, numbers = at.spec(op), at.spec(op).attributes["dot_dimension_numbers"]
        summed = [numbers[f"{side}_contracting_dimensions"][0] for side in ("lhs", "rhs")]
        for matrix in (0, 1):
            known = weights(at, at.operands(op)[matrix]) if len(spec.operands[matrix].shape) == 2 else None
            if known is not None and (band := _band(known.T if summed[matrix] else known)) is not None:
                array, dim = at.operands(op)[1 - matrix], summed[1 - matrix]
                wide = "f64" if spec.results[0].dtype == "f64" else "f32"
                made = at.convert(_summed(at, at.convert(array, wide), dim, band), spec.results[0].dtype)
                rank = len(spec.operands[1 - matrix].shape)
                order = [d for d in range(rank) if d != dim]
                order = [dim, *order] if matrix == 0 else [*order, dim]
                return made if order == sorted(order) else at.transpose(made, order)
        return None


def _band(matrix: np.ndarray) -> tuple[int, np.ndarray] | None:
    """(first, w[rows, h, p]): output row h b + p is the sum over r of w[r, h, p] x[h a + first + r]; None for no
    band."""
    ins, outs = matrix.shape
    blocks = math.gcd(ins, outs)
    if ins < LEAST_SHARE or blocks == 1:
        return None
    a, b = ins // blocks, outs // blocks
    rows, columns = np.nonzero(matrix)
    if not len(rows):
        return None
    reach = rows - columns // b * a
    first, count = int(reach.min()), int(reach.max() - reach.min()) + 1
    if count > MOST_ROWS or count * LEAST_SHARE > ins:
        return None
    band = np.zeros((count, blocks, b), matrix.dtype)
    band[reach - first, columns // b, columns % b] = matrix[rows, columns]
    return first, band


def _summed(at: PatternRewriter, x: int, dim: int, found: tuple[int, np.ndarray]) -> int:
    """`x` with dim `dim` multiplied by the band."""
    (first, band), type_ = found, at.type_of(x)
    _, blocks, b = band.shape
    shape, a, none = type_.shape, type_.shape[dim] // blocks, [0] * len(type_.shape)
    wide = (*shape[:dim], blocks, b, *shape[dim + 1 :])
    dims = [d if d <= dim else d + 1 for d in range(len(shape))]
    parts = list[int]()
    for row, weight in enumerate(band):
        low = [-(first + row) if d == dim else 0 for d in range(len(shape))]
        moved = at.pad(x, at.constant(0, type_.dtype), low, [-n for n in low]) if any(low) else x
        limits = [n - a + 1 if d == dim else n for d, n in enumerate(shape)]
        steps = [a if d == dim else 1 for d in range(len(shape))]
        each = at.slice(moved, none, limits, steps) if a > 1 else moved
        held = at.broadcast(at.constant(weight, type_.dtype, (blocks, b)), wide, [dim, dim + 1])
        parts.append(at.binary("multiply", at.broadcast(each, wide, dims), held))
    return at.reshape(at.total(parts), (*shape[:dim], blocks * b, *shape[dim + 1 :]))
