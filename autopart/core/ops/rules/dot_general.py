"""Tile mappings of dot_general.

    lhs[b,m,k] . rhs[b,k,n] -> out[b,m,n]

    b  (0, 0) -> tile 0    batch: both sliced
    m  (1, _) -> tile 1    rows of lhs; rhs whole
    n  (_, 2) -> tile 2    columns of rhs; lhs whole
    k  (2, 1) -> sum       partial sums: an all_reduce, unless a consumer slices

Of a product of matrices with themselves, as in Newton-Schulz, a tile of m, n or k draws b: matrices are exchanged for
rows.

The older `dot` contracts the last dim of lhs with the first of rhs; `einsum` names its dims by letters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import all_batched, behind
from autopart.core.ops.passages import linear_in
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import reduction_code
from autopart.core.ops.traits import Matmul, Sides, elements

DOT = (
    "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], rhs_batching_dimensions = [{}], "
    "lhs_contracting_dimensions = [{}], rhs_contracting_dimensions = [{}]>"
)
"""Its dimension numbers, to be filled in: batching and contracting dims."""


def _dot(types: str, *dims: str) -> Example:
    return op("dot_general", types, DOT.format(*dims))


def _flop(spec: OpSpec) -> float:
    """2 b m k n.

    >>> from autopart.core.op import TensorType
    >>> dims = {"lhs_contracting_dimensions": (1,)}
    >>> f32 = lambda *shape: TensorType(shape, "f32")
    >>> _flop(OpSpec("dot_general", {"dot_dimension_numbers": dims}, (f32(8, 16), f32(16, 4)), (f32(8, 4),)))
    1024.0
    """
    contracted = spec.attributes["dot_dimension_numbers"]["lhs_contracting_dimensions"]
    return 2.0 * elements(spec.results[0]) * math.prod(spec.operands[0].shape[d] for d in contracted)


def _sides(spec: OpSpec) -> Sides:
    """Batch dims are the first of the result, columns the last; rows are between them."""
    numbers = spec.attributes["dot_dimension_numbers"]
    summed, rank = tuple(numbers["lhs_contracting_dimensions"]), len(spec.results[0].shape)
    rows_end = len(spec.operands[0].shape) - len(summed)
    batched = [tuple(numbers[f"{side}_batching_dimensions"]) for side in ("lhs", "rhs")]
    batch = tuple(range(len(batched[0])))
    behind = tuple(i for i, dims in enumerate(batched) if dims != batch)
    return Sides(summed, tuple(range(rows_end, rank)), batch=batch, behind=behind)


def _batched(local: LocalOp) -> list[Value] | None:
    numbers = {name: behind(dims) for name, dims in local.spec.attributes["dot_dimension_numbers"].items()}
    batching = {f"{side}_batching_dimensions": [0, *numbers[f"{side}_batching_dimensions"]] for side in ("lhs", "rhs")}
    return local.clone(all_batched(local), dot_dimension_numbers=numbers | batching)


@rule(
    "dot_general",
    traits=Matmul(flop=_flop, sides=_sides, passes=linear_in(0, 1)),
    examples=(
        _dot("4x6xf32, 6x2xf32 -> 4x2xf32", "", "", "1", "0"),
        _dot("2x4x6xf32, 2x6x8xf32 -> 2x4x8xf32", "0", "0", "2", "1"),
        _dot("4x2x6xf32, 6x8x2xf32 -> 2x4x8xf32", "1", "2", "2", "0"),
        _dot("4x6x2xi32, 2x6x4xi32 -> 4x4xi32", "", "", "1, 2", "1, 0"),
        _dot("4x6xbf16, 6x2xbf16 -> 4x2xf32", "", "", "1", "0"),
        _dot("4x6xcomplex<f32>, 6x2xcomplex<f32> -> 4x2xcomplex<f32>", "", "", "1", "0"),
        _dot("6xf32, 6xf32 -> f32", "", "", "0", "0"),
    ),
    batched=_batched,
)
def dot_general(spec: OpSpec) -> Iterable[TileMapping]:
    """Batch, lhs rows, rhs columns and contracting dims."""
    numbers = spec.attributes["dot_dimension_numbers"]
    batch = list(zip(numbers["lhs_batching_dimensions"], numbers["rhs_batching_dimensions"], strict=True))
    contracting = list(zip(numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"], strict=True))
    lhs, rhs = spec.operands
    rows = [d for d in range(len(lhs.shape)) if d not in {a for a, _ in batch + contracting}]
    columns = [d for d in range(len(rhs.shape)) if d not in {b for _, b in batch + contracting}]
    pairs = [*batch, *((d, WHOLE) for d in rows), *((WHOLE, d) for d in columns)]
    others = [set(range(len(t.shape))).difference(pair[k] for pair in batch) for k, t in enumerate(spec.operands)]
    drawn_by = tuple((k, d) for k, dims in enumerate(others) for d in sorted(dims))
    for number, mapping in enumerate(_factors(spec, pairs, contracting)):
        yield replace(mapping, drawn_by=drawn_by) if number < len(batch) else mapping


@rule(
    "dot",
    traits=Matmul(flop=lambda spec: 2 * elements(spec.results[0]) * spec.operands[0].shape[-1], passes=linear_in(0, 1)),
    examples=(op("dot", "4x6xf32, 6x2xf32 -> 4x2xf32"), op("dot", "6xf32, 6x2xf32 -> 2xf32")),
)
def dot(spec: OpSpec) -> Iterable[TileMapping]:
    """A matrix or vector product."""
    lhs, rhs = (len(t.shape) for t in spec.operands)
    pairs = [*((d, WHOLE) for d in range(lhs - 1)), *((WHOLE, d) for d in range(1, rhs))]
    return _factors(spec, pairs, [(lhs - 1, 0)])


def _factors(
    spec: OpSpec, pairs: Sequence[tuple[int, int]], contracting: Sequence[tuple[int, int]]
) -> Iterable[TileMapping]:
    """Tiles for `pairs`, which are the result's dims in order; sums for `contracting`."""
    for result, operands in enumerate(pairs):
        yield TileMapping(operands, (result,), spec.results[0].shape[result])
    code = reduction_code("add", spec.results[0])
    for lhs, rhs in contracting:
        if code is not None:
            yield TileMapping((lhs, rhs), (code,), spec.operands[0].shape[lhs])


def _einsum(types: str, config: str) -> Example:
    return op("einsum", types, f'einsum_config = "{config}"')


def _einsum_flop(spec: OpSpec) -> float:
    """Two per result element and step along the letters that the result lacks; "..." stands for dims that it has."""
    inputs, output = spec.attributes["einsum_config"].split("->")
    sizes: dict[str, int] = {}
    for term, type_ in zip(inputs.split(","), spec.operands, strict=True):
        head, _, tail = term.partition("...")
        sizes |= dict(zip(head, type_.shape, strict=False))
        sizes |= dict(zip(reversed(tail), reversed(type_.shape), strict=False))
    return 2 * elements(spec.results[0]) * math.prod(n for letter, n in sizes.items() if letter not in output)


@rule(
    "einsum",
    traits=Matmul(flop=_einsum_flop, passes=linear_in(0, 1)),
    examples=(
        _einsum("4x6xf32, 6x2xf32 -> 4x2xf32", "ij,jk->ik"),
        _einsum("2x4x6xf32, 2x6x8xf32 -> 2x8x4xf32", "bij,bjk->bki"),
    ),
)
def einsum(spec: OpSpec) -> Iterable[TileMapping]:
    """One factor per letter; a letter that the result lacks is summed over."""
    inputs, output = spec.attributes["einsum_config"].split("->")
    terms = inputs.split(",")
    if "." in inputs or any(len(set(term)) < len(term) for term in (*terms, output)):
        return
    for letter in sorted(set("".join(terms))):
        operands = tuple(term.find(letter) for term in terms)
        position, dim = next((i, d) for i, d in enumerate(operands) if d != WHOLE)
        result = output.find(letter)
        code = result if result >= 0 else reduction_code("add", spec.results[0])
        if code is not None:
            yield TileMapping(operands, (code,), spec.operands[position].shape[dim])
