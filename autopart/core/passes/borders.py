"""The pass `borders`: a slice of what was joined, padded or added up is made of slices of its parts.

    %p = concatenate %x[-1:], %x, %x[:1]      f32[8194,8192]      ghost cells, `jnp.pad` of any mode
    slice %p [2:]                             f32[8192,8192]  ->  concatenate %x[1:], %x[:1]
    slice (pad %g by 1 and 1) [2:]                            ->  pad %g by -1 and 1
    slice (add (pad %g by 0 and 2) (pad %h by 2 and 0)) [1:-1]
                                                              ->  add (pad %g by -1 and 1) (pad %h by 1 and -1)

In between is a dim that no axis divides, so all of the array would be gathered. What is left are joins of the same
length as the array, which `refilled_slices` turns into choices between copies that are moved by the border: rows of the
border go to a neighbour, and nothing else moves. Stencils are written so, and their gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Elementwise, Matmul, Reduction
from autopart.core.passes.even_slices import ways
from autopart.core.passes.known_windows import starts_of, window_of
from autopart.core.passes.pads import sides_of
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

EVENER = 4
"""How many times as many devices must be able to share a part as what it was joined to."""

EVEN = 16
"""A dim that so many devices can share is not taken apart."""

MOST_JOINED = 8
"""A border is at most one in so many places of a dim: features of two layers that are joined are no border."""

MOST_ROWS = 8
"""A border of so many places is taken apart into single ones."""

MOST_DEPTH = 64
"""So many ops before a slice joins are looked for."""


class _Cut(NamedTuple):
    """What a slice takes of each dim."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]

    def only(self, shape: Sequence[int], dims: Sequence[int]) -> _Cut:
        """The same of some dims of an array of a shape, and all of the others."""
        columns = [
            (self.starts[d], self.limits[d], self.strides[d]) if d in dims else (0, n, 1) for d, n in enumerate(shape)
        ]
        return _Cut(*zip(*columns, strict=True))

    def along(self, dim: int, start: int, limit: int) -> _Cut:
        """Another stretch of one dim."""
        return _Cut(
            (*self.starts[:dim], start, *self.starts[dim + 1 :]),
            (*self.limits[:dim], limit, *self.limits[dim + 1 :]),
            self.strides,
        )


@register_pass("borders")
@dataclass(frozen=True)
class Borders(PatternPass):
    """Slices of concatenations, pads, and what is computed of these become slices of their parts."""

    roots = ("slice", "reverse", "reshape", "pad", "concatenate", "reduce", "broadcast_in_dim", "gather")

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        at.shares = True
        return _BY_KIND[at.spec(op).kind](at, op)


# ---- slices


def _slice(at: PatternRewriter, op: int) -> int | None:
    attributes = at.spec(op).attributes
    return _cut(at, op, _Cut(*(tuple(attributes[name]) for name in ("start_indices", "limit_indices", "strides"))))


def _cut(at: PatternRewriter, op: int, cut: _Cut) -> int | None:
    """What a slice, or a pad that only cuts, takes of its operand."""
    spec, value = at.spec(op), at.operands(op)[0]
    made = at.spec(at.maker(value))
    cuts = [d for d, (a, n) in enumerate(zip(spec.results[0].shape, spec.operands[0].shape, strict=True)) if a != n]
    if not cuts:
        return value
    if made.kind == "broadcast_in_dim" and at.splat(value) is not None:
        return _through_broadcast(at, at.maker(value), made, cut, cuts)
    strided = set(cut.strides) != {1}
    if strided or at.scope(at.maker(value)) != at.place.scope or not any(_is_border(at, value, d) for d in cuts):
        return None
    through = _THROUGH.get(made.kind, _through_elementwise if isinstance(traits_of(made), Elementwise) else None)
    return None if through is None else through(at, at.maker(value), made, cut, cuts)


def _taken(at: PatternRewriter, value: int, cut: _Cut) -> int:
    """A slice, or the value where all of it is taken."""
    shape = at.type_of(value).shape
    whole = not any(cut.starts) and cut.limits == shape and set(cut.strides) <= {1}
    return value if whole else at.slice(value, *cut)


def _through_slice(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int:
    inner = zip(spec.attributes["start_indices"], spec.attributes["strides"], strict=True)
    columns = [
        (first + start * step, first + (limit - 1) * step + 1, stride * step)
        for (first, step), start, limit, stride in zip(inner, *cut, strict=True)
    ]
    return _taken(at, at.operands(op)[0], _Cut(*zip(*columns, strict=True)))


def _through_concatenate(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int | None:
    """The parts that are read, each cut along the dim in which they are joined, and in others that are joined too."""
    dim, parts, end = spec.attributes["dimension"], list[int](), 0
    begin, limit, step = cut.starts[dim], cut.limits[dim], cut.strides[dim]
    inner = [d for d in cuts if d != dim and any(_is_border(at, v, d) for v in at.operands(op))]
    if dim not in cuts and not inner:
        return None
    for value in at.operands(op):
        start, end = end, end + at.type_of(value).shape[dim]
        first = begin if begin >= start else start + (begin - start) % step
        if first < min(end, limit):
            along = cut.along(dim, first - start, min(end, limit) - start)
            parts.append(_taken(at, value, along.only(at.type_of(value).shape, [dim, *inner])))
    made = at.concatenate(parts, dim)
    rest = [d for d in cuts if d != dim and d not in inner]
    return _taken(at, made, cut.only(at.type_of(made).shape, rest)) if rest else made


def _through_pad(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int | None:
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
    if max(*low, *high) <= 0:
        return _taken(at, value, _Cut(tuple(-a for a in low), tuple(map(operator.add, shape, high)), cut.strides))
    return at.pad(value, fill, low, high)


def _through_broadcast(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int:
    [value], dims = at.operands(op), spec.attributes["broadcast_dimensions"]
    shape = at.type_of(value).shape
    kept = {k: d for k, d in enumerate(dims) if shape[k] > 1}
    columns = [(cut.starts[d], cut.limits[d], cut.strides[d]) if k in kept else (0, 1, 1) for k, d in enumerate(dims)]
    if columns:
        value = _taken(at, value, _Cut(*zip(*columns, strict=True)))
    return at.broadcast(value, [-((a - b) // c) for a, b, c in zip(*cut, strict=True)], dims)


def _through_iota(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int:
    dim, dtype = spec.attributes["iota_dimension"], spec.results[0].dtype
    shape = tuple(-((a - b) // c) for a, b, c in zip(*cut, strict=True))
    made = at.iota(TensorType(shape, dtype), dim)
    for kind, number, none in (("multiply", cut.strides[dim], 1), ("add", cut.starts[dim], 0)):
        if number != none:
            made = at.binary(kind, made, at.broadcast(at.constant(number, dtype), shape))
    return made


def _through_reverse(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int:
    reverse, shape = spec.attributes["dimensions"], spec.operands[0].shape
    columns = [
        (n - 1 - (a + (-((a - b) // c) - 1) * c), n - a, c) if d in reverse else (a, b, c)
        for d, (n, a, b, c) in enumerate(zip(shape, *cut, strict=True))
    ]
    value = _taken(at, at.operands(op)[0], _Cut(*zip(*columns, strict=True)))
    return at.again(op, [value], [at.type_of(value)])[0]


def _through_transpose(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int:
    order = spec.attributes["permutation"]
    sides = (tuple(side[order.index(d)] for d in range(len(order))) for side in cut)
    return at.transpose(_taken(at, at.operands(op)[0], _Cut(*sides)), order)


def _through_elementwise(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int | None:
    """The op of slices; of a sum with zeros what it adds to them."""
    shape = spec.results[0].shape
    if len(spec.results) != 1 or any(t.shape not in (shape, ()) for t in spec.operands):
        return None
    operands = at.operands(op)
    parts = [_taken(at, value, cut) if at.type_of(value).shape == shape else value for value in operands]
    if spec.kind == "add":
        read = [_read_through(at, value, cut) for value in operands]
        for zero, other in ((0, 1), (1, 0)):
            if read[zero]:
                return parts[other]
    made = [-((a - b) // c) for a, b, c in zip(*cut, strict=True)]
    return at.again(op, parts, [TensorType(tuple(made), spec.results[0].dtype)])[0]


def _read_through(at: PatternRewriter, value: int, cut: _Cut) -> bool:
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


def _through_update(at: PatternRewriter, op: int, spec: OpSpec, cut: _Cut, cuts: list[int]) -> int | None:
    """What was there and, in its place, what was written over it: parts along each dim in which that is shorter."""
    window, operands = window_of(spec), at.operands(op)
    starts = None if window is None else starts_of(at, op, window)
    if window is None or starts is None or spec.region not in ("", "overwrite") or set(cut.strides) != {1}:
        return None
    update = at.reshape(operands[2 if spec.kind == "scatter" else 1], window)
    shape = spec.operands[0].shape
    return _written(at, operands[0], update, starts, cut, [d for d, n in enumerate(window) if n != shape[d]])


def _written(at: PatternRewriter, old: int, update: int, starts: list[int], cut: _Cut, dims: list[int]) -> int:
    """A cut of an array after an update from `starts` on, which is shorter in `dims`."""
    if not dims:
        first, last = (tuple(map(operator.sub, side, starts)) for side in (cut.starts, cut.limits))
        return _taken(at, update, _Cut(first, last, cut.strides))
    [dim, *others], parts = dims, list[int]()
    low, high = cut.starts[dim], cut.limits[dim]
    begin = min(max(starts[dim], low), high)
    end = max(min(starts[dim] + at.type_of(update).shape[dim], high), begin)
    if low < begin:
        parts.append(_taken(at, old, cut.along(dim, low, begin)))
    if begin < end:
        parts.append(_written(at, old, update, starts, cut.along(dim, begin, end), others))
    if end < high:
        parts.append(_taken(at, old, cut.along(dim, end, high)))
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


def _is_border(at: PatternRewriter, value: int, dim: int) -> bool:
    """True if something was joined to a dim, or cut off, so that axes divide what the value is made of far better."""
    own = ways(at.type_of(value).shape[dim])
    return own < EVEN and _best(at, value, dim) >= EVENER * max(own, 2)


def _best(at: PatternRewriter, value: int, dim: int, depth: int = 0) -> int:
    """In how many ways the longest parts that a dim of a value is made of can be shared; found out once."""
    key = value, dim
    if key not in at.known:
        parts = _parts(at, value, dim) if depth < MOST_DEPTH else ()
        own = ways(at.type_of(value).shape[dim])
        at.known[key] = max(own, *(_best(at, part, of, depth + 1) for part, of in parts), 1)
    return at.known[key]


def _parts(at: PatternRewriter, value: int, dim: int) -> Sequence[tuple[int, int]]:
    """What a slice of a value would be made of slices of, and along which dims."""
    op = at.maker(value)
    spec, operands = at.spec(op), at.operands(op)
    if at.scope(op) != at.place.scope:
        return ()
    match spec.kind:
        case "dynamic_update_slice" | "scatter":
            window = window_of(spec)
            if window is None or spec.region not in ("", "overwrite") or starts_of(at, op, window) is None:
                return ()
            update = operands[2 if spec.kind == "scatter" else 1]
            same = len(at.type_of(update).shape) == len(window)
            return [(operands[0], dim), *([(update, dim)] if same else [])]
        case "transpose":
            return [(operands[0], spec.attributes["permutation"][dim])]
        case "pad" if any(spec.attributes["interior_padding"]):
            return ()
        case "slice" if set(spec.attributes["strides"]) != {1}:
            return ()
        case "concatenate":
            size = spec.results[0].shape[dim]
            short = size <= MOST_ROWS
            return [(v, dim) for v in operands if short or MOST_JOINED * (size - at.type_of(v).shape[dim]) <= size]
        case "reverse" | "slice":
            pass
        case _:
            if not isinstance(traits_of(spec), Elementwise) or _is_read_whole(at, value):
                return ()
    rank = len(spec.results[0].shape)
    return [(v, dim) for v in operands if len(at.type_of(v).shape) == rank]


def _is_read_whole(at: PatternRewriter, value: int) -> bool:
    """True if a product or a reduction reads a value: it is needed as it is, whatever slices of it are made of."""
    return any(isinstance(traits_of(at.spec(op)), _WHOLE) for op in at.rewriting.readers(value))


# ---- borders


def _reverse(at: PatternRewriter, op: int) -> int | None:
    """A border backwards: its places one by one."""
    spec, [value] = at.spec(op), at.operands(op)
    shape = spec.results[0].shape
    dims = [d for d in spec.attributes["dimensions"] if shape[d] > 1]
    if not dims:
        return value
    [dim, *others] = dims
    if others or shape[dim] > MOST_ROWS or not _is_border(at, value, dim):
        return None
    rows = [row(at, value, dim, place) for place in reversed(range(shape[dim]))]
    return at.concatenate(rows, dim)


def row(at: PatternRewriter, value: int, dim: int, place: int) -> int:
    """One place of a dim."""
    shape = at.type_of(value).shape
    starts = [place if d == dim else 0 for d in range(len(shape))]
    return at.slice(value, starts, [place + 1 if d == dim else n for d, n in enumerate(shape)])


def _repeated(at: PatternRewriter, op: int) -> int | None:
    """A place of a border that is repeated by a broadcast and a reshape: as often in a concatenation."""
    spec, [value] = at.spec(op), at.operands(op)
    made, shape = at.made_by(value, "broadcast_in_dim"), spec.results[0].shape
    if made is None or len(made.operands[0].shape) != len(shape) or 0 in shape:
        return None
    source = made.operands[0].shape
    grown = [d for d, (n, m) in enumerate(zip(source, shape, strict=True)) if n != m]
    [one] = at.operands(at.maker(value))
    if source == shape:
        return one
    if len(grown) != 1 or source[grown[0]] != 1 or shape[grown[0]] > MOST_ROWS:
        return None
    if [n for n in made.results[0].shape if n > 1] != [n for n in shape if n > 1] or not at.made_by(one, "slice"):
        return None
    return at.concatenate([one] * shape[grown[0]], grown[0])


def _pad(at: PatternRewriter, op: int) -> int | None:
    """What a pad cuts off is cut off before. A border between zeros is a sum: of the terms of which it is one, or of
    the places that are joined to it."""
    spec, (value, fill) = at.spec(op), at.operands(op)
    low, high, between = sides_of(spec)
    cut = [d for d, ends in enumerate(zip(low, high, strict=True)) if min(ends) < 0 and _is_border(at, value, d)]
    if any(between) or (cut and max(*low, *high) <= 0):
        every = range(len(low))
        return None if any(between) else _cut(at, op, _cut_off(spec.operands[0].shape, low, high, every))
    if cut:
        part = _taken(at, value, _cut_off(spec.operands[0].shape, low, high, cut))
        ends = [[max(n, 0) if d in cut else n for d, n in enumerate(side)] for side in (low, high)]
        return at.pad(part, fill, *ends)
    known, made = at.splat(fill), at.made_by(value, "add", "concatenate")
    if known is not None and at.splat(value) == known:
        return at.broadcast(fill, spec.results[0].shape)
    grown = [d for d, (a, b) in enumerate(zip(low, high, strict=True)) if a or b]
    if made is None or len(grown) != 1 or known is None or known != 0 or min(*low, *high) < 0:
        return None
    [dim], parts = grown, at.operands(at.maker(value))
    rows = spec.operands[0].shape[dim]
    if rows > MOST_ROWS or ways(spec.results[0].shape[dim]) < EVENER * ways(rows):
        return None
    if made.kind == "add":
        return at.total([at.pad(part, fill, low, high) for part in parts])
    if made.attributes["dimension"] != dim:
        return None
    padded, place = list[int](), low[dim]
    for part in parts:
        size = at.type_of(part).shape[dim]
        low[dim], high[dim] = place, spec.results[0].shape[dim] - place - size
        padded.append(at.pad(part, fill, low, high))
        place += size
    return at.total(padded)


def _cut_off(shape: Sequence[int], low: Sequence[int], high: Sequence[int], dims: Sequence[int]) -> _Cut:
    """What negative padding of some dims leaves of an array."""
    sides = zip(shape, low, high, strict=True)
    ends = [(max(-a, 0), n + min(b, 0)) if d in dims else (0, n) for d, (n, a, b) in enumerate(sides)]
    return _Cut(tuple(a for a, _ in ends), tuple(b for _, b in ends), (1,) * len(ends))


def _joined(at: PatternRewriter, op: int) -> int | None:
    """What is joined to something joined already is joined with its parts, where axes divide only these."""
    spec, parts = at.spec(op), list[int]()
    dim = spec.attributes["dimension"]
    for value in at.operands(op):
        inner = at.made_by(value, "concatenate")
        flat = inner is not None and inner.attributes["dimension"] == dim and _is_border(at, value, dim)
        parts += at.operands(at.maker(value)) if flat else [value]
    return at.concatenate(parts, dim) if len(parts) > len(spec.operands) else None


def _reduced(at: PatternRewriter, op: int) -> int | None:
    """Of what is joined, the reduction over another dim is joined of reductions."""
    spec, (value, *start) = at.spec(op), at.operands(op)
    made, dims = at.made_by(value, "concatenate"), spec.attributes["dimensions"]
    if made is None or len(spec.results) != 1 or made.attributes["dimension"] in dims:
        return None
    dim = made.attributes["dimension"]
    if not _is_border(at, value, dim):
        return None
    parts = list[int]()
    for part in at.operands(at.maker(value)):
        shape = tuple(n for d, n in enumerate(at.type_of(part).shape) if d not in dims)
        parts += at.again(op, [part, *start], [TensorType(shape, spec.results[0].dtype)])
    return at.concatenate(parts, dim - sum(d < dim for d in dims))


def _summed(at: PatternRewriter, op: int) -> int | None:
    """The gradient of a place that was repeated: the sum of the places of a border, as a sum of slices."""
    spec, [value] = at.spec(op), at.operands(op)
    total = at.made_by(value, "reduce")
    inner = None if total is None else at.made_by(at.operands(at.maker(value))[0], "reshape")
    if total is None or inner is None or total.region != "add" or len(total.results) != 1:
        return None
    (turned, start), shape, made = at.operands(at.maker(value)), inner.operands[0].shape, spec.results[0].shape
    [border] = at.operands(at.maker(turned))
    dims = [d for d, (n, m) in enumerate(zip(shape, made, strict=False)) if n != m]
    if len(made) != len(shape) or len(dims) > 1 or at.splat(start) != 0 or not at.made_by(border, *_BORDERS):
        return None
    longer = [d for d, n in enumerate(inner.results[0].shape) if n > 1]
    kept = [d for d in longer if d not in total.attributes["dimensions"]]
    of = [d for d, n in enumerate(shape) if n > 1]
    if len(of) != len(longer) or [of[longer.index(d)] for d in kept] != [d for d in of if d not in dims]:
        return None
    if not dims:
        return border
    [dim] = dims
    if made[dim] != 1 or shape[dim] > MOST_ROWS:
        return None
    return at.total([row(at, border, dim, k) for k in range(shape[dim])])


def _gathered(at: PatternRewriter, op: int) -> int | None:
    """A window at a known place: a slice."""
    spec, value, window = at.spec(op), at.operands(op)[0], window_of(at.spec(op))
    starts = None if window is None else starts_of(at, op, window)
    if window is None or starts is None:
        return None
    cuts = [d for d, (n, m) in enumerate(zip(window, spec.operands[0].shape, strict=True)) if n != m]
    if not any(_is_border(at, value, d) for d in cuts):
        return None
    return at.reshape(at.slice(value, starts, [*map(operator.add, starts, window)]), spec.results[0].shape)


_WHOLE = (Convolution, Matmul, Reduction)

_BORDERS = ("slice", "add", "pad", "concatenate")

_BY_KIND = {
    "gather": _gathered,
    "broadcast_in_dim": _summed,
    "concatenate": _joined,
    "reduce": _reduced,
    "slice": _slice,
    "reverse": _reverse,
    "reshape": _repeated,
    "pad": _pad,
}
