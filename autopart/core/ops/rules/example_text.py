"""Short ways to write the ops on which rules are tested.

op("reduce", "4x6xf32, f32 -> 4xf32", "dimensions = array<i64: 1>", reducer("add", "f32"))
"""

from __future__ import annotations

from typing import Any

from autopart.core.ops.rule import Example


def op(
    kind: str,
    types: str,
    attributes: str = "",
    region: str = "",
    *,
    feed: tuple[Any, ...] = (),
    functions: str = "",
    tolerance: float = 0.0,
) -> Example:
    """One op from its kind, its types and its attributes; see `registry.Example` for the rest."""
    name = kind if kind.startswith("chlo.") else f"stablehlo.{kind}"
    left, right = (_tensors(side) for side in types.split("->"))
    operands = ", ".join(f"%{i}" for i in range(len(left)))
    results = right[0] if len(right) == 1 else f"({', '.join(right)})"
    regions = f" ({{{region}}})" if region else ""
    text = f'"{name}"({operands}){regions} {{{attributes}}} : ({", ".join(left)}) -> {results}'
    return Example(text, feed, functions, tolerance)


def reducer(*steps: str) -> str:
    """The region of a reducer over `steps` of "kind dtype", one per result ("add f32", "overwrite i32")."""
    kinds, dtypes = zip(*(step.split() for step in steps), strict=True)
    arguments = [f"%{side}{i}: tensor<{dtype}>" for side in "ab" for i, dtype in enumerate(dtypes)]
    ops = [
        f'%c{i} = "stablehlo.{kind}"(%a{i}, %b{i}) : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<{dtype}>'
        for i, (kind, dtype) in enumerate(zip(kinds, dtypes, strict=True))
        if kind != "overwrite"
    ]
    results = ", ".join(f"%b{i}" if kind == "overwrite" else f"%c{i}" for i, kind in enumerate(kinds))
    types = ", ".join(f"tensor<{dtype}>" for dtype in dtypes)
    body = " ".join(ops)
    return f'^bb0({", ".join(arguments)}): {body} "stablehlo.return"({results}) : ({types}) -> ()'


def comparator(direction: str, *dtypes: str) -> str:
    """The region of a sort that compares its first key; `dtypes` are those of all operands."""
    arguments = [f"%{side}{i}: tensor<{dtype}>" for i, dtype in enumerate(dtypes) for side in "ab"]
    compare = (
        f'%c = "stablehlo.compare"(%a0, %b0) {{comparison_direction = #stablehlo<comparison_direction {direction}>}} '
        f": (tensor<{dtypes[0]}>, tensor<{dtypes[0]}>) -> tensor<i1>"
    )
    return f'^bb0({", ".join(arguments)}): {compare} "stablehlo.return"(%c) : (tensor<i1>) -> ()'


def _tensors(side: str) -> list[str]:
    return [f"tensor<{part.strip()}>" for part in side.split(",") if part.strip()]
