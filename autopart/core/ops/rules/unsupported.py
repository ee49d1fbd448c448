"""Ops that are known and cannot be sliced, with the reason that users are shown."""

from __future__ import annotations

from autopart.core.ops.rule import blocked
from autopart.core.ops.traits import UNKNOWN_FLOP


def _blocked(reason: str, *kinds: str, effect: bool = False) -> None:
    blocked(*kinds, reason=reason, family="unsupported", traits=UNKNOWN_FLOP, effect=effect)


_blocked(
    "its shape is decided at run time; lower the program for concrete shapes",
    *["dynamic_broadcast_in_dim", "dynamic_conv", "dynamic_gather", "dynamic_iota", "dynamic_pad", "dynamic_reshape"],
    *["real_dynamic_slice", "set_dimension_size", "get_dimension_size"],
)
_blocked("quantized types are not supported", "uniform_quantize", "uniform_dequantize")
_blocked(
    "it talks to the host or to another program",
    *["infeed", "outfeed", "send", "recv", "after_all", "create_token", "async_start", "async_done"],
    effect=True,
)
_blocked("tuples are not arrays; return the elements instead", "tuple", "get_tuple_element")
_blocked("XLA cannot run it", "unary_einsum", "chlo._asin_acos_kernel")
