"""The pass `folded_padding`: padding goes into the op that reads it, and what is sliced and padded becomes one pad.

    %p = pad %x, 0 by 3 before          [.., 16384, ..] -> [.., 16387, ..]
    convolution %p, %w, no padding  ->  convolution %x, %w, 3 before

    slice (pad %x by 1 and 1) [2:]  ->  pad %x by -1 and 1                         a stencil's neighbour, a shift
    slice (slice %x [1:]) [::2]     ->  slice %x [1::2]                            the gradient of what is interleaved
    pad (pad %x by 0 and 1) by -1   ->  pad %x by -1 and 1                         its gradient
    pad %y by -3 and 0, of the convolution that leaves %y  ->  a convolution that pads 3 less before

What is in between is as long as no axis divides, so every tile would be gathered for it; compilers fold it too. It is
folded where all its readers take it so, and no tag names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rules.factors import reduction_codes
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.pads import SIDES, sides_of
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


class _Folded(NamedTuple):
    """An op that reads what the op before it read.

    operands    where they stand: (0, k) is operand k of the op before, (1, k) of the reader
    attributes  those that differ from the reader's
    like        whose kind it has: 0 of the op before, 1 of the reader; None: it is a pad
    """

    operands: tuple[tuple[int, int], ...]
    attributes: dict[str, Any]
    like: int | None = 1


_READERS = {
    "convolution": ("slice", "pad"),
    "slice": ("slice", "pad"),
    "pad": ("slice", "pad", "convolution", "reduce_window"),
}
"""What may be folded, and into what."""


@register_pass("folded_padding")
@dataclass(frozen=True)
class FoldedPadding(PatternPass):
    """Pads and slices go into convolutions, windows, pads and slices beside them; the root is what goes into them."""

    roots = tuple(_READERS)

    def rewrite(self, at: PatternRewriter, op: int) -> None:
        """See `PatternPass.rewrite`."""
        kind, [value] = at.spec(op).kind, at.rewriting.results(op)
        readers = at.only_readers(value, *_READERS[kind])
        if kind == "convolution" and len(readers) != 1:
            return
        found = {reader: _folded(at, op, reader) for reader in readers}
        if None in found.values():
            return
        for reader, how in found.items():
            if how is not None:
                at.place = at.place_of(reader)
                operands = [at.operands((op, reader)[which])[k] for which, k in how.operands]
                if how.like is None:
                    array, fill = operands
                    made = at.pad(array, fill, *(how.attributes[side] for side in SIDES[:2]))
                else:
                    results = at.spec(reader).results
                    [made] = at.again((op, reader)[how.like], operands, results, **how.attributes)
                at.replace(reader, made)


def _folded(at: PatternRewriter, op: int, reader: int) -> _Folded | None:
    """What the reader of a pad, a slice or a convolution becomes, if it can do without."""
    inner, outer = at.spec(op), at.spec(reader)
    if inner.kind == "convolution":
        return _cropped(inner, outer)
    fills = [at.splat(at.operands(one)[1]) if at.spec(one).kind == "pad" else None for one in (op, reader)]
    if outer.kind in ("slice", "pad"):
        return _sliced_slice(inner, outer) if inner.kind == outer.kind == "slice" else _one_pad(inner, outer, fills)
    if inner.kind != "pad" or fills[0] is None:
        return None
    if outer.kind == "convolution":
        space = outer.attributes["dimension_numbers"]["input_spatial_dimensions"]
        return _with_padding(inner, outer, space, "lhs_dilation") if fills[0] == 0 else None
    codes, start = reduction_codes(outer.region, outer.results), at.splat(at.operands(reader)[1])
    if codes is None or len(outer.results) != 1 or start is None:
        return None
    if not fills[0] == start == identity(codes[0], outer.results[0].dtype):
        return None
    return _with_padding(inner, outer, range(len(outer.operands[0].shape)), "base_dilations")


def _with_padding(pad: OpSpec, outer: OpSpec, dims: Sequence[int], dilated: str) -> _Folded | None:
    """The reader with what is padded in its own padding; None if other dims than its windows' are padded."""
    low, high = pad.attributes["edge_padding_low"], pad.attributes["edge_padding_high"]
    interior = pad.attributes["interior_padding"]
    if any(low[d] or high[d] or interior[d] for d in range(len(low)) if d not in dims):
        return None
    own = outer.attributes.get("padding") or ((0, 0),) * len(dims)
    steps = outer.attributes.get(dilated) or (1,) * len(dims)
    if any(interior[d] and step > 1 for d, step in zip(dims, steps, strict=True)):
        return None
    padding = tuple(
        (before + low[d] * step, after + high[d] * step)
        for d, step, (before, after) in zip(dims, steps, own, strict=True)
    )
    attributes: dict[str, Any] = {"padding": padding}
    if any(interior):
        attributes[dilated] = tuple(step * (interior[d] + 1) for d, step in zip(dims, steps, strict=True))
    return _Folded(((0, 0), (1, 1)), attributes)


def _cropped(convolution: OpSpec, outer: OpSpec) -> _Folded | None:
    """A convolution that leaves what its reader, a slice or a pad that only cuts, takes of it."""
    low, high, between = sides_of(outer)
    space = convolution.attributes["dimension_numbers"]["output_spatial_dimensions"]
    others = [d for d in range(len(low)) if d not in space]
    if any(between) or max(*low, *high) > 0 or any(low[d] or high[d] for d in others):
        return None
    own = convolution.attributes.get("padding") or ((0, 0),) * len(space)
    strides = convolution.attributes.get("window_strides") or (1,) * len(space)
    padding = tuple(
        (before + low[d] * stride, after + high[d] * stride)
        for d, stride, (before, after) in zip(space, strides, own, strict=True)
    )
    return _Folded(((0, 0), (0, 1)), {"padding": padding}, like=0)


def _one_pad(inner: OpSpec, outer: OpSpec, fills: list[np.generic | None]) -> _Folded | None:
    """One pad of two, or of a pad and a slice: nothing is cut off and filled up again, and one thing fills it."""
    (*first, holes), (*second, more), shape = sides_of(inner), sides_of(outer), inner.operands[0].shape
    grows = [max(n for side in sides for n in side) > 0 for sides in (first, second)]
    both = [list(zip(a, b, strict=True)) for a, b in zip(first, second, strict=True)]
    if any(holes) or any(more) or any(a < 0 < b for side in both for a, b in side):
        return None
    if all(grows) and (fills[0] is None or fills[0] != fills[1]):
        return None
    low, high = ([a + b for a, b in side] for side in both)
    if any(min(a, 0) + min(b, 0) <= -n for a, b, n in zip(low, high, shape, strict=True)):
        return None
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": [0] * len(low)}
    fill = 0 if outer.kind == "slice" or (inner.kind == "pad" and grows[0]) else 1
    return _Folded(((0, 0), (fill, 1)), attributes, like=None)


def _sliced_slice(inner: OpSpec, outer: OpSpec) -> _Folded:
    """One slice of two."""
    names = ("start_indices", "limit_indices", "strides")
    both = [*(inner.attributes[name] for name in names), *(outer.attributes[name] for name in names)]
    ends = [
        (a + start * step, a + (limit - 1) * step + 1, step * stride)
        for a, _, step, start, limit, stride in zip(*both, strict=True)
    ]
    return _Folded(((0, 0),), dict(zip(names, map(list, zip(*ends, strict=True)), strict=True)))
