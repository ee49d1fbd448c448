"""The order of a value's dims in memory, where a program asks for one.

    %c = custom_call @LayoutConstraint(%x)       operand and result in order (0, 2, 1): dim 1 along the lanes

XLA lays out each array as the op wants it that makes it, and what is computed of it the same. Who knows better is in
`update_orders.py` and `left_images.py`; `image_orders.py` has the order that XLA chooses for images.
"""

from __future__ import annotations

from autopart.core.doors.jax_internals import ir

Order = tuple[int, ...]
"""Dims, the one along the lanes last."""


def in_order(value: ir.Value, order: Order) -> ir.Value:
    """The value with its dims in memory in this order."""
    index = ir.IndexType.get()
    dims = ir.RankedTensorType.get([len(order)], index)
    layout = ir.DenseIntElementsAttr.get([ir.IntegerAttr.get(index, d) for d in reversed(order)], type=dims)
    attributes: dict[str, ir.Attribute] = {
        "call_target_name": ir.StringAttr.get("LayoutConstraint"),
        "operand_layouts": ir.ArrayAttr.get([layout]),
        "result_layouts": ir.ArrayAttr.get([layout]),
    }
    return ir.Operation.create("stablehlo.custom_call", [value.type], [value], attributes).results[0]
