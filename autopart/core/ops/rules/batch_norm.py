"""Tile mappings of the batch_norm ops, which some frontends emit.

x[b,f], scale[f], offset[f] -> y[b,f], mean[f], variance[f]

f  (1, 0, 0) -> tile 1, tile 0, tile 0
b  blocked in training: the statistics are over the batch; tiles in inference, where they are given
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import Example, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Elementwise, Reduction, Traits, elements


def _example(kind: str, types: str) -> Example:
    return op(kind, types, "epsilon = 0.1 : f32, feature_index = 1 : i64", feed=(None,) * 3 + ((1, 4),), tolerance=1e-4)


_UNEXPANDED = "XLA counts none before it expands the op"


def _traits(kind: str) -> Traits:
    """Per element: 4 to normalise with given statistics, 3 more to take them, and 11 for the gradient."""
    if kind == "batch_norm_inference":
        return Elementwise(4, flop_reason=_UNEXPANDED)
    per_element = 7 if kind == "batch_norm_training" else 11
    return Reduction(flop=lambda spec: per_element * elements(spec.operands[0]), flop_reason=_UNEXPANDED)


@rule(
    "batch_norm_training",
    "batch_norm_grad",
    "batch_norm_inference",
    traits=_traits,
    examples=lambda kind: [
        _example(
            kind,
            {
                "batch_norm_training": "4x6x2xf32, 6xf32, 6xf32 -> 4x6x2xf32, 6xf32, 6xf32",
                "batch_norm_grad": "4x6x2xf32, 6xf32, 6xf32, 6xf32, 4x6x2xf32 -> 4x6x2xf32, 6xf32, 6xf32",
                "batch_norm_inference": "4x6x2xf32, 6xf32, 6xf32, 6xf32, 6xf32 -> 4x6x2xf32",
            }[kind],
        )
    ],
)
def batch_norm(spec: OpSpec) -> Iterable[TileMapping]:
    """Features; in inference also all other dims."""
    shape, feature = spec.operands[0].shape, spec.attributes["feature_index"]
    for d, size in enumerate(shape):
        if d != feature and spec.kind != "batch_norm_inference":
            continue
        small = 0 if d == feature else WHOLE
        operands = tuple(d if t.shape == shape else small for t in spec.operands)
        yield TileMapping(operands, tuple(d if t.shape == shape else small for t in spec.results), size)
