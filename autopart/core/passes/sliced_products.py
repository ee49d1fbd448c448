"""The pass `sliced_products`: a product of which only slices are read is a product for each slice.

    %g = dot_general %dy, %w             f32[2048,2048]          %w0 = slice %w [:512]         f32[512,1024]
    slice %g [:, :512]                   f32[2048,512]     ->    dot_general %dy, %w0          f32[2048,512]
    slice %g [:, 512:]                   f32[2048,1536]          dot_general %dy, slice %w [512:]

The gradient of arrays that were joined before a product is written so, and a product for queries, keys and values. No
tile of the product is a tile of what reads it, so all of it would be computed, or exchanged; each of the products has
the tile that its reader wants. The operand that is sliced has to be smaller than the product, the slices apart, and all
products together may fill no more tiles of a matrix unit than the one did.

The slices are of %w reshaped to its own shape, `%v = reshape %w`: there it is gathered once for all products, if it is
stored in parts. No barrier stands there, behind which the gather could not be shared with other uses of %w.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from autopart.core.op import OpSpec
from autopart.core.ops.rule import is_regathered
from autopart.core.ops.traits import elements
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

COLUMNS = 128
"""Columns of a matrix unit's tile: what a product is longer than whole tiles is computed as another tile."""


class _Cut(NamedTuple):
    """Dim `dim` of operand number `operand`, the product's `result_dim`, is read in `slices`: reader -> stretch."""

    operand: int
    dim: int
    result_dim: int
    slices: dict[int, range]


@register_pass("sliced_products")
@dataclass(frozen=True)
class SlicedProducts(PatternPass):
    """Products of which only slices are read become a product for each slice."""

    roots = ("dot_general",)

    def rewrite(self, at: PatternRewriter, op: int) -> None:
        """See `PatternPass.rewrite`."""
        cut = _cut(at, op)
        if cut is None:
            return
        operands = at.operands(op)
        for k, value in enumerate(operands):
            if k == cut.operand or _follows_an_argument(at, value):
                operands[k] = at.same(value)
        shape = at.type_of(operands[cut.operand]).shape
        for reader, stretch in cut.slices.items():
            ends = [(stretch.start, stretch.stop) if d == cut.dim else (0, n) for d, n in enumerate(shape)]
            part = at.slice(operands[cut.operand], *zip(*ends, strict=True))
            sides = [part if k == cut.operand else value for k, value in enumerate(operands)]
            at.replace(reader, at.again(op, sides, at.spec(reader).results)[0])


def _cut(at: PatternRewriter, op: int) -> _Cut | None:
    """Where a product is cut, if it is read in slices of one dim alone and cutting its operand pays."""
    spec, [value] = at.spec(op), at.rewriting.results(op)
    readers = at.only_readers(value, "slice")
    taken = {reader: _taken(at.spec(reader), spec.results[0].shape) for reader in readers}
    dims = {one[0] if one else -1 for one in taken.values()}
    if len(readers) < 2 or len(dims) != 1 or dims == {-1}:
        return None
    slices = {reader: one[1] for reader, one in taken.items() if one}
    cut = _Cut(*_free(spec, dims.pop()), slices)
    return cut if cut.operand >= 0 and _pays(spec, cut) else None


def _taken(spec: OpSpec, shape: tuple[int, ...]) -> tuple[int, range] | None:
    """The one dim of which a slice takes a stretch, and the stretch."""
    if spec.kind != "slice" or set(spec.attributes["strides"]) != {1}:
        return None
    starts, limits = spec.attributes["start_indices"], spec.attributes["limit_indices"]
    taken = [(d, range(a, b)) for d, (a, b, n) in enumerate(zip(starts, limits, shape, strict=True)) if b - a != n]
    return taken[0] if len(taken) == 1 else None


def _free(spec: OpSpec, result_dim: int) -> tuple[int, int, int]:
    """(operand, its dim, the product's dim) of a dim of the product; operand -1 for a batching dim."""
    numbers = spec.attributes["dot_dimension_numbers"]
    place = len(numbers["lhs_batching_dimensions"])
    if result_dim >= place:
        for operand, side in enumerate(("lhs", "rhs")):
            bound = {*numbers[f"{side}_batching_dimensions"], *numbers[f"{side}_contracting_dimensions"]}
            free = [d for d in range(len(spec.operands[operand].shape)) if d not in bound]
            if result_dim < place + len(free):
                return operand, free[result_dim - place], result_dim
            place += len(free)
    return -1, -1, result_dim


def _pays(spec: OpSpec, cut: _Cut) -> bool:
    """True if the slices are apart, the operand is smaller than the product, and no more tiles are filled."""
    stretches = sorted(cut.slices.values(), key=lambda stretch: stretch.start)
    apart = all(a.stop <= b.start for a, b in pairwise(stretches))
    smaller = elements(spec.operands[cut.operand]) < elements(spec.results[0])
    tiles = sum(-(-len(stretch) // COLUMNS) for stretch in stretches)
    return apart and smaller and tiles <= -(-spec.results[0].shape[cut.result_dim] // COLUMNS)


def _follows_an_argument(at: PatternRewriter, value: int) -> bool:
    """True for what is gathered for each use, where it is stored in parts."""
    op = at.maker(value)
    while is_regathered(at.spec(op)) and at.operands(op):
        op = at.maker(at.operands(op)[0])
    return at.spec(op).kind == "argument"
