"""Windows over an array with a border, and windows that leave one: the border is computed by itself.

    %p = concatenate %x[-1:], %x, %x[:1]                     f32[8194]
    %y = convolution %p, %w, a window of 3           ->      %c = convolution %x, %w, 1 before and behind
                                       f32[8192]             concatenate (convolution %p[:3], %w), %c[1:-1],
                                                                         (convolution %p[8191:], %w)

    convolution %g, %w, 2 before and behind          ->      concatenate (convolution %g[:1], %w, 2 before, 0 behind),
        its gradient, f32[8194] of f32[8192]                             (convolution %g, %w, 1 before and behind),
                                                                         (convolution %g[8191:], %w, ..)

    convolution %p, %g, a window of 8192             ->      convolution %x, %g but its ends, 1 before and behind
        that of %w, f32[3]                                   + convolution %p[:3], %g[:1] + ..

A window moves over tiles of %x with a halo, and a few rows are computed from a few rows.
"""

from __future__ import annotations

from autopart.core.op import TensorType
from autopart.core.ops.rule import traits_of
from autopart.core.ops.rules.reduce_window import windows
from autopart.core.ops.rules.select_and_scatter import EXPANDED, least
from autopart.core.ops.rules.windows import Window
from autopart.core.ops.traits import Elementwise
from autopart.core.passes.cuts import MOST_JOINED, MOST_ROWS, Core, Cut, core_of, is_border, part, taken
from autopart.core.passes.even_slices import ways
from autopart.core.passes.pads import sides_of
from autopart.core.passes.pattern_rewriter import PatternRewriter, dense
from autopart.core.passes.program_pass import APART
from autopart.core.passes.spaces import EVENER, Space, evens_out, over, places_read, spaces_of


def windowed(at: PatternRewriter, op: int) -> int | None:
    """What stands for windows over an array with a border, or for windows that leave one."""
    spec, value = at.spec(op), at.operands(op)[0]
    for space in spaces_of(spec):
        core = core_of(at, value, space.read)
        if is_border(at, value, space.read) and evens_out(spec, space.read):
            if _is_padding(at, op, space.read):
                continue
            of_kernel = space.window.window > space.window.out
            made = _kernel_gradient(at, op, space, core) if of_kernel else _over_core(at, op, space, core)
        else:
            made = _leaving_border(at, op, space, core)
        if made is not None:
            return made
    return None


def _is_padding(at: PatternRewriter, op: int, dim: int) -> bool:
    """True if the border is padding that goes into that of the op."""
    value, other = at.operands(op)
    made = at.spec(at.maker(value))
    if made.kind != "pad" or not any(made.attributes[f"edge_padding_{end}"][dim] for end in ("low", "high")):
        return False
    fill = at.splat(at.operands(at.maker(value))[1])
    return fill is not None and fill == (0 if at.spec(op).kind == "convolution" else at.splat(other))


def _over_core(at: PatternRewriter, op: int, space: Space, core: Core) -> int | None:
    """The op over what axes divide, and its first and last places, which read the border, by themselves."""
    value, *others = at.operands(op)
    window = space.window
    first, last = _inside(window, core)
    if not _is_narrow(window, core, first, last):
        return None
    pads = {space.place: (window.low + core.begin, window.high + window.size - core.end)}
    made = over(at, op, (part(at, value, space.read, core.begin, core.end), *others), {}, pads)
    return _joined(at, op, space, first, part(at, made, space.made, first, last), last)


def _is_narrow(window: Window, core: Core, first: int, last: int) -> bool:
    """True if few places of what windows leave, from 0 to `first` and from `last` on, read a border that is narrow."""
    narrow = MOST_JOINED * (window.size - core.end + core.begin) <= window.size
    return narrow and max(first, window.out - last) <= MOST_ROWS


def _inside(window: Window, core: Core) -> tuple[int, int]:
    """From which to which place windows read the core alone."""
    first = min(max(-(-(core.begin + window.low) // window.stride), 0), window.out)
    end = places_read(window, 0, 1)[1]
    return first, max(min(-(-(core.end + 1 - end) // window.stride), window.out), first)


def pooled(at: PatternRewriter, op: int) -> int | None:
    """The gradient of a maximum over windows: with the padding as its own, which jax leaves to a pad; or as a sum of
    that of windows in the core, and of the first and the last ones."""
    spec, (value, gradient, start), [result] = at.spec(op), at.operands(op), at.rewriting.results(op)
    shape = spec.operands[1].shape
    found = windows(spec, shape)
    bordered = [d for d, w in enumerate(found) if w.size != w.out and is_border(at, value, d)]
    if least(spec) is None or not bordered or not _is_cut(at, result):
        return None
    made = at.spec(at.maker(value))
    if made.kind == "pad" and at.splat(at.operands(at.maker(value))[1]) == least(spec):
        low, high, between = sides_of(made)
        if any((*low, *high)) and not any(between) and min(*low, *high) >= 0:
            ends = [(a, a + n) for a, n in zip(low, made.operands[0].shape, strict=True)]
            return _scattered(at, op, ends, gradient, [(0, w.out) for w in found])
    everywhere = [(0, w.size) for w in found]
    for dim in bordered:
        core, window, every = core_of(at, value, dim), found[dim], [(0, w.out) for w in found]
        first, last = _inside(window, core)
        if not _is_narrow(window, core, first, last) or ways(window.out) < EVENER * max(ways(window.size), 2):
            continue
        inside = at.select(at.box(shape, [(dim, first, last)]), gradient, at.broadcast(start, shape))
        terms = [_scattered(at, op, _at(everywhere, dim, core.begin, core.end), inside, every)]
        for begin, end in ((0, first), (last, window.out)):
            if begin < end:
                low, high = places_read(window, begin, end)
                of = _at(everywhere, dim, max(low, 0), min(high, window.size))
                rows = part(at, gradient, dim, begin, end)
                terms.append(_scattered(at, op, of, rows, _at(every, dim, begin, end)))
        return at.total(terms)
    return None


Ends = list[tuple[int, int]]


def _at(ends: Ends, dim: int, begin: int, end: int) -> Ends:
    return [*ends[:dim], (begin, end), *ends[dim + 1 :]]


def _scattered(at: PatternRewriter, op: int, of: Ends, gradient: int, by: Ends) -> int:
    """What some windows give to some places, between zeros."""
    spec, (value, _, start) = at.spec(op), at.operands(op)
    shape, padding = spec.results[0].shape, list[tuple[int, int]]()
    for window, (first, last), ends in zip(windows(spec, spec.operands[1].shape), of, by, strict=True):
        low, high = places_read(window, *ends)
        padding.append((first - low, high - last))
    starts, limits = zip(*of, strict=True)
    read = taken(at, value, Cut(starts, limits, (1,) * len(of)))
    [made] = at.again(op, [read, gradient, start], [at.type_of(read)], padding=dense(padding))
    at.rewriting.mark(made, APART)
    if any(map(any, padding)):
        at.rewriting.mark(made, EXPANDED)
    return at.pad(made, start, [a for a, _ in of], [n - b for n, (_, b) in zip(shape, of, strict=True)])


def _leaving_border(at: PatternRewriter, op: int, space: Space, core: Core) -> int | None:
    """Of windows that leave a few places more than axes divide, these by themselves; not if all is needed at once."""
    [result], window = at.rewriting.results(op), space.window
    size = window.out
    length, left = divmod((core.end - core.begin) * window.dilation, window.stride)
    readers = [
        r.attributes["start_indices"][space.made]
        for r in map(at.spec, at.rewriting.readers(result))
        if r.kind == "slice" and r.results[0].shape[space.made] == length
    ]
    centred = (core.begin * window.dilation - sum(places_read(window, 0, 1)) // 2) // window.stride
    begin = readers[0] if readers else centred
    border = size - length
    if left or not 0 < border * MOST_JOINED <= size or ways(length) < EVENER * max(ways(size), 2):
        return None
    if not 0 <= begin <= border or max(begin, border - begin) > MOST_ROWS or not _is_cut(at, result):
        return None
    return _joined(at, op, space, begin, window_part(at, op, space, begin, begin + length), begin + length)


def _is_cut(at: PatternRewriter, value: int) -> bool:
    """True if slices, or what is made of slices, read a value, and nothing needs all of it."""
    readers = at.rewriting.readers(value)
    kinds = "slice", "pad", "convolution", "reduce_window"
    return not at.rewriting.is_seen(value) and all(
        (spec := at.spec(r)).kind in kinds or isinstance(traits_of(spec), Elementwise) for r in readers
    )


def _joined(at: PatternRewriter, op: int, space: Space, first: int, core: int, last: int) -> int:
    """The first places and the last ones around those in between."""
    parts = [core]
    if first:
        parts.insert(0, window_part(at, op, space, 0, first))
    if last < space.window.out:
        parts.append(window_part(at, op, space, last, space.window.out))
    return at.concatenate(parts, space.made) if len(parts) > 1 else core


def window_part(at: PatternRewriter, op: int, space: Space, begin: int, end: int) -> int:
    """Places of a dim of what windows leave: the op over what they read. If that is most of the dim, over all of it."""
    (value, *others), window = at.operands(op), space.window
    low, high = places_read(window, begin, end)
    start = min(max(-(-low // window.dilation), 0), window.size - 1)
    limit = max(min((high - 1) // window.dilation + 1, window.size), start + 1)
    if 2 * (limit - start) > window.size:
        start, limit = 0, window.size
    pads = start * window.dilation - low, high - (limit - 1) * window.dilation - 1
    read = part(at, value, space.read, start, limit)
    return over(at, op, (read, *others), {space.made: end - begin}, {space.place: pads})


def _kernel_gradient(at: PatternRewriter, op: int, space: Space, core: Core) -> int | None:
    """The sum over what axes divide, and those over the first and the last places of the window, which meet the border.

    The core is padded where these meet it, so they are zero there: infinite ones times padding would be NaN. Where a
    place of the core is infinite that is a NaN too, and the sum over the first and the last places, which has it as it
    was, stands by itself.
    """
    spec, window, (value, kernel) = at.spec(op), space.window, at.operands(op)
    border = window.size - core.end + core.begin
    if spec.kind != "convolution" or window.reversed or MOST_JOINED * border > window.size:
        return None
    dim = spec.attributes["dimension_numbers"]["kernel_spatial_dimensions"][space.place]
    step, reach = window.window_dilation, (window.out - 1) * window.stride
    first = min(max(-(-(core.begin + window.low) // step), 0), window.window)
    last = max(min((core.end + window.low - reach + step - 1) // step, window.window), first)
    if max(first, window.window - last) > MOST_ROWS:
        return None
    of = at.type_of(kernel)
    zeros = at.broadcast(at.constant(0, of.dtype), of.shape)
    inside = at.select(at.box(of.shape, [(dim, first, last)]), kernel, zeros)
    pads = core.begin + window.low, window.size - core.end + window.high
    made = over(at, op, (part(at, value, space.read, core.begin, core.end), inside), {}, {space.place: pads})
    ends = list[int]()
    for begin, end in ((0, first), (last, window.window)):
        low, high = begin * step - window.low, (end - 1) * step - window.low + reach + 1
        if begin < end and low < window.size and high > 0:
            read = part(at, value, space.read, max(low, 0), min(high, window.size)), part(at, kernel, dim, begin, end)
            pads = {space.place: (max(-low, 0), max(high - window.size, 0))}
            ends.append(over(at, op, read, {}, pads))
    if not ends:
        return made
    outer = at.total(ends)
    both, type_ = at.binary("add", made, outer), at.type_of(outer)
    if not type_.dtype.startswith(("f", "bf")):
        return both
    [finite] = at.create("stablehlo.is_finite", [outer], [TensorType(type_.shape, "i1")])
    return at.select(finite, both, outer)
