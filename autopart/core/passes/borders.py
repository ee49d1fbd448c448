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
from dataclasses import dataclass, replace

from autopart.core.passes.bordered_windows import pooled, windowed
from autopart.core.passes.cuts import MOST_ROWS, Cut, cut_of, cut_off, is_border, row, taken
from autopart.core.passes.even_slices import ways
from autopart.core.passes.joined_reductions import reduced
from autopart.core.passes.pads import sides_of
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.spaces import EVENER


@register_pass("borders")
@dataclass(frozen=True)
class Borders(PatternPass):
    """Slices of what was joined or padded become slices of its parts; windows over it compute the border by itself.

    windows   False leaves windows whole
    """

    windows: bool = True

    roots = (
        "slice", "reverse", "reshape", "pad", "concatenate", "reduce", "broadcast_in_dim", "convolution",
        "reduce_window", "select_and_scatter",
    )  # fmt: skip

    def whole(self) -> Pass:
        """See `Pass.whole`: windows are left whole."""
        return replace(self, windows=False)

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        at.shares, by_kind = True, _BY_KIND[at.spec(op).kind]
        return by_kind(at, op) if self.windows or by_kind not in (windowed, pooled) else None


def _slice(at: PatternRewriter, op: int) -> int | None:
    attributes = at.spec(op).attributes
    return cut_of(at, op, Cut(*(tuple(attributes[name]) for name in ("start_indices", "limit_indices", "strides"))))


def _reverse(at: PatternRewriter, op: int) -> int | None:
    """A border backwards: its places one by one."""
    spec, [value] = at.spec(op), at.operands(op)
    shape = spec.results[0].shape
    dims = [d for d in spec.attributes["dimensions"] if shape[d] > 1]
    if not dims:
        return value
    [dim, *others] = dims
    if others or shape[dim] > MOST_ROWS or not is_border(at, value, dim):
        return None
    rows = [row(at, value, dim, place) for place in reversed(range(shape[dim]))]
    return at.concatenate(rows, dim)


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
    """A pad by nothing is what it pads, and what a pad cuts off is cut off before. A border between zeros is a sum: of
    the terms of which it is one, or of the places that are joined to it."""
    spec, (value, fill) = at.spec(op), at.operands(op)
    low, high, between = sides_of(spec)
    if not any((*low, *high, *between)):
        return value
    cut = [d for d, ends in enumerate(zip(low, high, strict=True)) if min(ends) < 0 and is_border(at, value, d)]
    if any(between):
        return _with_holes(at, op)
    if cut and max(*low, *high) <= 0:
        return cut_of(at, op, cut_off(spec.operands[0].shape, low, high, range(len(low))))
    if cut:
        part = taken(at, value, cut_off(spec.operands[0].shape, low, high, cut))
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


def _with_holes(at: PatternRewriter, op: int) -> int | None:
    """A pad that puts holes between elements and a border around them: one after the other, the last hole behind."""
    spec, (value, fill) = at.spec(op), at.operands(op)
    low, high, between = sides_of(spec)
    shape = spec.operands[0].shape
    even = [n * (step + 1) for n, step in zip(shape, between, strict=True)]
    if not any(ways(n) >= EVENER * max(ways(m), 2) for n, m in zip(even, spec.results[0].shape, strict=True)):
        return None
    made = at.pad(value, fill, [0] * len(low), between, between)
    return at.pad(made, fill, low, [*map(operator.sub, high, between)])


def _joined(at: PatternRewriter, op: int) -> int | None:
    """What is joined to something joined already is joined with its parts, where axes divide only these."""
    spec, parts = at.spec(op), list[int]()
    dim = spec.attributes["dimension"]
    for value in at.operands(op):
        inner = at.made_by(value, "concatenate")
        flat = inner is not None and inner.attributes["dimension"] == dim and is_border(at, value, dim)
        parts += at.operands(at.maker(value)) if flat else [value]
    return at.concatenate(parts, dim) if len(parts) > len(spec.operands) else None


def _reduced(at: PatternRewriter, op: int) -> int | None:
    """Of what is joined, the reduction over another dim is joined of reductions."""
    spec, value = at.spec(op), at.operands(op)[0]
    made = at.made_by(value, "concatenate")
    dim = -1 if made is None or len(spec.results) != 1 else made.attributes["dimension"]
    if dim < 0 or dim in spec.attributes["dimensions"] or not is_border(at, value, dim):
        return None
    return reduced(at, op, at.operands(at.maker(value)), dim)


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


_BORDERS = ("slice", "add", "pad", "concatenate")

_BY_KIND = {
    "convolution": windowed,
    "reduce_window": windowed,
    "select_and_scatter": pooled,
    "broadcast_in_dim": _summed,
    "concatenate": _joined,
    "reduce": _reduced,
    "slice": _slice,
    "reverse": _reverse,
    "reshape": _repeated,
    "pad": _pad,
}
