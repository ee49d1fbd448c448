"""Tile mappings of chlo.scan, which jax writes for cumulative sums on GPUs.

    x[i,j], init[i] -> y[i,j], last[i]     along j

    i  (0, 0) -> tile 0, tile 0     each row by itself
    j is blocked here; the pass `split_cumulative` writes a long one in groups

The body combines whole slices of x, f32[i], so a tile of i changes the types in it: where it is one elementwise op,
nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.passages import Passage
from autopart.core.ops.rule import Example, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import reduction_codes
from autopart.core.ops.traits import Opaque, elements

_COUNTS = "operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>"


def _example(types: str, dim: int, kind: str, reverse: str = "false") -> Example:
    array, start = (part.strip() for part in types.split(","))
    slices, dtype = start.rpartition("x")[::2]
    attributes = f"dimension = {dim} : i64, is_associative = true, is_reverse = {reverse}, {_COUNTS}"
    body = reducer(f"{kind} {dtype}").replace(f"tensor<{dtype}>", f"tensor<{slices}x{dtype}>")
    both = body.replace('"stablehlo.return"(%c0)', '"stablehlo.return"(%c0, %c0)')
    twice = both.replace(
        f"(tensor<{slices}x{dtype}>) -> ()", f"(tensor<{slices}x{dtype}>, tensor<{slices}x{dtype}>) -> ()"
    )
    return op("chlo.scan", f"{array}, {start} -> {array}, {start}", attributes, twice)


def _passes(spec: OpSpec) -> Iterable[Passage]:
    """The reducer combines parts as it combines the whole."""
    codes = reduction_codes(spec.region, spec.results[:1])
    return () if codes is None or len(spec.operands) != 2 else (Passage(codes[0], (True, True)),)


@rule(
    "chlo.scan",
    defaults={"is_reverse": False, "is_associative": False},
    traits=Opaque(
        flop=lambda spec: sum(map(elements, spec.operands[: len(spec.operands) // 2])),
        shown=("dimension",),
        passes=_passes,
        platforms=("cuda", "rocm"),
        flop_reason="one operation per element; XLA counts none",
    ),
    examples=(
        _example("4x6xf32, 4xf32", 1, "add"),
        _example("6x4x2xi32, 4x2xi32", 0, "maximum", "true"),
        _example("4x6x2xf32, 4x2xf32", 1, "minimum"),
    ),
    blocked_because="its body computes on whole slices, whose shape a tile would change",
)
def scan(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim but the one it runs along, where the body is one op, of one array."""
    if spec.region == "opaque" or len(spec.operands) != 2:
        return
    along = spec.attributes["dimension"]
    for d, size in enumerate(spec.operands[0].shape):
        if d != along:
            dims = d, d - (d > along)
            yield TileMapping(dims, dims, size)
