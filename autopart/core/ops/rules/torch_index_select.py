"""Tile mappings of torch_index_select.

x[b,v,f], indices[b,n] -> y[b,n,f]    selected along dim 1, one batch dim

b  (0, 0) -> tile 0     n  (_, 1) -> tile 1     f  (2, _) -> tile 2     v is blocked: use gather
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.passages import moved_by_index
from autopart.core.ops.rule import rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Slicing


@rule(
    "torch_index_select",
    traits=Slicing(indexed=True, by_index=True, passes=moved_by_index()),
    examples=(
        op(
            "torch_index_select",
            "6x4xf32, 2xi32 -> 2x4xf32",
            "dim = 0 : i64, batch_dims = 0 : i64",
            feed=(None, (0, 6)),
        ),
        op(
            "torch_index_select",
            "2x6x4xf32, 2x8xi32 -> 2x8x4xf32",
            "dim = 1 : i64, batch_dims = 1 : i64",
            feed=(None, (0, 6)),
        ),
    ),
)
def torch_index_select(spec: OpSpec) -> Iterable[TileMapping]:
    """Batch dims, the dims of the indices, and the dims that are not selected along."""
    indices = len(spec.operands[1].shape)
    along, batch = spec.attributes["dim"], spec.attributes["batch_dims"]
    shape = spec.results[0].shape
    selected = indices - batch
    for r, size in enumerate(shape):
        if r < batch:
            yield TileMapping((r, r), (r,), size)
        elif r < along:
            yield TileMapping((r, WHOLE), (r,), size)
        elif r < along + selected:
            yield TileMapping((WHOLE, r - along + batch), (r,), size)
        else:
            yield TileMapping((r - selected + 1, WHOLE), (r,), size)
