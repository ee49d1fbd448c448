"""The factors that most families share: a dim that operands and results have in common.

a[i,j] * b[i,j] -> c[i,j]      i  (0, 0) -> tile 0      j  (1, 1) -> tile 1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.passages import Passage
from autopart.core.ops.rule import Omission

BITWISE = Omission(
    "no collective of XLA combines integers bit by bit: on CPU and GPU they add, multiply, or take an extreme",
    lambda spec, mapping: any(
        code in (AND, OR) and type_.dtype != "i1" for code, type_ in zip(mapping.results, spec.results, strict=True)
    ),
)
"""Reductions of integers by "and" and "or" are not tiled on the reduced dim."""


def common_dims(spec: OpSpec, dims: Iterable[int]) -> Iterator[TileMapping]:
    """For each of `dims`: all results tiled on it, and every operand sliced on it; scalars stay whole."""
    for d in dims:
        operands = tuple(d if len(t.shape) > d else WHOLE for t in spec.operands)
        yield TileMapping(operands, (d,) * len(spec.results), spec.results[0].shape[d])


def exchanged(spec: OpSpec, mappings: Iterable[TileMapping]) -> list[TileMapping]:
    """The mappings, drawn by a tile of a dim that none of them slices, since the op reads it whole: the tile is
    exchanged for the one that they slice, and no device has all of the operand."""
    found = list(mappings)
    sliced = {at for m in found for at in enumerate(m.operands)}
    whole = [(k, d) for k, t in enumerate(spec.operands) for d in range(len(t.shape)) if (k, d) not in sliced]
    return [replace(m, drawn_by=tuple((k, d) for k, d in whole if m.operands[k] != WHOLE)) for m in found]


def reduction_code(region: str, type_: TensorType) -> int | None:
    """The result entry for slices combined by the reducer `region`; None if no collective computes it.

    Booleans are added by "or" and multiplied by "and", as StableHLO defines. Integers are combined by neither:
    see `BITWISE`.
    """
    if type_.dtype == "i1":
        return {"add": OR, "max": OR, "or": OR, "mul": AND, "min": AND, "and": AND}.get(region)
    return {"add": SUM, "max": MAX, "min": MIN, "mul": MUL}.get(region)


def reduction_codes(region: str, types: Iterable[TensorType]) -> tuple[int, ...] | None:
    """As `reduction_code`, per result; `region` is one reducer for all or one each, comma-separated."""
    types = list(types)
    names = region.split(",") if "," in region else [region] * len(types)
    codes = [reduction_code(name, type_) for name, type_ in zip(names, types, strict=True)]
    return None if None in codes else tuple(code for code in codes if code is not None)


def combined_by_reducer(spec: OpSpec, whole: Sequence[int] = ()) -> list[Passage]:
    """The reducer combines parts as it combines the whole: a sum of sums. Operands numbered in `whole` are whole."""
    codes = reduction_codes(spec.region, spec.results)
    if codes is None or len(codes) != 1:
        return []
    return [Passage(codes[0], tuple(k not in whole for k in range(len(spec.operands))))]


def one_hot_sum(type_: TensorType) -> int:
    """The result entry where one slice holds the value and all others hold zero."""
    return OR if type_.dtype == "i1" else SUM
