"""The pass `pooling_gradients`: the gradient of a padded max pool knows its padding.

    %p = pad %x by the least number, 0 and 1                   f32[1,65,64]
    %s = select_and_scatter %p, %gradient, no padding          f32[1,65,64]     ->     select_and_scatter %x, %gradient,
    slice %s [:, :64]                                          f32[1,64,64]              0 and 1 around

jax writes it so on CPU and GPU. In between is a dim that no axis divides, and what is left has tiles
(`core/ops/rules/select_and_scatter.py`, which emits the pad again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rules.select_and_scatter import EXPANDED, least
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter, dense
from autopart.core.passes.program_pass import register_pass


@register_pass("pooling_gradients")
@dataclass(frozen=True)
class PoolingGradients(PatternPass):
    """A pad before, and a slice behind, the gradient of a max pool become its padding."""

    roots = ("select_and_scatter",)

    def rewrite(self, at: PatternRewriter, op: int) -> None:
        """See `PatternPass.rewrite`."""
        padded, *others = at.operands(op)
        padding, [made] = _padding(at, padded, at.spec(op)), at.rewriting.results(op)
        if padding is None:
            return
        readers = at.only_readers(made, "slice", "pad") if np.any(padding) else [op]
        if not readers or not all(r == op or _cuts(at.spec(r), padding) for r in readers):
            return
        value = at.operands(at.maker(padded))[0]
        [result] = at.again(op, [value, *others], [at.type_of(value)], padding=dense(padding))
        at.rewriting.mark(result, EXPANDED)
        for reader in readers:
            at.replace(reader, result)


def _padding(at: PatternRewriter, value: int, spec: OpSpec) -> list[tuple[int, int]] | None:
    """What a pad adds before and behind each dim, if it adds what no comparison selects and the op pads nothing."""
    made = at.spec(at.maker(value))
    if made.kind != "pad" or any(made.attributes["interior_padding"]) or np.any(spec.attributes.get("padding") or 0):
        return None
    fill, low, high = at.splat(at.operands(at.maker(value))[1]), *_edges(made)
    known = least(spec) is not None and fill is not None and bool(fill == least(spec))
    return list(zip(low, high, strict=True)) if known and min(*low, *high) >= 0 else None


def _edges(pad: OpSpec) -> tuple[Sequence[int], Sequence[int]]:
    return pad.attributes["edge_padding_low"], pad.attributes["edge_padding_high"]


def _cuts(spec: OpSpec, padding: list[tuple[int, int]]) -> bool:
    """True for a slice, or a pad that only cuts, of all but the padding."""
    shape = spec.operands[0].shape
    if spec.kind == "pad" and not any(spec.attributes["interior_padding"]):
        low, high = _edges(spec)
        return [(-a, -b) for a, b in zip(low, high, strict=True)] == padding
    if spec.kind != "slice" or set(spec.attributes["strides"]) != {1}:
        return False
    starts, limits = spec.attributes["start_indices"], spec.attributes["limit_indices"]
    return [(a, n - b) for a, b, n in zip(starts, limits, shape, strict=True)] == padding
