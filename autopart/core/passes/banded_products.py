"""The pass `banded_products`: products with a known matrix that is zero but for a band are sums of a few shifted rows.

    y[j] = sum over i of w[i, j] x[i]      bilinear upsampling by 2: w[i, j] is 0 but for i in j // 2 - 1 .. j // 2 + 1
    -> y[2h + p] = w0[h,p] x[h-1] + w1[h,p] x[h] + w2[h,p] x[h+1]
    downsampling by 2: x in blocks of 2 rows, y[h] = sum over p of w0[h,p] x[2h-2+p] + w1[h,p] x[2h+p] + ..

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

MOST_BLOCKS = 16
"""Blocks of rows, each moved as a whole, that are added up."""

LEAST_SHARE = 64
"""The band is narrow if the matrix has so many times the rows of its blocks; a matrix unit does shorter ones as fast,
by estimate for v5e."""


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
    """(first, w[blocks, h, p, r]): output row h b + p is the sum over k and r of w[k, h, p, r] x[(h + first + k) a +
    r]; None for no band."""
    ins, outs = matrix.shape
    count = math.gcd(ins, outs)
    rows, columns = np.nonzero(matrix)
    if count == 1 or not len(rows):
        return None
    a, b = ins // count, outs // count
    block, row = np.divmod(rows - columns // b * a, a)
    first, reach = int(block.min()), int(block.max() - block.min()) + 1
    if reach > MOST_BLOCKS or reach * a * LEAST_SHARE > ins:
        return None
    band = np.zeros((reach, count, b, a), matrix.dtype)
    band[block - first, columns // b, columns % b, row] = matrix[rows, columns]
    return first, band


def _summed(at: PatternRewriter, x: int, dim: int, found: tuple[int, np.ndarray]) -> int:
    """`x` with dim `dim` multiplied by the band."""
    (first, band), type_ = found, at.type_of(x)
    _, count, b, a = band.shape
    shape, zero = type_.shape, at.constant(0, type_.dtype)
    inner = [n for n in (b, a) if n > 1]
    wide = (*shape[:dim], count, *inner, *shape[dim + 1 :])
    blocks = (*shape[:dim], count, *([a] if a > 1 else []), *shape[dim + 1 :])
    kept = [d for d in range(len(wide)) if b == 1 or d != dim + 1]
    parts = list[int]()
    for k, weight in enumerate(band, first):
        low = [-k * a if d == dim else 0 for d in range(len(shape))]
        moved = at.reshape(at.pad(x, zero, low, [-n for n in low]) if k else x, blocks)
        held = at.constant(weight.reshape(count, *inner), type_.dtype, (count, *inner))
        held = at.broadcast(held, wide, range(dim, dim + 1 + len(inner)))
        parts.append(at.binary("multiply", at.broadcast(moved, wide, kept) if b > 1 else moved, held))
    made = at.total(parts)
    if a > 1:
        made = at.combine("add", made, zero, [dim + len(inner)])
    return at.reshape(made, (*shape[:dim], count * b, *shape[dim + 1 :]))
