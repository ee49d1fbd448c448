"""A kernel that the compiler knows nothing of: its custom call, how it is sliced, and what it costs."""

from autopart.core.ops import Example, OpSpec, TileMapping, register_custom_call, traits

TYPES = "(tensor<4x2x8x16xf32>, tensor<4x2x8x16xf32>, tensor<4x2x8x16xf32>) -> tensor<4x2x8x16xf32>"


def flop(spec: OpSpec) -> float:
    """Two matmuls of tokens x tokens per head."""
    batch, heads, tokens, features = spec.operands[0].shape
    return 4.0 * batch * heads * tokens * tokens * features


@register_custom_call(
    "acme_attention",
    traits=traits.Opaque(flop=flop, matrix=True),
    examples=[Example(f'"stablehlo.custom_call"(%0, %1, %2) {{call_target_name = "acme_attention"}} : {TYPES}')],
)
def attention(spec: OpSpec) -> list[TileMapping]:
    """Over the batch, and over heads."""
    sizes = spec.operands[0].shape
    return [TileMapping((d, d, d), (d,), sizes[d]) for d in (0, 1)]
