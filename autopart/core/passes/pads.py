"""Pads by zero of one dim: where what is padded stands among zeros.

%p = pad %g, 0 by 3 before and 12 after      f32[1,8] -> f32[16,8]       Pad(dim 0, places 3 to 4, %g)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from autopart.core.op import OpSpec
from autopart.core.passes.pattern_rewriter import PatternRewriter

MOST_PARTS = 8
"""A sum of so many pads is one kernel, as a concatenation of them is; of more parts a reduction is no sum of theirs."""


def sides_of(spec: OpSpec) -> tuple[list[int], list[int], list[int]]:
    """What a pad adds before and behind each dim, and between elements; a slice without strides takes away."""
    if spec.kind == "slice":
        attributes, shape = spec.attributes, spec.operands[0].shape
        low, high = [-n for n in attributes["start_indices"]], [*map(operator.sub, attributes["limit_indices"], shape)]
        return low, high, [step - 1 for step in attributes["strides"]]
    low, high, between = (list(spec.attributes[name]) for name in SIDES)
    return low, high, between


SIDES = ("edge_padding_low", "edge_padding_high", "interior_padding")


class Pad(NamedTuple):
    """A value between zeros: where it stands along the one dim that has any."""

    dim: int
    places: range
    value: int


def summed(at: PatternRewriter, value: int, most: int, follows: Callable[[int], bool]) -> tuple[list[Pad], list[int]]:
    """The pads that a value is a sum of, at most so many, and what else is added; `follows` says of which sums."""
    pads, others, left = list[Pad](), list[int](), [value]
    while left:
        read = left.pop()
        made = at.made_by(read, "add", "pad") if len(pads) < most and follows(read) else None
        pad = pad_of(at, at.maker(read)) if made is not None else None
        if pad is not None:
            pads.append(pad)
        elif made is not None and made.kind == "add":
            left += at.operands(at.maker(read))[::-1]
        else:
            others.append(read)
    return pads, others


def pad_of(at: PatternRewriter, op: int) -> Pad | None:
    """The pad by zero of one dim that an op is."""
    spec = at.spec(op)
    if spec.kind != "pad" or any(spec.attributes["interior_padding"]):
        return None
    (value, filling), (low, high, _) = at.operands(op), sides_of(spec)
    dims = [d for d in range(len(low)) if low[d] or high[d]]
    if len(dims) != 1 or min(*low, *high) < 0 or at.splat(filling) != 0:
        return None
    [dim] = dims
    return Pad(dim, range(low[dim], low[dim] + spec.operands[0].shape[dim]), value)
