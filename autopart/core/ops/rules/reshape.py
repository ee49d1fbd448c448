"""Tile mappings of reshape.

    x[a, b*c] -> y[a, b, c]        dims fall into groups of equal size: (a | a), (b*c | b, c)

    a    (0) -> tile 0
    b*c  (1) -> tile 1             a group is sliced on its major-most dims, into gcd(b*c, b) = b ways at most:
                                   more ways would cut inside a row of c

Dims of size 1 belong to no group. An array without elements has no groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import View


def groups(source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """The finest split of both shapes into runs of dims with equal products, major first; dims of size 1 left out."""
    left = [d for d, size in enumerate(source) if size != 1]
    right = [d for d, size in enumerate(target) if size != 1]
    while left:
        ours, theirs = [left.pop(0)], [right.pop(0)]
        a, b = source[ours[0]], target[theirs[0]]
        while a != b:
            if a < b:
                ours.append(left.pop(0))
                a *= source[ours[-1]]
            else:
                theirs.append(right.pop(0))
                b *= target[theirs[-1]]
        yield ours, theirs


@rule(
    "reshape",
    traits=View(cheap_to_regather=True, passes=moved()),
    examples=tuple(
        op("reshape", types)
        for types in (
            "4x6xf32 -> 24xf32",
            "24xf32 -> 4x6xf32",
            "4x6x2xf32 -> 4x12xf32",
            "2x4x6xf32 -> 8x6xf32",
            "4x6xf32 -> 6x4xf32",
            "4x6xf32 -> 1x4x1x6xf32",
            "1x4xf32 -> 4xf32",
            "3x4xf32 -> 2x6xf32",
            "16xf32 -> 4x4xf32",
            "2x8x6xf32 -> 4x4x3x2xf32",
        )
    ),
)
def reshape(spec: OpSpec) -> Iterable[TileMapping]:
    """The major-most dims of each group."""
    source, target = spec.operands[0].shape, spec.results[0].shape
    if math.prod(source) == 0:
        return []
    pairs = [(ours[0], theirs[0]) for ours, theirs in groups(source, target)]
    return [TileMapping((d,), (r,), math.gcd(source[d], target[r])) for d, r in pairs]
