"""The pass `refilled_slices`: what is cut off and filled up again, or joined of pieces, is chosen place by place.

    pad (slice %x [:, :-1]) by 0 and 1           ->      select(iota < 2047, %x, padding)
    concatenate %y[:, :1], %x[:, :-1]            ->      select(iota < 1, %y[:, :1] in 2048 places, %x moved on by 1)
    concatenate %x[:, -1:], %x[:, :-1]           ->      roll %x by 1
    add (pad %g by 1 and -1) (pad %g by -7 and 7)   ->   roll %g by 1                              its gradient

In between are 2047 places, or one, which no axis divides; what is left has tiles all along. Gradients of shifts, and
`jnp.roll` and `jnp.concatenate` of slices are written so. A concatenation of pieces that axes divide stays one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.mlir_values import i64
from autopart.core.op import OpSpec
from autopart.core.ops.rules.roll import ROLL
from autopart.core.passes.combined_slices import Row, grown, row_of
from autopart.core.passes.cuts import MOST_ROWS, row
from autopart.core.passes.even_slices import EVENER, ways
from autopart.core.passes.pads import sides_of
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


class _Piece(NamedTuple):
    """An array, or a scalar, of which a part is taken: element `start` of the dim stands at place `begin`, and so on
    up to `end`; or, with -1 for `start`, a border's one place."""

    value: int
    start: int
    begin: int
    end: int


@register_pass("refilled_slices")
@dataclass(frozen=True)
class RefilledSlices(PatternPass):
    """Pads and concatenations of slices become choices by place, where axes divide only what is sliced."""

    roots = ("pad", "concatenate", "add")

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        at.shares = True
        if at.spec(op).kind == "add":
            return _added(at, op)
        if at.spec(op).kind == "pad":
            made = _pad(at, op)
            made = _spread(at, op) if made is None else made
            return _scaled(at, op) if made is None else made
        return _concatenate(at, op) if any(at.made_by(value, "slice") for value in at.operands(op)) else None


def _pad(at: PatternRewriter, op: int) -> int | None:
    """A pad that fills dims up to where slices, or other pads by the same, have cut them off."""
    spec, (_, fill), [made] = at.spec(op), at.operands(op), at.rewriting.results(op)
    readers, known = at.only_readers(made, "pad"), at.splat(fill)
    if min(*(n for side in sides_of(spec)[:2] for n in side), 0) < 0 or readers:
        return None
    shape, value, inner = spec.results[0].shape, made, None if any(sides_of(spec)[2]) else spec
    at_place, begin, end, least = [0] * len(shape), [0] * len(shape), [*shape], [ways(n) for n in shape]
    while inner is not None and not any(sides_of(inner)[2]):
        value, *filled = at.operands(at.maker(value))
        if filled and inner is not spec and (known is None or at.splat(filled[0]) != known):
            return None
        at_place = [*map(operator.add, at_place, sides_of(inner)[0])]
        sizes = at.type_of(value).shape
        begin, end = [*map(max, begin, at_place)], [*map(min, end, map(operator.add, at_place, sizes))]
        least = [min(most, ways(n)) for most, n in zip(least, sizes, strict=True)]
        inner = at.made_by(value, "slice", "pad")
    sizes = at.type_of(value).shape
    natural = [(max(a, 0), min(a + n, m)) for a, n, m in zip(at_place, sizes, shape, strict=True)]
    masked = [(d, begin[d], end[d]) for d, ends in enumerate(natural) if ends != (begin[d], end[d])]
    even = [min(ways(n), ways(m)) >= EVENER * most for n, m, most in zip(sizes, shape, least, strict=True)]
    if not any(even):
        return None
    few = [d for d, first, last in masked if last - first <= MOST_ROWS and sizes[d] != shape[d]]
    if few and all(n == m for d, (n, m) in enumerate(zip(sizes, shape, strict=True)) if d != few[0]):
        return _rows(at, value, fill, shape, few[0], at_place[few[0]], masked)
    moved = at.pad(value, fill, at_place, [m - a - n for a, n, m in zip(at_place, sizes, shape, strict=True)])
    return at.select(at.box(shape, masked), moved, at.broadcast(fill, shape)) if masked else moved


def _spread(at: PatternRewriter, op: int) -> int | None:
    """Of a slice, with holes between elements: all places are spread, after those that were cut off are filled."""
    spec, (value, fill) = at.spec(op), at.operands(op)
    low, high, between = sides_of(spec)
    dims = [d for d, ends in enumerate(zip(low, high, between, strict=True)) if any(ends)]
    row = row_of(at, value, dims[0]) if len(dims) == 1 and any(between) and min(*low, *high) >= 0 else None
    if row is None:
        return None
    [dim] = dims
    length, step = spec.operands[0].shape[dim], between[dim] + 1
    begin, size = low[dim] // step, low[dim] // step + length + high[dim] // step
    if min(ways(size), ways(row.size // row.step)) < EVENER * ways(length):
        return None
    made = grown(at, value, row, dim, begin, size)
    shape = at.type_of(made).shape
    chosen = at.select(at.box(shape, [(dim, begin, begin + length)]), made, at.broadcast(fill, shape))
    low[dim], high[dim] = low[dim] % step, high[dim] % step
    return at.pad(chosen, fill, low, high, between)


def _scaled(at: PatternRewriter, op: int) -> int | None:
    """What is moved on and scaled by a number: moved first, so that all that reads it moves it once."""
    spec, (value, fill) = at.spec(op), at.operands(op)
    low, high, between = sides_of(spec)
    inner = at.made_by(value, "multiply", "divide", "negate")
    if inner is None or any(between) or any(map(operator.add, low, high)) or at.splat(fill) != 0:
        return None
    operands = at.operands(at.maker(value))
    numbers = [at.splat(v) for v in operands]
    moved = [at.pad(v, fill, low, high) if n is None else v for v, n in zip(operands, numbers, strict=True)]
    finite = all(n is None or (np.isfinite(n) and n != 0) for n in numbers)
    if not finite or numbers.count(None) != 1 or (inner.kind == "divide" and numbers[1] is None):
        return None
    return at.again(at.maker(value), moved)[0]


def _rows(
    at: PatternRewriter,
    value: int,
    fill: int,
    shape: Sequence[int],
    dim: int,
    low: int,
    masked: Sequence[tuple[int, int, int]],
) -> int:
    """A few rows of `value` where they stand, and `fill` everywhere else: rows alone move."""
    made = at.broadcast(fill, shape)
    [(first, last)] = [ends for d, *ends in masked if d == dim]
    others = [ends for ends in masked if ends[0] != dim]
    for place in range(first, last):
        one = at.broadcast(row(at, value, dim, place - low), shape, range(len(shape)))
        made = at.select(at.box(shape, [*others, (dim, place, place + 1)]), one, made)
    return made


def _concatenate(at: PatternRewriter, op: int) -> int | None:
    """A concatenation of slices, and of what is the same all over, whose lengths axes divide less than the whole."""
    spec = at.spec(op)
    if (rolled := _rolled(at, op)) is not None:
        return rolled
    dim, pieces, end = spec.attributes["dimension"], list[_Piece](), 0
    whole = ways(spec.results[0].shape[dim])
    wanted = EVENER * min(whole, *(ways(t.shape[dim]) for t in spec.operands))
    if whole < wanted:
        return None
    for value in at.operands(op):
        begin, end = end, end + at.type_of(value).shape[dim]
        sliced = _source(at, value)
        if (
            sliced is not None
            and _cuts_only(at.spec(sliced), dim)
            and ways(at.spec(sliced).operands[0].shape[dim]) >= wanted
        ):
            [source], starts = at.operands(sliced), at.spec(sliced).attributes["start_indices"]
            pieces.append(_Piece(source, starts[dim], begin, end))
        elif (filled := _scalar(at, value)) is not None:
            pieces.append(_Piece(filled, 0, begin, end))
        elif end - begin <= MOST_ROWS:
            pieces += [_Piece(row(at, value, dim, k), -1, begin + k, begin + k + 1) for k in range(end - begin)]
        else:
            return None
    longest = max(piece.end - piece.begin for piece in pieces)
    return _chosen(at, op, dim, pieces) if 2 * longest >= spec.results[0].shape[dim] else None


def _rolled(at: PatternRewriter, op: int) -> int | None:
    """The roll that a concatenation of two parts of one array is."""
    parts = [_source(at, value) for value in at.operands(op)]
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    [value], dim = at.operands(parts[0]), at.spec(op).attributes["dimension"]
    starts = [at.spec(part).attributes["start_indices"][dim] for part in parts if part is not None]
    follow = starts == [at.spec(parts[1]).results[0].shape[dim], 0]
    if at.operands(parts[1]) != [value] or at.type_of(value) != at.spec(op).results[0] or not follow:
        return None
    return _roll(at, value, dim, at.type_of(value).shape[dim] - starts[0])


def _added(at: PatternRewriter, op: int) -> int | None:
    """The roll that a sum of two pads of one array is: what one cuts off, the other has."""
    moves = list[tuple[int, int, int]]()
    for value in at.operands(op):
        made = at.made_by(value, "pad")
        low, high, between = sides_of(made) if made is not None else ([], [], [])
        dims = [d for d, n in enumerate(low) if n]
        if made is None or len(dims) != 1 or any(between) or any(map(operator.add, low, high)):
            return None
        source, fill = at.operands(at.maker(value))
        if at.splat(fill) != 0:
            return None
        moves.append((source, dims[0], low[dims[0]]))
    (value, dim, by), other = sorted(moves, reverse=True)
    alike = other[:2] == (value, dim) and by - other[2] == at.type_of(value).shape[dim]
    return _roll(at, value, dim, by) if alike else None


def _roll(at: PatternRewriter, value: int, dim: int, by: int) -> int:
    """A value with its elements along a dim moved on, the last ones to the front."""
    types = [at.type_of(value)]
    return at.create("stablehlo.concatenate", [value], types, marks=((ROLL, by),), kind=ROLL, dimension=i64(dim))[0]


def _source(at: PatternRewriter, value: int) -> int | None:
    """The slice that makes a value, if it stands beside its reader and leaves out no element in between."""
    spec = at.made_by(value, "slice")
    return at.maker(value) if spec is not None and set(spec.attributes["strides"]) == {1} else None


def _cuts_only(spec: OpSpec, dim: int) -> bool:
    sizes = zip(spec.operands[0].shape, spec.results[0].shape, strict=True)
    return all(long == short for d, (long, short) in enumerate(sizes) if d != dim)


def _scalar(at: PatternRewriter, value: int) -> int | None:
    """The scalar that a value has everywhere, where it is a constant's broadcast."""
    if at.splat(value) is None:
        return None
    while at.type_of(value).shape:
        operands = at.operands(at.maker(value))
        if len(operands) != 1:
            return None
        [value] = operands
    return value


def _chosen(at: PatternRewriter, op: int, dim: int, pieces: Sequence[_Piece]) -> int:
    """Each piece moved to where it stands, and before its place what was chosen so far."""
    made, result = -1, at.spec(op).results[0]
    for piece in pieces:
        low = piece.begin - piece.start
        if not at.type_of(piece.value).shape:
            moved = at.broadcast(piece.value, result.shape)
        elif piece.start < 0:
            moved = at.broadcast(piece.value, result.shape, range(len(result.shape)))
        elif not low and at.type_of(piece.value) == result:
            moved = at.same(piece.value)
        else:
            whole, size = result.shape[dim], at.type_of(piece.value).shape[dim]
            step = max(size // whole, 1) if piece.end - piece.begin == 1 else 1
            step = step if piece.start // step == piece.begin else 1
            moved = grown(at, piece.value, Row(piece.value, piece.start, step, size), dim, piece.begin, whole)
        inside = at.box(result.shape, [(dim, 0, piece.begin)]) if made >= 0 else -1
        made = moved if made < 0 else at.select(inside, made, moved)
    return made
