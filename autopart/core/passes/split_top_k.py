"""The pass `split_top_k`: the largest of a long row are the largest of those that its groups put forward.

    %v, %p = top_k(%x[n], k)      ->      %g = top_k(%x as [groups, n / groups], k)
                                          %v, %q = top_k(%g as [groups * k], k)
                                          %p = positions in %x of %g, at %q

Devices that share a row exchange what their groups put forward, and not the row: the logits of a vocabulary, for each
token that is sampled. On one device the second choice is among few, beside a first one of equal work.

The numbers are the same to the bit: of equal ones the first, since groups stand in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autopart.core.doors.jax_internals import ir, stablehlo
from autopart.core.mlir_values import i64, i64s
from autopart.core.op import OpSpec, TensorType
from autopart.core.passes.groups import MOST, groups_of, is_long
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

_SHARE = 8
"""What groups put forward is at most this part of the row."""


_SHORTEST = 4096
"""Shorter rows are chosen from in one round: on one device 1,024 in groups of 256 took longer, laid out twice."""


@register_pass("split_top_k")
@dataclass(frozen=True)
class SplitTopK(PatternPass):
    """Chooses the largest of long rows in two rounds."""

    again = False
    roots = ("chlo.top_k",)

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return _groups(spec.operands[0], spec.results[0].shape[-1]) > 1

    def rewrite(self, at: PatternRewriter, op: int) -> tuple[int, int]:
        """See `PatternPass.rewrite`."""
        (*batch, size), (value, position) = at.spec(op).operands[0].shape, at.spec(op).results
        k = value.shape[-1]
        groups = _groups(at.spec(op).operands[0], k)
        values, places = _top_k(at, at.reshape(at.operands(op)[0], (*batch, groups, size // groups)), position.dtype, k)
        group = at.iota(at.type_of(places), len(batch))
        each = at.broadcast(at.constant(size // groups, position.dtype), at.type_of(places).shape)
        places = at.binary("add", places, at.binary("multiply", group, each))
        forward = (*batch, groups * k)
        best, chosen = _top_k(at, at.reshape(values, forward), position.dtype, k)
        return best, _looked_up(at, at.reshape(places, forward), at.reshape(chosen, (*batch, k, 1)), position)


def _groups(row: TensorType, k: int) -> int:
    """How many groups a row has that put `k` each forward."""
    if not row.shape or not is_long(row, len(row.shape) - 1, _SHORTEST):
        return 1
    return groups_of(row.shape[-1], min(MOST, row.shape[-1] // (_SHARE * max(1, k))))


def _top_k(at: PatternRewriter, row: int, counted: str, k: int) -> list[int]:
    type_ = at.type_of(row)
    shape = (*type_.shape[:-1], k)
    return at.create("chlo.top_k", [row], [TensorType(shape, type_.dtype), TensorType(shape, counted)], k=i64(k))


def _looked_up(at: PatternRewriter, rows: int, places: int, made: TensorType) -> int:
    """Of each row, the entries at its places."""
    rank = len(made.shape) - 1
    batch = list(range(rank))
    numbers = stablehlo.GatherDimensionNumbers.get([], [rank], batch, batch, [rank], rank + 1)
    sides: dict[str, Any] = {"slice_sizes": i64s([1] * (rank + 1)), "indices_are_sorted": ir.BoolAttr.get(False)}
    return at.create("stablehlo.gather", [rows, places], [made], dimension_numbers=numbers, **sides)[0]
