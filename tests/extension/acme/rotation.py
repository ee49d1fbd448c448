"""An op kind of a dialect of our own, sliced on all dims but the last, which it rotates by halves."""

from autopart.core.ops import OpSpec, TileMapping, register_rule, traits


@register_rule("acme.rotate", traits=traits.Elementwise(3))
def rotate(spec: OpSpec) -> list[TileMapping]:
    """Rows are independent of each other."""
    return [TileMapping((d,), (d,), size) for d, size in enumerate(spec.operands[0].shape[:-1])]
