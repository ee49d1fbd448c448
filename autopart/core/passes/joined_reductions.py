"""The pass `joined_reductions`: what is joined and reduced over other dims is reduced part by part, and then joined.

    %g = concatenate %up, %gate        f32[8,1024,4096]         %u = reduce %up over [0, 1]        f32[2048]
    reduce %g over [0, 1]              f32[4096]          ->    %v = reduce %gate over [0, 1]      f32[2048]
                                                                concatenate %u, %v                 f32[4096]

The gradient of a bias is written so wherever what it was added to is split: by a gated MLP, or into queries, keys and
values. Compilers read all parts again for such a reduction, and choose place by place; that of a part goes into the
kernel that makes the part. So are sums of pads that are apart, the gradients of slices. Short reductions stay: their
parts are small, and each is a kernel of its own. And so does what is joined for the reduction alone, in its kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.traits import elements
from autopart.core.passes.pads import MOST_PARTS, summed
from autopart.core.passes.pattern_rewriter import COMBINED, PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

FEWEST = 512
"""Of fewer elements for each of the result a reduction stays as it is."""

LEAST = 48
"""Nor where a part's result has fewer: a DenseNet's parts, of 32 features each, are as fast together."""


@register_pass("joined_reductions")
@dataclass(frozen=True)
class JoinedReductions(PatternPass):
    """Reductions of concatenations over other dims become concatenations of reductions."""

    roots = ("reduce",)

    def wanted(self, spec: OpSpec) -> bool:
        """One array, reduced with a reducer of its own kind, many elements into one."""
        if len(spec.results) != 1 or spec.region not in COMBINED:
            return False
        return math.prod(spec.operands[0].shape[d] for d in spec.attributes["dimensions"]) >= FEWEST

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        spec, value = at.spec(op), at.operands(op)[0]
        read_again = at.rewriting.reader_count(value) > 1 or at.rewriting.is_seen(value)
        joined = _joined(at, op) if read_again else None
        if joined is None or not _are_long(at, joined, spec):
            return None
        return reduced(at, op, joined.values, joined.dim)


def reduced(at: PatternRewriter, op: int, parts: Sequence[int], dim: int) -> int:
    """A reduction over other dims of parts that are joined along a dim: its reductions, joined."""
    spec, start = at.spec(op), at.operands(op)[1]
    dims, made = spec.attributes["dimensions"], list[int]()
    for part in parts:
        left = TensorType(
            tuple(n for d, n in enumerate(at.type_of(part).shape) if d not in dims), spec.results[0].dtype
        )
        made += at.again(op, [part, start], [left], dimensions=dims)
    return at.concatenate(made, dim - sum(d < dim for d in dims))


class _Joined(NamedTuple):
    """Values that fill an array one after the other along a dim."""

    dim: int
    values: list[int]


def _are_long(at: PatternRewriter, joined: _Joined, reduction: OpSpec) -> bool:
    """Parts of a dim that is not reduced, and none leaves few elements."""
    if joined.dim in reduction.attributes["dimensions"]:
        return False
    shortest = min(at.type_of(value).shape[joined.dim] for value in joined.values)
    whole = reduction.operands[0].shape[joined.dim]
    return elements(reduction.results[0]) * shortest >= LEAST * whole


def _joined(at: PatternRewriter, op: int) -> _Joined | None:
    """What a reduction reads: a concatenation or, where it adds, a sum of pads that are apart; None for all else."""
    value = at.operands(op)[0]
    made = at.made_by(value, "concatenate")
    if made is not None and 1 < len(made.operands) <= MOST_PARTS:
        return _Joined(made.attributes["dimension"], at.operands(at.maker(value)))
    return _padded_apart(at, value) if at.spec(op).region == "add" else None


def _padded_apart(at: PatternRewriter, value: int) -> _Joined | None:
    """A sum of pads by zero, each of other places of one dim, all places together."""
    pads, others = summed(at, value, MOST_PARTS, lambda v: True)
    if others:
        return None
    pads.sort(key=lambda pad: pad.places.start)
    ends = [0, *(pad.places.stop for pad in pads)]
    follow = ends == [*(pad.places.start for pad in pads), at.type_of(value).shape[pads[0].dim]]
    return _Joined(pads[0].dim, [pad.value for pad in pads]) if follow and len({pad.dim for pad in pads}) == 1 else None
