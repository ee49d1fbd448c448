"""The pass `split_cumulative`: sums along a long dim run inside its groups, and then on from group to group.

    %y = cumulative sum of %x[n]      ->      %w = cumulative sums of %x as [groups, n / groups], inside each group
                                              %b = cumulative sum of the groups' totals before each group
                                              %y = %w + %b

So do products, maxima and minima, from either end. Devices that share the dim exchange a total per group instead of the
dim: the places of tokens in their experts' queues. XLA adds up a long window in such blocks itself. A program says such
a sum as a `reduce_window` whose window is as long as the dim, or, for GPUs, as a `chlo.scan`.

Sums of floats are added in another order, and so are rounded otherwise; integers, maxima and minima are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from autopart.core.mlir_values import i64s
from autopart.core.op import OpSpec
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.cuts import row
from autopart.core.passes.groups import LEAST, MOST, groups_of, is_long
from autopart.core.passes.pattern_rewriter import COMBINED, PatternPass, PatternRewriter, dense
from autopart.core.passes.program_pass import register_pass


@register_pass("split_cumulative")
@dataclass(frozen=True)
class SplitCumulative(PatternPass):
    """Cumulative sums, products, maxima and minima of long dims run group by group."""

    again = False
    roots = ("reduce_window", "chlo.scan")

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return _running_of(spec) is not None

    def rewrite(self, at: PatternRewriter, op: int) -> list[int] | None:
        """See `PatternPass.rewrite`."""
        spec, (array, start) = at.spec(op), at.operands(op)
        running, (code, kind), first = _running_of(spec), COMBINED[spec.region], at.splat(start)
        if running is None or first is None or first != identity(code, spec.operands[0].dtype):
            return None
        (dim, up), shape = running, spec.operands[0].shape
        if ones := spec.operands[1].shape:
            start = at.reshape(at.slice(start, [0] * len(ones), [1] * len(ones)), ())
        groups = _groups(shape[dim])
        size = shape[dim] // groups
        of = (*shape[:dim], groups, size, *shape[dim + 1 :])
        inside = _running(at, at.reshape(array, of), start, kind, dim + 1, (size - 1, 0) if up else (0, size - 1))
        totals = at.reshape(row(at, inside, dim + 1, size - 1 if up else 0), (*of[: dim + 1], *of[dim + 2 :]))
        before = _running(at, totals, start, kind, dim, (groups, -1) if up else (-1, groups))
        spread = at.broadcast(before, of, [d for d in range(len(of)) if d != dim + 1])
        made = at.reshape(at.binary(kind, inside, spread), shape)
        if len(spec.results) == 1:
            return [made]
        return [made, at.reshape(row(at, made, dim, shape[dim] - 1 if up else 0), spec.results[1].shape)]


class _Running(NamedTuple):
    """What an op adds up: along which dim, and whether from its low end up."""

    dim: int
    up: bool


def _running_of(spec: OpSpec) -> _Running | None:
    """How an op runs along a dim that is worth splitting; None where there is none."""
    found = {"reduce_window": _of_window, "chlo.scan": _of_scan}.get(spec.kind, lambda spec: None)(spec)
    long = found is not None and spec.region in COMBINED and is_long(spec.operands[0], found.dim)
    return found if long and found is not None and _groups(spec.operands[0].shape[found.dim]) > 1 else None


def _groups(size: int) -> int:
    """How many groups a dim has; of a short one about as many as there are places in each."""
    return groups_of(size, MOST if size >= LEAST else math.isqrt(size))


def _of_window(spec: OpSpec) -> _Running | None:
    if len(spec.results) != 1:
        return None
    shape, attributes = spec.operands[0].shape, spec.attributes
    window = attributes["window_dimensions"]
    apart = ("window_strides", "base_dilations", "window_dilations")
    if spec.results[0].shape != shape or any(set(attributes.get(name) or (1,)) != {1} for name in apart):
        return None
    [dim, *others] = [d for d, size in enumerate(window) if size > 1] or [-1]
    if dim < 0 or others or window[dim] != shape[dim] or attributes["padding"][dim] not in _paddings(shape[dim]):
        return None
    return _Running(dim, attributes["padding"][dim] == _paddings(shape[dim])[0])


def _of_scan(spec: OpSpec) -> _Running | None:
    if len(spec.operands) != 2 or not spec.attributes["is_associative"]:
        return None
    return _Running(spec.attributes["dimension"], not spec.attributes["is_reverse"])


def _paddings(size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a window that runs up, and of one that runs down."""
    return (size - 1, 0), (0, size - 1)


def _running(at: PatternRewriter, array: int, start: int, kind: str, dim: int, padding: tuple[int, int]) -> int:
    """A window over the whole of a dim, at each place."""
    type_ = at.type_of(array)
    window = i64s([size if d == dim else 1 for d, size in enumerate(type_.shape)])
    ends = dense([padding if d == dim else (0, 0) for d in range(len(type_.shape))])
    sides: dict[str, Any] = {"window_dimensions": window, "padding": ends}
    return at.create("stablehlo.reduce_window", [array, start], [type_], by=kind, **sides)[0]
