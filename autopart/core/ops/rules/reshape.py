"""Tile mappings of reshape.

    x[a, b*c] -> y[a, b, c]        dims fall into groups of equal size: (a | a), (b*c | b, c)

    a    (0) -> tile 0
    b*c  (1) -> tile 1             a group is sliced on its major-most dims, into gcd(b*c, b) = b ways at most
         (1) -> tile 2  after      once axes outside have cut it b ways, the next one cuts inside a row of c

So a group is a chain of factors, and axes use it up from its major end: 64 into [4, 16] over axes of 4 and 4 tiles both
dims. An axis of 16 would have to be one half on each dim: that is refused, and two axes say it.

A tile that is not at the major end, [B,S] -> [B*S] with S tiled, would be strided in the result: no layout has such
tiles, so it is moved first. It draws the mapping of B, if that has room for the axis (an all_to_all of S for B), else
one that reads the operand whole and keeps a part of the result. Dims of size 1 belong to no group. An array without
elements has no groups.

Where a batch is split into the steps of a loop (`core/passes/scanned_rows.py`), a tile that the number of steps has no
room for goes to the rows of all steps, never to a part of the steps: devices exchange rows, as many as a tile has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import alike
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.stretches import stretched
from autopart.core.ops.traits import View
from autopart.core.stretch import Stretch

MANY_STEPS = 8
"""Steps that axes share first, as tiles of the batch: a multiple of so many. Their rows are exchanged behind that."""


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


def _chain(
    source: tuple[int, ...], target: tuple[int, ...], ours: list[int], theirs: list[int]
) -> Iterator[TileMapping]:
    """The factors that both sides of a group have in common, major first, each after the one before."""
    drawn = tuple((0, d) for d in ours[1:])
    left, right, last = list(ours), list(theirs), None
    a, b = source[left[0]], target[right[0]]
    while (factor := math.gcd(a, b)) > 1:
        last = TileMapping((left[0],), (right[0],), factor, last, drawn if last is None else ())
        yield last
        a, b = a // factor, b // factor
        if a == 1 and left[1:]:
            left.pop(0)
            a = source[left[0]]
        if b == 1 and right[1:]:
            right.pop(0)
            b = target[right[0]]


def _localize(local: LocalOp) -> list[Value]:
    """The reshape of what is held; of a result on whose dim nothing was sliced, the part at this device's position."""
    sizes, starts = list(local.result_types[0].shape), {}
    for m, mapping in enumerate(local.mappings):
        if mapping.is_only_drawn and not any(mapping.reads) and local.ways(m) > 1:
            dim = mapping.results[0]
            starts[dim] = local.binary("multiply", local.position(m), local.constant(sizes[dim], "i32"))
            sizes[dim] *= local.ways(m)
    if not starts:
        return local.clone()
    whole = local.reshape(local.operands[0], sizes)
    zero = local.constant(0, "i32")
    return [local.dynamic_slice(whole, [starts.get(d, zero) for d in range(len(sizes))], local.result_types[0].shape)]


@rule(
    "reshape",
    traits=View(cheap_to_regather=True, passes=moved()),
    localize=_localize,
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
            "16xf32 -> 2x2x4xf32",
        )
    ),
    batched=alike,
)
def reshape(spec: OpSpec) -> Iterable[TileMapping]:
    """The factors of each group from its major end, and what is drawn: the rows of merged dims, or of a loop's step."""
    source, target = spec.operands[0].shape, spec.results[0].shape
    if math.prod(source) == 0:
        return
    for ours, theirs in groups(source, target):
        steps, drawn = spec.attributes.get("steps", WHOLE), tuple((0, d) for d in ours)
        if steps != theirs[0] or math.gcd(target[steps], MANY_STEPS) == MANY_STEPS:
            yield from _chain(source, target, ours, theirs)
        if len(theirs) == 1 < len(ours):
            yield TileMapping((WHOLE,), (theirs[0],), target[theirs[0]], drawn_by=drawn[1:])
        if steps == theirs[0]:
            rows = target[theirs[1]]
            inner = source[ours[0]] // (target[steps] * rows)
            read = Stretch(rows, stride=inner, reach=inner, times=target[steps], apart=rows * inner)
            yield stretched(spec, {0: (ours[0], read)}, theirs[1])
