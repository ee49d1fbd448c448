"""The pass `combined_slices`: what is computed of slices is a slice of what is computed over all places.

    %l = slice %odd [0:511]                      ->    %l' = pad %odd by 1 and -1           place j is place j + 1 of it
    %r = slice %elems [2:1024:2]                       %r' = slice %elems [0:1024:2]
    %v = multiply %l, %r          f32[511]             %v = slice (multiply %l', %r') [1:512]

So are filters, differences and every level of `jax.lax.associative_scan`, and so are their gradients. In between are
511 places, which no axis divides; what is left has tiles all along, and rows go to the next device where something
moves. What is joined or padded after that is up to `refilled_slices`: places are counted as they are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.passes.even_slices import EVENER, LEAST_KEPT, ways
from autopart.core.passes.pads import sides_of
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass
from autopart.core.program import Program

MOST_FOLLOWED = 64
"""Ops that are followed to where places are joined or padded."""


class Row(NamedTuple):
    """What a slice takes along one dim: every `step`-th place of a value from `start` on."""

    value: int
    start: int
    step: int
    size: int


@register_pass("combined_slices")
@dataclass(frozen=True)
class CombinedSlices(PatternPass):
    """Ops on slices become slices of ops over all places, where axes divide only these."""

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        alike = len(spec.results) == 1 and {t.shape for t in spec.operands} == {spec.results[0].shape}
        return alike and isinstance(traits_of(spec), Elementwise) and spec.kind != "concatenate"

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        return super().apply(program) if any(spec.kind == "slice" for spec in program.specs) else program

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        spec, operands, at.shares = at.spec(op), at.operands(op), True
        shape = spec.results[0].shape
        if not any(at.made_by(value, "slice") for value in operands):
            return None
        for dim, length in enumerate(shape):
            rows = [row_of(at, value, dim) for value in operands]
            sizes = {row.size // row.step for row in rows if row is not None}
            alike = all(row is not None or _is_alike_along(at, v, dim) for v, row in zip(operands, rows, strict=True))
            if not alike or len(sizes) != 1 or not _is_by_place(spec, dim):
                continue
            [size] = sizes
            if not 0 < (size - length) * LEAST_KEPT <= size or ways(size) < EVENER * ways(length):
                continue
            offsets = [row.start // row.step for row in rows if row is not None]
            before = min(_begin(at, op, dim, offsets[0]), size - length)
            type_ = TensorType((*shape[:dim], size, *shape[dim + 1 :]), spec.results[0].dtype)
            longer = [grown(at, v, row, dim, before, size) for v, row in zip(operands, rows, strict=True)]
            starts = [before if d == dim else 0 for d in range(len(shape))]
            ends = [a + n for a, n in zip(starts, shape, strict=True)]
            return at.slice(at.again(op, longer, [type_])[0], starts, ends)
        return None


def row_of(at: PatternRewriter, value: int, dim: int) -> Row | None:
    """The slice of one dim that makes a value, through slices of slices."""
    start, step = 0, 1
    row = None
    while (spec := at.made_by(value, "slice")) is not None:
        sizes = zip(spec.operands[0].shape, spec.results[0].shape, strict=True)
        if any(n != m for d, (n, m) in enumerate(sizes) if d != dim):
            break
        stride = spec.attributes["strides"][dim] if spec.results[0].shape[dim] > 1 else 1
        start, step = spec.attributes["start_indices"][dim] + start * stride, step * stride
        [value] = at.operands(at.maker(value))
        row = Row(value, start, step, at.type_of(value).shape[dim])
    return row


def _is_alike_along(at: PatternRewriter, value: int, dim: int) -> bool:
    """True for a broadcast along the dim, and for a constant that is one number everywhere."""
    spec = at.spec(at.maker(value))
    if spec.kind != "broadcast_in_dim":
        return not spec.operands and at.splat(value) is not None
    along = tuple(spec.attributes["broadcast_dimensions"])
    return dim not in along or spec.operands[0].shape[along.index(dim)] == 1


def _is_by_place(spec: OpSpec, dim: int) -> bool:
    """True if each place of the result along the dim is made of that place of the operands."""
    return any(m.results == (dim,) and set(m.operands) == {dim} and not any(m.reads) for m in mappings_of(spec) or ())


def _begin(at: PatternRewriter, op: int, dim: int, otherwise: int) -> int:
    """At which place the result begins in what it is joined or padded to, behind what is computed of it."""
    for _ in range(MOST_FOLLOWED):
        [value] = at.rewriting.results(op)
        readers = at.rewriting.readers(value)
        spec = at.spec(op := readers[0]) if readers else None
        if spec is None:
            return otherwise
        if spec.kind == "pad":
            low, _, between = sides_of(spec)
            return max(low[dim], 0) // (between[dim] + 1)
        if spec.kind == "concatenate" and spec.attributes["dimension"] == dim:
            return sum(t.shape[dim] for t in spec.operands[: at.operands(op).index(value)])
        if not isinstance(traits_of(spec), Elementwise) or len(spec.results) != 1:
            return otherwise
    return otherwise


def grown(at: PatternRewriter, value: int, row: Row | None, dim: int, before: int, size: int) -> int:
    """An operand over all places: where there is nothing to take, it is zero.

    What is sliced is first moved by whole strides, and made as long as all strides are, so that tiles stay tiles.
    """
    type_ = at.type_of(value)
    if row is None:
        made = TensorType((*type_.shape[:dim], size, *type_.shape[dim + 1 :]), type_.dtype)
        return at.again(at.maker(value), at.operands(at.maker(value)), [made])[0]
    low = (before - row.start // row.step) * row.step
    high = size * row.step - row.size - low
    made, rank = row.value, len(type_.shape)
    if low or high:
        ends = [[n if d == dim else 0 for d in range(rank)] for n in (low, high)]
        made = at.pad(made, at.constant(0, type_.dtype), *ends)
    if row.step == 1:
        return made
    first, shape = row.start % row.step, at.type_of(made).shape
    starts, steps = ([n if d == dim else m for d in range(rank)] for n, m in ((first, 0), (row.step, 1)))
    limits = [first + (size - 1) * row.step + 1 if d == dim else n for d, n in enumerate(shape)]
    return at.slice(made, starts, limits, steps)
