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

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rules.factors import reduction_codes
from autopart.core.ops.rules.reduce import identity
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
                    made = at.pad(array, fill, *(how.attributes[side] for side in _SIDES))
                else:
                    results = at.spec(reader).results
                    [made] = at.again((op, reader)[how.like], operands, results, **how.attributes)
                at.replace(reader, made)


def _folded(at: PatternRewriter, op: int, reader: int) -> _Folded | None:
    """What the reader of a pad, a slice or a convolution becomes, if it can do without."""
    inner, outer = at.spec(op), at.spec(reader)
    if inner.kind == "convolution":
        return _cropped(inner, outer)
    if inner.kind == "slice":
        return _padded_slice(inner, outer) if outer.kind == "pad" else _sliced_slice(inner, outer)
    fill = at.splat(at.operands(op)[1])
    match outer.kind:
        case "slice":
            return _sliced_pad(inner, outer)
        case "pad":
            return _padded_pad(inner, outer, fill, at.splat(at.operands(reader)[1]))
        case "convolution" if fill is not None and fill == 0:
            space = outer.attributes["dimension_numbers"]["input_spatial_dimensions"]
            return _with_padding(inner, outer, space, "lhs_dilation")
        case "reduce_window" if fill is not None and len(outer.results) == 1:
            codes, start = reduction_codes(outer.region, outer.results), at.splat(at.operands(reader)[1])
            if codes is None or start is None or not fill == start == identity(codes[0], outer.results[0].dtype):
                return None
            return _with_padding(inner, outer, range(len(outer.operands[0].shape)), "base_dilations")
        case _:
            return None


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
    shape = convolution.results[0].shape
    if outer.kind == "slice" and set(outer.attributes["strides"]) == {1}:
        ends = zip(shape, outer.attributes["limit_indices"], strict=True)
        before, after = outer.attributes["start_indices"], [n - limit for n, limit in ends]
    elif outer.kind == "pad" and not any(outer.attributes["interior_padding"]):
        before, after = ([-n for n in outer.attributes[f"edge_padding_{end}"]] for end in ("low", "high"))
    else:
        return None
    space = convolution.attributes["dimension_numbers"]["output_spatial_dimensions"]
    if min(*before, *after) < 0 or any(before[d] or after[d] for d in range(len(shape)) if d not in space):
        return None
    own = convolution.attributes.get("padding") or ((0, 0),) * len(space)
    strides = convolution.attributes.get("window_strides") or (1,) * len(space)
    padding = tuple(
        (low - before[d] * stride, high - after[d] * stride)
        for d, stride, (low, high) in zip(space, strides, own, strict=True)
    )
    return _Folded(((0, 0), (0, 1)), {"padding": padding}, like=0)


def _sliced_pad(pad: OpSpec, outer: OpSpec) -> _Folded | None:
    if set(outer.attributes["strides"]) != {1} or any(pad.attributes["interior_padding"]):
        return None
    starts, limits = outer.attributes["start_indices"], outer.attributes["limit_indices"]
    low = [p - s for p, s in zip(pad.attributes["edge_padding_low"], starts, strict=True)]
    sizes = zip(limits, pad.attributes["edge_padding_low"], pad.operands[0].shape, strict=True)
    high = [limit - before - size for limit, before, size in sizes]
    return _pad(pad.operands[0], low, high, ((0, 0), (0, 1)))


def _padded_pad(inner: OpSpec, outer: OpSpec, fill: np.generic | None, other: np.generic | None) -> _Folded | None:
    """One pad of two: the second cuts off what the first put there, or both put the same there."""
    if any((*inner.attributes["interior_padding"], *outer.attributes["interior_padding"])):
        return None
    cuts = max(_edges(outer)) <= 0
    if not cuts and not (fill is not None and fill == other and min(*_edges(inner), *_edges(outer)) >= 0):
        return None
    low, high = ([a + b for a, b in zip(inner.attributes[s], outer.attributes[s], strict=True)] for s in _SIDES)
    return _pad(inner.operands[0], low, high, ((0, 0), (0, 1)))


_SIDES = ("edge_padding_low", "edge_padding_high")


def _edges(pad: OpSpec) -> tuple[int, ...]:
    return tuple(n for side in _SIDES for n in pad.attributes[side])


def _sliced_slice(inner: OpSpec, outer: OpSpec) -> _Folded | None:
    """One slice of two."""
    if outer.kind != "slice":
        return None
    steps = inner.attributes["strides"]
    starts, limits, strides = (outer.attributes[name] for name in ("start_indices", "limit_indices", "strides"))
    first = [a + b * step for a, b, step in zip(inner.attributes["start_indices"], starts, steps, strict=True)]
    end = [a + (b - start - 1) * step + 1 for a, b, start, step in zip(first, limits, starts, steps, strict=True)]
    both = [a * b for a, b in zip(steps, strides, strict=True)]
    return _Folded(((0, 0),), {"start_indices": first, "limit_indices": end, "strides": both})


def _padded_slice(inner: OpSpec, pad: OpSpec) -> _Folded | None:
    if set(inner.attributes["strides"]) != {1} or any(pad.attributes["interior_padding"]):
        return None
    whole, starts = inner.operands[0].shape, inner.attributes["start_indices"]
    cut = [(s, n - limit) for s, limit, n in zip(starts, inner.attributes["limit_indices"], whole, strict=True)]
    edges = list(zip(pad.attributes["edge_padding_low"], pad.attributes["edge_padding_high"], strict=True))
    if any(c and e > 0 for cuts, both in zip(cut, edges, strict=True) for c, e in zip(cuts, both, strict=True)):
        return None
    low, high = ([e[side] - c[side] for c, e in zip(cut, edges, strict=True)] for side in (0, 1))
    return _pad(inner.operands[0], low, high, ((0, 0), (1, 1)))


def _pad(array: TensorType, low: list[int], high: list[int], operands: tuple[tuple[int, int], ...]) -> _Folded | None:
    """A pad of an array; None if it would leave less than nothing of it."""
    if any(min(a, 0) + min(b, 0) <= -n for a, b, n in zip(low, high, array.shape, strict=True)):
        return None
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": [0] * len(low)}
    return _Folded(operands, attributes, like=None)
