"""The pass `split_top_k`: the largest of a long row are the largest of those that its groups put forward.

    %v, %p = top_k(%x[n], k)      ->      %g = top_k(%x as [groups, n / groups], k)
                                          %v, %q = top_k(%g as [groups * k], k)
                                          %p = positions in %x of %g, at %q

Devices that share a row exchange what their groups put forward, and not the row: the logits of a vocabulary, for each
token that is sampled. On one device the second choice is among few, beside a first one of equal work.

The numbers are the same to the bit: of equal ones the first, since groups stand in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.op import OpSpec, TensorType
from autopart.core.passes.groups import MOST, groups_of
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewritten_as import mlir_type, rewritten
from autopart.core.program import Program

_SHARE = 8
"""What groups put forward is at most this part of the row."""


_SHORTEST = 4096
"""Shorter rows are chosen from in one round: on one device 1,024 in groups of 256 took longer, laid out twice."""


@register_pass("split_top_k")
@dataclass(frozen=True)
class SplitTopK(Pass):
    """Chooses the largest of long rows in two rounds."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        return rewritten(program, _is_split, _text)


def _is_split(spec: OpSpec) -> bool:
    if spec.kind != "chlo.top_k":
        return False
    return _groups(spec.operands[0].shape[-1], spec.results[0].shape[-1]) > 1


def _groups(size: int, k: int) -> int:
    """How many groups a row has that put `k` each forward."""
    if size < _SHORTEST:
        return 1
    return groups_of(size, min(MOST, size // (_SHARE * max(1, k))))


def _text(spec: OpSpec, location: str) -> str:
    row, (value, position) = spec.operands[0], spec.results
    lines = "".join(f"{line} {location}\n" for line in _lines(row, position.dtype, value.shape[-1]))
    both = f"{mlir_type(value)}, {mlir_type(position)}"
    return f"func.func @main(%x: {mlir_type(row)}) -> ({both}) {{\n{lines}return %v, %p : {both}\n}}"


def _lines(row: TensorType, counted: str, k: int) -> Iterator[str]:
    *batch, size = row.shape
    groups, rank = _groups(size, k), len(batch)

    def of(*shape: int, dtype: str = row.dtype) -> str:
        return mlir_type(TensorType((*batch, *shape), dtype))

    def placed(*shape: int) -> str:
        return of(*shape, dtype=counted)

    grouped, chosen, forward = of(groups, size // groups), (groups, k), (groups * k,)
    one, numbers = f"tensor<{counted}>", placed(*chosen)
    yield f'%r = "stablehlo.reshape"(%x) : ({mlir_type(row)}) -> {grouped}'
    yield f'%a, %i = "chlo.top_k"(%r) {{k = {k} : i64}} : ({grouped}) -> ({of(*chosen)}, {numbers})'
    yield f'%c = "stablehlo.iota"() {{iota_dimension = {rank} : i64}} : () -> {numbers}'
    yield f'%n = "stablehlo.constant"() {{value = dense<{size // groups}> : {one}}} : () -> {one}'
    yield (f'%m = "stablehlo.broadcast_in_dim"(%n) {{broadcast_dimensions = array<i64>}} : ({one}) -> {numbers}')
    for result, kind, left, right in (("%o", "multiply", "%c", "%m"), ("%w", "add", "%i", "%o")):
        yield f'{result} = "stablehlo.{kind}"({left}, {right}) : ({numbers}, {numbers}) -> {numbers}'
    yield f'%f = "stablehlo.reshape"(%a) : ({of(*chosen)}) -> {of(*forward)}'
    yield f'%g = "stablehlo.reshape"(%w) : ({numbers}) -> {placed(*forward)}'
    yield f'%v, %q = "chlo.top_k"(%f) {{k = {k} : i64}} : ({of(*forward)}) -> ({of(k)}, {placed(k)})'
    yield f'%s = "stablehlo.reshape"(%q) : ({placed(k)}) -> {placed(k, 1)}'
    yield f'%p = "stablehlo.gather"(%g, %s) {{{_along(rank)}}} : ({placed(*forward)}, {placed(k, 1)}) -> {placed(k)}'


def _along(rank: int) -> str:
    """Attributes of a gather along the last dim, row by row of `rank` batch dims."""
    batch = ", ".join(map(str, range(rank)))
    sizes = ", ".join(["1"] * (rank + 1))
    batched = f"operand_batching_dims = [{batch}], start_indices_batching_dims = [{batch}], " if rank else ""
    return (
        f"dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [{rank}], {batched}start_index_map = [{rank}],"
        f" index_vector_dim = {rank + 1}>, slice_sizes = array<i64: {sizes}>, indices_are_sorted = false"
    )
