"""The pass `split_cumulative`: sums along a long dim run inside its groups, and then on from group to group.

    %y = cumulative sum of %x[n]      ->      %w = cumulative sums of %x as [groups, n / groups], inside each group
                                              %b = cumulative sum of the groups' totals before each group
                                              %y = %w + %b

So do products, maxima and minima, from either end. Devices that share the dim exchange a total per group instead of the
dim: the places of tokens in their experts' queues. XLA adds up a long window in such blocks itself. A program says such
a sum as a `reduce_window` whose window is as long as the dim, or, for GPUs, as a `chlo.scan`.

Sums of floats are added in another order, and so are rounded otherwise; integers, maxima and minima are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

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
        return rewritten(program, lambda spec: _running_of(spec) is not None, _text, _begins_with_nothing)


class _Running(NamedTuple):
    """What an op adds up: along which dim, and whether from its low end up."""

    dim: int
    up: bool


def _running_of(spec: OpSpec) -> _Running | None:
    """How an op runs along a dim that is worth splitting; None where there is none."""
    found = {"reduce_window": _of_window, "chlo.scan": _of_scan}.get(spec.kind, lambda spec: None)(spec)
    long = found is not None and spec.region in _COMBINED and groups_of(spec.operands[0].shape[found.dim]) > 1
    return found if long else None


def _of_window(spec: OpSpec) -> _Running | None:
    if len(spec.results) != 1:
        return None
    shape, attributes = spec.operands[0].shape, spec.attributes
    window = attributes["window_dimensions"]
    apart = ("window_strides", "base_dilations", "window_dilations")
    if spec.results[0].shape != shape or any(set(attributes.get(name) or (1,)) != {1} for name in apart):
        return None
    [dim, *others] = [d for d, size in enumerate(window) if size > 1] or [-1]
    if dim < 0 or others or window[dim] != shape[dim] or attributes["padding"][dim] not in _paddings(shape[dim]):
        return None
    return _Running(dim, attributes["padding"][dim] == _paddings(shape[dim])[0])


def _of_scan(spec: OpSpec) -> _Running | None:
    if len(spec.operands) != 2 or not spec.attributes["is_associative"]:
        return None
    return _Running(spec.attributes["dimension"], not spec.attributes["is_reverse"])


def _paddings(size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a window that runs up, and of one that runs down."""
    return (size - 1, 0), (0, size - 1)


def _begins_with_nothing(program: Program, op: int) -> bool:
    spec = program.spec(op)
    start = splat_behind(program, int(program.operands_of(op)[1]))
    return start is not None and bool(start == identity(_COMBINED[spec.region][0], spec.operands[0].dtype))


def _text(spec: OpSpec, location: str) -> str:
    array, start = map(mlir_type, spec.operands)
    lines = "".join(f"{line} {location}\n" for line in (*_start(spec), *_lines(spec), *_last(spec)))
    left = f"%y : {array}" if len(spec.results) == 1 else f"%y, %c : {array}, {start}"
    results = ", ".join(map(mlir_type, spec.results))
    begins = "%z" if spec.operands[1].shape == () else "%s0"
    return f"func.func @main(%x: {array}, {begins}: {start}) -> ({results}) {{\n{lines}return {left}\n}}"


def _start(spec: OpSpec) -> Iterator[str]:
    """The one number %z that the sums begin with, where an array of equal ones is given."""
    if not spec.operands[1].shape:
        return
    start, ones = spec.operands[1], [1] * len(spec.operands[1].shape)
    one = TensorType(tuple(ones), start.dtype)
    yield _slice("%s1", "%s0", start, [0] * len(ones), ones)
    yield f'%z = "stablehlo.reshape"(%s1) : ({mlir_type(one)}) -> {mlir_type(TensorType((), start.dtype))}'


def _last(spec: OpSpec) -> Iterator[str]:
    """What a scan leaves beside its sums: the last of them."""
    if len(spec.results) == 1:
        return
    (dim, up), array = cast(_Running, _running_of(spec)), spec.operands[0]
    at = array.shape[dim] - 1 if up else 0
    starts, limits = [0] * len(array.shape), list(array.shape)
    starts[dim], limits[dim] = at, at + 1
    kept = TensorType((*array.shape[:dim], 1, *array.shape[dim + 1 :]), array.dtype)
    yield _slice("%c0", "%y", array, starts, limits)
    yield f'%c = "stablehlo.reshape"(%c0) : ({mlir_type(kept)}) -> {mlir_type(spec.results[1])}'


def _lines(spec: OpSpec) -> Iterator[str]:
    (dim, up), array, kind = cast(_Running, _running_of(spec)), spec.operands[0], _COMBINED[spec.region][1]
    groups = groups_of(array.shape[dim])
    size = array.shape[dim] // groups

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
    yield _slice("%l", "%w", inside, starts, limits)
    yield f'%t = "stablehlo.reshape"(%l) : ({mlir_type(of(groups, 1))}) -> {mlir_type(totals)}'
    yield _running("%e", "%t", kind, totals, dim, (groups, -1) if up else (-1, groups))
    yield (
        f'%b = "stablehlo.broadcast_in_dim"(%e) {{broadcast_dimensions = array<i64: {kept}>}}'
        f" : ({mlir_type(totals)}) -> {mlir_type(inside)}"
    )
    yield f'%s = "stablehlo.{kind}"(%w, %b) : ({mlir_type(inside)}, {mlir_type(inside)}) -> {mlir_type(inside)}'
    yield f'%y = "stablehlo.reshape"(%s) : ({mlir_type(inside)}) -> {mlir_type(array)}'


def _slice(result: str, array: str, type_: TensorType, starts: list[int], limits: list[int]) -> str:
    left = TensorType(tuple(high - low for low, high in zip(starts, limits, strict=True)), type_.dtype)
    return (
        f'{result} = "stablehlo.slice"({array}) {{start_indices = {_list(starts)}, limit_indices = {_list(limits)},'
        f" strides = {_list([1] * len(starts))}}} : ({mlir_type(type_)}) -> {mlir_type(left)}"
    )


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
