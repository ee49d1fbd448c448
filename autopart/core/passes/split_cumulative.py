"""The pass `split_cumulative`: sums along a long dim run inside its groups, and then on from group to group.

    %y = cumulative sum of %x[n]      ->      %w = cumulative sums of %x as [groups, n / groups], inside each group
                                              %b = cumulative sum of the groups' totals before each group
                                              %y = %w + %b

So do products, maxima and minima, from either end. Devices that share the dim exchange a total per group instead of the
dim: the places of tokens in their experts' queues. XLA adds up a long window in such blocks itself.

Sums of floats are added in another order, and so are rounded otherwise; integers, maxima and minima are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.op import MAX, MIN, MUL, SUM, OpSpec, TensorType
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.groups import groups_of
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewritten_as import mlir_type, rewritten
from autopart.core.program import Program
from autopart.core.splats import splat_behind

_COMBINED = {"add": (SUM, "add"), "mul": (MUL, "multiply"), "max": (MAX, "maximum"), "min": (MIN, "minimum")}


@register_pass("split_cumulative")
@dataclass(frozen=True)
class SplitCumulative(Pass):
    """Cumulative sums, products, maxima and minima of long dims run group by group."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        return rewritten(program, lambda spec: _dim_of(spec) >= 0, _text, _begins_with_nothing)


def _dim_of(spec: OpSpec) -> int:
    """The dim along which an op runs up, or down, and that is worth splitting; -1 where there is none."""
    if spec.kind != "reduce_window" or len(spec.results) != 1 or spec.region not in _COMBINED:
        return -1
    shape, attributes = spec.operands[0].shape, spec.attributes
    window = attributes["window_dimensions"]
    apart = ("window_strides", "base_dilations", "window_dilations")
    if spec.results[0].shape != shape or any(set(attributes.get(name) or (1,)) != {1} for name in apart):
        return -1
    [dim, *others] = [d for d, size in enumerate(window) if size > 1] or [-1]
    if dim < 0 or others or window[dim] != shape[dim] or groups_of(shape[dim]) == 1:
        return -1
    return dim if attributes["padding"][dim] in _paddings(shape[dim]) else -1


def _paddings(size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a window that runs up, and of one that runs down."""
    return (size - 1, 0), (0, size - 1)


def _begins_with_nothing(program: Program, op: int) -> bool:
    spec = program.spec(op)
    start = splat_behind(program, int(program.operands_of(op)[1]))
    return start is not None and bool(start == identity(_COMBINED[spec.region][0], spec.operands[0].dtype))


def _text(spec: OpSpec, location: str) -> str:
    array, start = map(mlir_type, spec.operands)
    lines = "".join(f"{line} {location}\n" for line in _lines(spec))
    return f"func.func @main(%x: {array}, %z: {start}) -> {array} {{\n{lines}return %y : {array}\n}}"


def _lines(spec: OpSpec) -> Iterator[str]:
    dim, array, kind = _dim_of(spec), spec.operands[0], _COMBINED[spec.region][1]
    groups = groups_of(array.shape[dim])
    size = array.shape[dim] // groups
    up = spec.attributes["padding"][dim] == _paddings(array.shape[dim])[0]

    def of(*middle: int) -> TensorType:
        return TensorType((*array.shape[:dim], *middle, *array.shape[dim + 1 :]), array.dtype)

    inside, totals = of(groups, size), of(groups)
    last, rank = (size - 1 if up else 0), len(inside.shape)
    starts = [0] * rank
    limits = list(inside.shape)
    starts[dim + 1], limits[dim + 1] = last, last + 1
    kept = ", ".join(str(d) for d in range(rank) if d != dim + 1)
    yield f'%r = "stablehlo.reshape"(%x) : ({mlir_type(array)}) -> {mlir_type(inside)}'
    yield _running("%w", "%r", kind, inside, dim + 1, _paddings(size)[not up])
    yield (
        f'%l = "stablehlo.slice"(%w) {{start_indices = {_list(starts)}, limit_indices = {_list(limits)},'
        f" strides = {_list([1] * rank)}}} : ({mlir_type(inside)}) -> {mlir_type(of(groups, 1))}"
    )
    yield f'%t = "stablehlo.reshape"(%l) : ({mlir_type(of(groups, 1))}) -> {mlir_type(totals)}'
    yield _running("%e", "%t", kind, totals, dim, (groups, -1) if up else (-1, groups))
    yield (
        f'%b = "stablehlo.broadcast_in_dim"(%e) {{broadcast_dimensions = array<i64: {kept}>}}'
        f" : ({mlir_type(totals)}) -> {mlir_type(inside)}"
    )
    yield f'%s = "stablehlo.{kind}"(%w, %b) : ({mlir_type(inside)}, {mlir_type(inside)}) -> {mlir_type(inside)}'
    yield f'%y = "stablehlo.reshape"(%s) : ({mlir_type(inside)}) -> {mlir_type(array)}'


def _running(result: str, array: str, kind: str, type_: TensorType, dim: int, padding: tuple[int, int]) -> str:
    """A window over the whole of a dim, at each place."""
    one, whole = mlir_type(TensorType((), type_.dtype)), mlir_type(type_)
    rank = len(type_.shape)
    window = [size if d == dim else 1 for d, size in enumerate(type_.shape)]
    padded = ", ".join(str(list(padding) if d == dim else [0, 0]) for d in range(rank))
    body = f'^bb0(%a: {one}, %c: {one}): %d = "stablehlo.{kind}"(%a, %c) : ({one}, {one}) -> {one}'
    body += f' "stablehlo.return"(%d) : ({one}) -> ()'
    attributes = f"window_dimensions = {_list(window)}, padding = dense<[{padded}]> : tensor<{rank}x2xi64>"
    return (
        f'{result} = "stablehlo.reduce_window"({array}, %z) ({{{body}}}) {{{attributes}}} : ({whole}, {one}) -> {whole}'
    )


def _list(numbers: list[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>"
