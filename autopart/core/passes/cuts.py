"""Cuts: what a slice takes of an array is made of slices of what the array is made of.

    %p = concatenate %x[-1:], %x, %x[:1]     core of dim 0: %x, places 1 to 8193 of 8194; axes divide it, but not %p
    %p[2:]  is  concatenate %x[1:], %x[:1]

`borders` asks for it where an array has a border; windows over such an array are in `bordered_windows.py`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Elementwise, Matmul, Reduction
from autopart.core.passes.even_slices import ways
from autopart.core.passes.known_windows import starts_of, window_of
from autopart.core.passes.pattern_rewriter import PatternRewriter
from autopart.core.passes.spaces import EVENER, evens_out

EVEN = 16
"""A dim that so many devices can share is not taken apart."""

MOST_JOINED = 8
"""A border is at most one in so many places of a dim: features of two layers that are joined are no border."""

MOST_ROWS = 8
"""A border of so many places is taken apart into single ones."""

MOST_DEPTH = 64
"""So many ops before a slice joins are looked for."""


class Cut(NamedTuple):
    """What a slice takes of each dim."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]

    def only(self, shape: Sequence[int], dims: Sequence[int]) -> Cut:
        """The same of some dims of an array of a shape, and all of the others."""
        columns = [
            (self.starts[d], self.limits[d], self.strides[d]) if d in dims else (0, n, 1) for d, n in enumerate(shape)
        ]
        return Cut(*zip(*columns, strict=True))

    def along(self, dim: int, start: int, limit: int) -> Cut:
        """Another stretch of one dim."""
        return Cut(
            (*self.starts[:dim], start, *self.starts[dim + 1 :]),
            (*self.limits[:dim], limit, *self.limits[dim + 1 :]),
            self.strides,
        )


def cut_of(at: PatternRewriter, op: int, cut: Cut) -> int | None:
    """What a slice, or a pad that only cuts, takes of its operand."""
    spec, value = at.spec(op), at.operands(op)[0]
    made = at.spec(at.maker(value))
    cuts = [d for d, (a, n) in enumerate(zip(spec.results[0].shape, spec.operands[0].shape, strict=True)) if a != n]
    if not cuts:
        return value
    if made.kind == "broadcast_in_dim" and at.splat(value) is not None:
        return _through_broadcast(at, at.maker(value), made, cut, cuts)
    if at.scope(at.maker(value)) != at.place.scope or not any(is_border(at, value, d) for d in cuts):
        return None
    if set(cut.strides) != {1}:
        return _strided(at, value, cut)
    through = _THROUGH.get(made.kind, _through_elementwise if isinstance(traits_of(made), Elementwise) else None)
    return None if through is None else through(at, at.maker(value), made, cut, cuts)


def cut_off(shape: Sequence[int], low: Sequence[int], high: Sequence[int], dims: Sequence[int]) -> Cut:
    """What negative padding of some dims leaves of an array."""
    sides = zip(shape, low, high, strict=True)
    ends = [(max(-a, 0), n + min(b, 0)) if d in dims else (0, n) for d, (n, a, b) in enumerate(sides)]
    return Cut(tuple(a for a, _ in ends), tuple(b for _, b in ends), (1,) * len(ends))


def _strided(at: PatternRewriter, value: int, cut: Cut) -> int | None:
    """Every few places of a stretch that is as many of them long, and begins where the last one still fits."""
    shape, sizes = at.type_of(value).shape, [-((a - b) // c) for a, b, c in zip(*cut, strict=True)]
    stretches = [n * step for n, step in zip(sizes, cut.strides, strict=True)]
    if any(a > b for a, b in zip(stretches, shape, strict=True)) or stretches == [*shape]:
        return None
    starts = [min(a, n - m) for a, n, m in zip(cut.starts, shape, stretches, strict=True)]
    first = [a - b for a, b in zip(cut.starts, starts, strict=True)]
    made = at.slice(value, starts, [*map(operator.add, starts, stretches)])
    last = [a + (n - 1) * step + 1 for a, n, step in zip(first, sizes, cut.strides, strict=True)]
    return at.slice(made, first, last, cut.strides)


def taken(at: PatternRewriter, value: int, cut: Cut) -> int:
    """A slice, or the value where all of it is taken."""
    shape = at.type_of(value).shape
    whole = not any(cut.starts) and cut.limits == shape and set(cut.strides) <= {1}
    return value if whole else at.slice(value, *cut)


def _through_slice(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int:
    inner = zip(spec.attributes["start_indices"], spec.attributes["strides"], strict=True)
    columns = [
        (first + start * step, first + (limit - 1) * step + 1, stride * step)
        for (first, step), start, limit, stride in zip(inner, *cut, strict=True)
    ]
    return taken(at, at.operands(op)[0], Cut(*zip(*columns, strict=True)))


def _through_concatenate(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int | None:
    """The parts that are read, each cut along the dim in which they are joined, and in others that are joined too."""
    dim, parts, end = spec.attributes["dimension"], list[int](), 0
    begin, limit, step = cut.starts[dim], cut.limits[dim], cut.strides[dim]
    inner = [d for d in cuts if d != dim and any(is_border(at, v, d) for v in at.operands(op))]
    if dim not in cuts and not inner:
        return None
    for value in at.operands(op):
        start, end = end, end + at.type_of(value).shape[dim]
        first = begin if begin >= start else start + (begin - start) % step
        if first < min(end, limit):
            along = cut.along(dim, first - start, min(end, limit) - start)
            parts.append(taken(at, value, along.only(at.type_of(value).shape, [dim, *inner])))
    made = at.concatenate(parts, dim)
    rest = [d for d in cuts if d != dim and d not in inner]
    return taken(at, made, cut.only(at.type_of(made).shape, rest)) if rest else made


def _through_pad(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int | None:
    """A pad by what is left of the padding; a slice, or the padding, where nothing else is read."""
    if any(spec.attributes["interior_padding"]) or set(cut.strides) != {1}:
        return None
    (value, fill), shape = at.operands(op), spec.operands[0].shape
    low = [a - b for a, b in zip(spec.attributes["edge_padding_low"], cut.starts, strict=True)]
    high = [b - start - a - n for b, start, a, n in zip(cut.limits, cut.starts, low, shape, strict=True)]
    if any(a >= limit - start for a, start, limit in zip(low, cut.starts, cut.limits, strict=True)) or any(
        -a >= n for a, n in zip(low, shape, strict=True)
    ):
        return at.broadcast(fill, [b - a for a, b in zip(cut.starts, cut.limits, strict=True)])
    few = [d for d, (a, b, n) in enumerate(zip(low, high, shape, strict=True)) if 2 * (n + min(a, 0) + min(b, 0)) <= n]
    if few and max(*low, *high) > 0:
        value = taken(at, value, cut_off(shape, low, high, few))
        low, high = ([max(n, 0) if d in few else n for d, n in enumerate(side)] for side in (low, high))
        return at.pad(value, fill, low, high)
    if max(*low, *high) <= 0:
        return taken(at, value, Cut(tuple(-a for a in low), tuple(map(operator.add, shape, high)), cut.strides))
    return at.pad(value, fill, low, high)


def _through_broadcast(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int:
    [value], dims = at.operands(op), spec.attributes["broadcast_dimensions"]
    shape = at.type_of(value).shape
    kept = {k: d for k, d in enumerate(dims) if shape[k] > 1}
    columns = [(cut.starts[d], cut.limits[d], cut.strides[d]) if k in kept else (0, 1, 1) for k, d in enumerate(dims)]
    if columns:
        value = taken(at, value, Cut(*zip(*columns, strict=True)))
    return at.broadcast(value, [-((a - b) // c) for a, b, c in zip(*cut, strict=True)], dims)


def _through_iota(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int:
    dim, dtype = spec.attributes["iota_dimension"], spec.results[0].dtype
    shape = tuple(-((a - b) // c) for a, b, c in zip(*cut, strict=True))
    made = at.iota(TensorType(shape, dtype), dim)
    for kind, number, none in (("multiply", cut.strides[dim], 1), ("add", cut.starts[dim], 0)):
        if number != none:
            made = at.binary(kind, made, at.broadcast(at.constant(number, dtype), shape))
    return made


def _through_reverse(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int:
    reverse, shape = spec.attributes["dimensions"], spec.operands[0].shape
    columns = [
        (n - 1 - (a + (-((a - b) // c) - 1) * c), n - a, c) if d in reverse else (a, b, c)
        for d, (n, a, b, c) in enumerate(zip(shape, *cut, strict=True))
    ]
    value = taken(at, at.operands(op)[0], Cut(*zip(*columns, strict=True)))
    return at.again(op, [value], [at.type_of(value)])[0]


def _through_transpose(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int:
    order = spec.attributes["permutation"]
    sides = (tuple(side[order.index(d)] for d in range(len(order))) for side in cut)
    return at.transpose(taken(at, at.operands(op)[0], Cut(*sides)), order)


def _through_elementwise(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int | None:
    """The op of slices; of a sum with zeros what it adds to them."""
    shape = spec.results[0].shape
    if len(spec.results) != 1 or any(t.shape not in (shape, ()) for t in spec.operands):
        return None
    operands = at.operands(op)
    parts = [taken(at, value, cut) if at.type_of(value).shape == shape else value for value in operands]
    if spec.kind == "add":
        read = [_read_through(at, value, cut) for value in operands]
        for zero, other in ((0, 1), (1, 0)):
            if read[zero]:
                return parts[other]
    made = [-((a - b) // c) for a, b, c in zip(*cut, strict=True)]
    return at.again(op, parts, [TensorType(tuple(made), spec.results[0].dtype)])[0]


def _read_through(at: PatternRewriter, value: int, cut: Cut) -> bool:
    """True if a slice of a value is zeros: of a constant, or of padding alone."""
    op, spec = at.maker(value), at.spec(at.maker(value))
    known = at.splat(at.operands(op)[1] if spec.kind == "pad" else value)
    if known is None or known != 0:
        return False
    if spec.kind != "pad":
        return True
    low, shape = spec.attributes["edge_padding_low"], spec.operands[0].shape
    ends = zip(low, shape, cut.starts, cut.limits, strict=True)
    return not any(spec.attributes["interior_padding"]) and any(b <= p or a >= p + n for p, n, a, b in ends)


def _through_update(at: PatternRewriter, op: int, spec: OpSpec, cut: Cut, cuts: list[int]) -> int | None:
    """What was there and, in its place, what was written over it: parts along each dim in which that is shorter."""
    window, operands = window_of(spec), at.operands(op)
    starts = None if window is None else starts_of(at, op, window)
    if window is None or starts is None or spec.region not in ("", "overwrite") or set(cut.strides) != {1}:
        return None
    update = at.reshape(operands[2 if spec.kind == "scatter" else 1], window)
    shape = spec.operands[0].shape
    return _written(at, operands[0], update, starts, cut, [d for d, n in enumerate(window) if n != shape[d]])


def _written(at: PatternRewriter, old: int, update: int, starts: list[int], cut: Cut, dims: list[int]) -> int:
    """A cut of an array after an update from `starts` on, which is shorter in `dims`."""
    if not dims:
        first, last = (tuple(map(operator.sub, side, starts)) for side in (cut.starts, cut.limits))
        return taken(at, update, Cut(first, last, cut.strides))
    [dim, *others], parts = dims, list[int]()
    low, high = cut.starts[dim], cut.limits[dim]
    begin = min(max(starts[dim], low), high)
    end = max(min(starts[dim] + at.type_of(update).shape[dim], high), begin)
    if low < begin:
        parts.append(taken(at, old, cut.along(dim, low, begin)))
    if begin < end:
        parts.append(_written(at, old, update, starts, cut.along(dim, begin, end), others))
    if end < high:
        parts.append(taken(at, old, cut.along(dim, end, high)))
    return at.concatenate(parts, dim)


_THROUGH = {
    "dynamic_update_slice": _through_update,
    "scatter": _through_update,
    "slice": _through_slice,
    "concatenate": _through_concatenate,
    "pad": _through_pad,
    "broadcast_in_dim": _through_broadcast,
    "iota": _through_iota,
    "reverse": _through_reverse,
    "transpose": _through_transpose,
}


def is_border(at: PatternRewriter, value: int, dim: int) -> bool:
    """True if something was joined to a dim, or cut off, so that axes divide what the value is made of far better."""
    own = ways(at.type_of(value).shape[dim])
    return own < EVEN and core_of(at, value, dim).ways >= EVENER * max(own, 2)


class Core(NamedTuple):
    """The longest of what a dim of a value is made of: in how many ways it can be shared, and where it stands."""

    ways: int
    begin: int
    end: int

    def moved(self, by: int, size: int) -> Core:
        """The same in a dim of a size, in which it stands elsewhere."""
        return Core(self.ways, min(max(self.begin + by, 0), size), max(min(self.end + by, size), 0))


def core_of(at: PatternRewriter, value: int, dim: int, depth: int = 0) -> Core:
    """The core of a dim of a value: all of it, unless a part can be shared in more ways; found out once."""
    if (value, dim) not in at.known:
        size = at.type_of(value).shape[dim]
        found = Core(ways(size), 0, size)
        for part, of, place in _parts(at, value, dim) if depth < MOST_DEPTH else ():
            core = core_of(at, part, of, depth + 1)
            found = found if core.ways <= found.ways else core.moved(place, size)
        at.known[value, dim] = found
    return at.known[value, dim]


def _parts(at: PatternRewriter, value: int, dim: int) -> Sequence[tuple[int, int, int]]:
    """What a slice of a value would be made of slices of, along which dims, and where it begins in the value."""
    op = at.maker(value)
    spec, operands, places = at.spec(op), at.operands(op), itertools.repeat(0)
    if at.scope(op) != at.place.scope:
        return ()
    match spec.kind:
        case "dynamic_update_slice" | "scatter":
            window = window_of(spec)
            starts = None if window is None else starts_of(at, op, window)
            if window is None or starts is None or spec.region not in ("", "overwrite"):
                return ()
            update = operands[2 if spec.kind == "scatter" else 1]
            same = len(at.type_of(update).shape) == len(window)
            return [(operands[0], dim, 0), *([(update, dim, starts[dim])] if same else [])]
        case "transpose":
            return [(operands[0], spec.attributes["permutation"][dim], 0)]
        case "pad":
            if any(spec.attributes["interior_padding"]):
                return ()
            places = itertools.repeat(spec.attributes["edge_padding_low"][dim])
        case "slice":
            if set(spec.attributes["strides"]) != {1}:
                return ()
            places = itertools.repeat(-spec.attributes["start_indices"][dim])
        case "concatenate":
            size, sizes = spec.results[0].shape[dim], [t.shape[dim] for t in spec.operands]
            if spec.attributes["dimension"] == dim:
                places = itertools.accumulate(sizes, initial=0)
            found = zip(operands, sizes, places, strict=False)
            return [(v, dim, place) for v, n, place in found if size <= MOST_ROWS or MOST_JOINED * (size - n) <= size]
        case "reverse":
            pass
        case _:
            if not isinstance(traits_of(spec), Elementwise) or _is_read_whole(at, value, dim):
                return ()
    rank = len(spec.results[0].shape)
    return [(v, dim, place) for v, place in zip(operands, places, strict=False) if len(at.type_of(v).shape) == rank]


def _is_read_whole(at: PatternRewriter, value: int, dim: int) -> bool:
    """True if a product or a reduction reads a value: it is needed as it is, whatever slices of it are made of.

    Windows that leave what axes divide are made of slices, too.
    """
    readers = [(at.spec(op), at.operands(op)[0]) for op in at.rewriting.readers(value)]
    whole = [(spec, read) for spec, read in readers if isinstance(traits_of(spec), _WHOLE)]
    return any(read != value or not evens_out(spec, dim) for spec, read in whole)


_WHOLE = (Convolution, Matmul, Reduction)


def part(at: PatternRewriter, value: int, dim: int, begin: int, end: int) -> int:
    """Places of a dim; the value where these are all."""
    shape = at.type_of(value).shape
    if (begin, end) == (0, shape[dim]):
        return value
    starts = [begin if d == dim else 0 for d in range(len(shape))]
    return at.slice(value, starts, [end if d == dim else n for d, n in enumerate(shape)])


def row(at: PatternRewriter, value: int, dim: int, place: int) -> int:
    """One place of a dim."""
    return part(at, value, dim, place, place + 1)
