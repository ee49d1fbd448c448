"""The pass `known_indices`: rows that are looked up at indices known beforehand are slices, repeated and joined.

    x[0 0 1 1 2 2 ..]         nearest upsampling      ->      broadcast x to pairs, reshaped
    x[0 4 8 1 5 9 ..]         striped                         x with its rows as two dims, transposed
    x[0 15 1 14 2 13 ..]      pairs of blocks                 a look-up in a known order
    x[4 5 6 7 0 1 2 3]        blocks                          x[4:], x[:4] joined
    scatter by add at 1 3 5   the gradient                    a pad by 1, one place between elements

A look-up in a tiled dim is a sum over devices of all that is looked up; of slices every tile reads its own rows or its
neighbours'. Indices are taken apart into arithmetic progressions, up to `MOST_PARTS` in one round of repeating,
interleaving or joining; of a few blocks, and of others, the order is written to the look-up. What a mask that holds
everywhere guards, `jnp.take`'s default, is handed on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rules.gather import ORDER
from autopart.core.ops.rules.index_vectors import IndexArray, index_array
from autopart.core.passes.known_numbers import columns, numbers
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

MOST_PARTS = 8
"""Progressions that are interleaved or joined."""

SMALL_PART = 4
"""Fewer rows than one in so many are added in place: as a pad they would be as much as all rows."""

BLOCKS = 256
"""So many rows are taken in any order rather than interleaved, if they are long."""

LONG = 128
"""Elements of a row that is worth a message."""

EVEN = 8
"""Axes of so many devices divide the outer dims of rows that are transposed."""

MOST_TAKEN = 4096
"""So many are, rather than looked up as if they were not known."""

FEW = 3
"""So many are joined however short they are, and rather than as copies or blocks."""


@register_pass("known_indices")
@dataclass(frozen=True)
class KnownIndices(PatternPass):
    """Gathers and sums by scatter, along one dim and at indices that are known, become slices and pads."""

    roots = ("gather", "scatter", "select")

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        spec, operands = at.spec(op), at.operands(op)
        if spec.kind == "select":
            return _guarded(at, *operands)
        array = index_array(spec)
        if array is None or ORDER in spec.attributes or len(array.indexed) != 1 or array.single != array.indexed:
            return None
        along = _is_along(spec, array)
        if not along and not _takes_rows(spec, array):
            return None
        [dim], size = array.indexed, spec.operands[0].shape[array.indexed[0]]
        known = (columns if along else numbers)(at, operands[array.operand])
        if known is None or not known.size or (along and known.size != known.shape[dim]):
            return None
        batch = tuple(n for d, n in enumerate(known.shape) if d != array.vector_dim)
        known = np.broadcast_to(known.reshape(-1), spec.operands[array.operand].shape[dim]) if along else known
        rows = known.reshape(-1).astype(np.int64)
        if spec.kind == "gather":
            made = _Rows(at, dim).read(operands[0], np.clip(rows, 0, size - 1))
            return (
                made if made is None or along else _placed(at, made, dim, batch, spec.attributes["dimension_numbers"])
            )
        if rows.min() < 0 or rows.max() >= size or SMALL_PART * len(rows) < size:
            return None
        update = operands[-1]
        if not along:
            update = _taken_back(at, update, dim, batch, spec.attributes["scatter_dimension_numbers"])
        made = _Rows(at, dim).added(update, rows, size)
        return None if made is None else at.binary("add", operands[0], made)


def _guarded(at: PatternRewriter, mask: int, on_true: int, on_false: int) -> int | None:
    """The one that a mask chooses everywhere."""
    while at.spec(at.maker(mask)).kind == "broadcast_in_dim":
        [mask] = at.operands(at.maker(mask))
    known = columns(at, mask) if at.splat(on_false) is not None else None
    return on_true if known is not None and known.all() else None


def _is_along(spec: OpSpec, array: IndexArray) -> bool:
    """True if each index takes one element along the one dim that is not batched, as `take_along_axis` does."""
    rank, dims = len(spec.operands[0].shape), {*array.batching, *array.indexed}
    if spec.region not in ("", "add") or "complex" in spec.operands[0].dtype or array.vector_dim != rank:
        return False
    prefix = "operand" if spec.kind == "gather" else "input"
    names = spec.attributes["dimension_numbers" if spec.kind == "gather" else "scatter_dimension_numbers"]
    return bool(array.batching) and len(dims) == rank and tuple(names[f"{prefix}_batching_dims"]) == array.batching


def _takes_rows(spec: OpSpec, array: IndexArray) -> bool:
    """True if whole rows along the one indexed dim are read, or added to."""
    shape, [dim] = spec.operands[0].shape, array.indexed
    if array.batching or spec.region not in ("", "add") or "complex" in spec.operands[0].dtype:
        return False
    if spec.kind == "gather":
        return all(
            n == m for d, (n, m) in enumerate(zip(shape, spec.attributes["slice_sizes"], strict=True)) if d != dim
        )
    window = spec.attributes["scatter_dimension_numbers"]["update_window_dims"]
    return [spec.operands[-1].shape[d] for d in window] == [n for d, n in enumerate(shape) if d != dim]


def _placed(at: PatternRewriter, rows: int, dim: int, batch: tuple[int, ...], names: dict[str, Any]) -> int:
    """Rows along a dim, as a gather by an index array of shape `batch` leaves them."""
    shape = at.type_of(rows).shape
    order = _order(len(shape) - 1 + len(batch), dim, len(batch), names["offset_dims"])
    made = at.reshape(rows, (*shape[:dim], *batch, *shape[dim + 1 :]))
    return made if order == sorted(order) else at.transpose(made, order)


def _taken_back(at: PatternRewriter, update: int, dim: int, batch: tuple[int, ...], names: dict[str, Any]) -> int:
    """What a scatter adds, as rows along a dim."""
    shape = at.type_of(update).shape
    order = np.argsort(_order(len(shape), dim, len(batch), names["update_window_dims"])).tolist()
    made = update if order == sorted(order) else at.transpose(update, order)
    turned = at.type_of(made).shape
    return at.reshape(made, (*turned[:dim], math.prod(batch), *turned[dim + len(batch) :]))


def _order(rank: int, dim: int, count: int, window: Sequence[int]) -> list[int]:
    """Where the dims of a gather's result stand in rows of which dim `dim` is `count` dims."""
    others = iter([d for d in range(rank) if not dim <= d < dim + count])
    own = iter(range(dim, dim + count))
    return [next(others) if d in window else next(own) for d in range(rank)]


@dataclass(frozen=True)
class _Rows:
    """Rows along dim `dim` of arrays, read or added to at known places."""

    at: PatternRewriter
    dim: int

    def read(self, value: int, rows: np.ndarray) -> int | None:
        """The rows of a value."""
        at, count = self.at, len(rows)
        if (step := _step(rows)) is not None:
            return self._progression(value, int(rows[0]), step, count)
        if (times := _repeats(rows)) > 1:
            inner = self.read(value, rows[::times])
            return None if inner is None else self._spread(inner, times, 1)
        ends, shape = _runs(rows), at.type_of(value).shape
        few = 0 < len(ends) <= FEW + 1
        if few and all(_step(rows[a:b]) == 1 for a, b in pairwise(ends)):
            return self._joined(value, rows, ends)
        if (times := _copies(rows)) > 1:
            inner = self.read(value, rows[: count // times])
            return None if inner is None else self._spread(inner, times, 0)
        if (size := _blocks(rows, shape[self.dim])) > 1:
            inner = self.read(self._split(value, size), rows[::size] // size)
            return None if inner is None else self._merged(inner)
        digits = _digits(rows, shape[self.dim])
        if digits and all(n % EVEN == 0 for n in (digits[0][0], max(digits, key=lambda digit: abs(digit[1]))[0])):
            return self._turned(value, digits)
        if count <= BLOCKS and math.prod(shape[self.dim + 1 :]) >= LONG:
            return self._taken(value, rows)
        if few:
            return self._joined(value, rows, ends)
        if digits:
            return self._turned(value, digits)
        if (apart := _interleaved(rows)) > 1:
            parts = [self.read(value, rows[k::apart]) for k in range(apart)]
            columns = [self._split(part, 1) for part in parts if part is not None]
            return self._merged(at.concatenate(columns, self.dim + 1))
        if ends:
            return self._joined(value, rows, ends)
        return self._taken(value, rows) if count <= MOST_TAKEN else None

    def _turned(self, value: int, digits: list[tuple[int, int]]) -> int:
        """All rows, with the dims into which theirs is split in another order, some of them backwards."""
        at, shape, dim = self.at, self.at.type_of(value).shape, self.dim
        by_step = sorted(range(len(digits)), key=lambda k: -abs(digits[k][1]))
        split = at.reshape(value, (*shape[:dim], *(digits[k][0] for k in by_step), *shape[dim + 1 :]))
        moved = [dim + by_step.index(k) for k in range(len(digits))]
        rest = range(dim + len(digits), len(shape) + len(digits) - 1)
        made = at.transpose(split, [*range(dim), *moved, *rest])
        back = [dim + k for k, (_, step) in enumerate(digits) if step < 0]
        return at.reshape(at.reverse(made, back) if back else made, shape)

    def _taken(self, value: int, rows: np.ndarray) -> int:
        """Rows in any order: a look-up that is marked as known, of which devices are sent what they ask for."""
        made = self.at.take(value, self.at.constant(rows.tolist(), "i32", rows.shape), self.dim)
        self.at.rewriting.mark(made, ORDER, tuple(rows.tolist()))
        return made

    def _joined(self, value: int, rows: np.ndarray, ends: list[int]) -> int:
        parts = (self.read(value, rows[a:b]) for a, b in pairwise(ends))
        return self.at.concatenate([part for part in parts if part is not None], self.dim)

    def added(self, value: int, rows: np.ndarray, size: int) -> int | None:
        """Zeros of `size` rows to which the rows of a value are added at places."""
        at, count = self.at, len(rows)
        if count == size and (np.bincount(rows, minlength=size) == 1).all():
            return self.read(value, np.argsort(rows))
        if (step := _step(rows)) is not None:
            return self._put(value, int(rows[0]), step, size)
        if (times := _repeats(rows)) > 1:
            return self.added(self._summed(self._split(value, times), self.dim + 1), rows[::times], size)
        ends = _runs(rows)
        few = 0 < len(ends) <= FEW + 1
        if not few and (times := _copies(rows)) > 1:
            each = count // times
            return self.added(self._summed(self._split(value, each), self.dim), rows[:each], size)
        if not few and (length := _blocks(rows, size)) > 1:
            made = self.added(self._split(value, length), rows[::length] // length, size // length)
            return None if made is None else self._merged(made)
        if not few and (apart := _interleaved(rows)) > 1:
            split = self._split(value, apart)
            parts = [self._merged(self._cut(split, self.dim + 1, k, k + 1)) for k in range(apart)]
            made = [self.added(part, rows[k::apart], size) for k, part in enumerate(parts)]
        else:
            cuts = pairwise(ends)
            made = [self.added(self._cut(value, self.dim, a, b), rows[a:b], size) for a, b in cuts]
        return at.total([part for part in made if part is not None]) if made else None

    def _progression(self, value: int, first: int, step: int, count: int) -> int:
        at, shape = self.at, self.at.type_of(value).shape
        if not step:
            made = (*shape[: self.dim], count, *shape[self.dim + 1 :])
            return at.broadcast(self._cut(value, self.dim, first, first + 1), made, range(len(shape)))
        low = min(first, first + (count - 1) * step)
        part = self._cut(value, self.dim, low, low + (count - 1) * abs(step) + 1, abs(step))
        return part if step > 0 else at.reverse(part, [self.dim])

    def _put(self, value: int, first: int, step: int, size: int) -> int:
        at, count = self.at, self.at.type_of(value).shape[self.dim]
        if not step:
            value, count = self._split(self._summed(value, self.dim), 1, self.dim), 1
        value = at.reverse(value, [self.dim]) if step < 0 else value
        low, apart = min(first, first + (count - 1) * step), max(abs(step), 1)
        sides = (low, size - low - (count - 1) * apart - 1, apart - 1)
        rank, zero = len(at.type_of(value).shape), at.constant(0, at.type_of(value).dtype)
        return at.pad(value, zero, *([side if d == self.dim else 0 for d in range(rank)] for side in sides))

    def _cut(self, value: int, dim: int, begin: int, end: int, step: int = 1) -> int:
        shape = self.at.type_of(value).shape
        if (begin, end, step) == (0, shape[dim], 1):
            return value
        ends = [(begin, end, step) if d == dim else (0, n, 1) for d, n in enumerate(shape)]
        return self.at.slice(value, *zip(*ends, strict=True))

    def _summed(self, value: int, dim: int) -> int:
        return self.at.combine("add", value, self.at.constant(0, self.at.type_of(value).dtype), [dim])

    def _split(self, value: int, size: int, dim: int | None = None) -> int:
        """The dim as one of groups and one of `size` rows in each; or one more dim of that size."""
        shape = self.at.type_of(value).shape
        if dim is not None:
            return self.at.reshape(value, (*shape[:dim], size, *shape[dim:]))
        groups = shape[self.dim] // size
        return self.at.reshape(value, (*shape[: self.dim], groups, size, *shape[self.dim + 1 :]))

    def _merged(self, value: int) -> int:
        """The dim and the next one as one."""
        shape = self.at.type_of(value).shape
        both = shape[self.dim] * shape[self.dim + 1]
        return self.at.reshape(value, (*shape[: self.dim], both, *shape[self.dim + 2 :]))

    def _spread(self, value: int, times: int, behind: int) -> int:
        """Each row so often, or all rows so often one after the other."""
        shape, place = self.at.type_of(value).shape, self.dim + behind
        made = (*shape[:place], times, *shape[place:])
        return self._merged(self.at.broadcast(value, made, [d for d in range(len(made)) if d != place]))


# ---- what indices are


def _step(rows: np.ndarray) -> int | None:
    """How far rows are apart, if all are alike; 1 for one row."""
    steps = np.diff(rows)
    return 1 if not steps.size else int(steps[0]) if (steps == steps[0]).all() else None


def _repeats(rows: np.ndarray) -> int:
    """How often each row comes, one after the other."""
    changes = np.flatnonzero(np.diff(rows)) + 1
    return math.gcd(len(rows), *changes.tolist())


def _copies(rows: np.ndarray) -> int:
    """How often all rows come one after the other: one of few, of a shorter part that comes again."""
    count = len(rows)
    first = np.flatnonzero(rows == rows[0])
    for period in first[1 : MOST_PARTS + 1].tolist():
        if count % period == 0 and (rows.reshape(-1, period) == rows[:period]).all():
            return count // period
    return 1


def _blocks(rows: np.ndarray, size: int) -> int:
    """How long the blocks are that rows come in, each whole and from its begin; 1 for none."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    length = math.gcd(len(rows), size, *breaks.tolist(), *np.unique(rows[np.append(0, breaks)]).tolist())
    return length if length < len(rows) else 1


def _digits(rows: np.ndarray, size: int) -> list[tuple[int, int]]:
    """(count, step) of each dim, the outermost first, where rows are all rows as an array with its dims in another
    order has them; [] for none."""
    digits, left = list[tuple[int, int]](), rows
    while len(left) > 1:
        steps = np.diff(left)
        count = int(np.append(np.flatnonzero(steps != steps[0]), len(steps))[0]) + 1
        if len(left) % count or (np.diff(left.reshape(-1, count)) != steps[0]).any():
            return []
        digits, left = [(count, int(steps[0])), *digits], left[::count]
    whole = math.prod(count for count, _ in digits) == size
    radix = 1
    for count, step in sorted(digits, key=lambda digit: abs(digit[1])):
        if abs(step) != radix:
            return []
        radix *= count
    return digits if whole and rows.min() == 0 else []


def _interleaved(rows: np.ndarray) -> int:
    """Of how many progressions rows are taken in turn; 1 for more than a few."""
    for apart in range(2, MOST_PARTS + 1):
        if (
            len(rows) % apart == 0
            and len(rows) > 2 * apart
            and (np.diff(rows.reshape(-1, apart), 2, axis=0) == 0).all()
        ):
            return apart
    return 1


def _runs(rows: np.ndarray) -> list[int]:
    """Where progressions end that follow one another, from 0 on; [] for more than a few, or short ones."""
    ends, steps = [0], np.diff(rows)
    while ends[-1] < len(rows):
        begin = ends[-1]
        others = np.flatnonzero(steps[begin:] != steps[begin]) if begin < len(steps) else np.zeros(0, np.int64)
        length = int(others[0]) + 1 if others.size else len(rows) - begin
        ends.append(begin + (1 if length == 2 else length))
        if len(ends) > MOST_PARTS + 1:
            return []
    return ends if len(ends) <= FEW + 1 or len(rows) >= FEW * len(ends) else []
