"""Tile mappings of ragged_dot, the matrix product of mixtures of experts.

    lhs[m,k] . rhs[g,k,n], sizes[g] -> out[m,n]      the first sizes[0] rows meet rhs[0], the next sizes[1] rhs[1], ...

    n  (_, 2, _) -> tile 1
    k  (1, 1, _) -> sum
    m  (0, _, _) -> tile 0     tokens: each device counts what its rows have of each group
    g  (_, 0, _) -> sum        experts: each device multiplies the rows of its groups; the others yield zero

    lhs[m,k] . rhs[k,n], sizes[g] -> out[g,m,n]      k ragged: the gradient of the weights

    m  (0, _, _) -> tile 1     n  (_, 1, _) -> tile 2     k  (1, 0, _) -> sum     g  (_, _, _) -> tile 0

What a slice of rows has of a group is what the group's range of rows has in common with the slice's. Groups that other
devices hold are joined into two: one before the local groups, one after.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from autopart.core.op import WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import batch_size, behind, is_batched, with_batch
from autopart.core.ops.passages import linear_in
from autopart.core.ops.rule import Example, LocalOp, Omission, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import reduction_code
from autopart.core.ops.rules.positions import offset
from autopart.core.ops.traits import Matmul, elements


@dataclass(frozen=True)
class _Dims:
    """Which dim of a ragged_dot is what."""

    spec: OpSpec

    @property
    def numbers(self) -> dict[str, tuple[int, ...]]:
        """The op's dimension numbers."""
        return self.spec.attributes["ragged_dot_dimension_numbers"]

    @cached_property
    def batch(self) -> list[tuple[int, int]]:
        """(lhs dim, rhs dim) of the batch dims."""
        return list(zip(self.numbers["lhs_batching_dimensions"], self.numbers["rhs_batching_dimensions"], strict=True))

    @cached_property
    def contracting(self) -> list[tuple[int, int]]:
        """(lhs dim, rhs dim) of the contracting dims."""
        n = self.numbers
        return list(zip(n["lhs_contracting_dimensions"], n["rhs_contracting_dimensions"], strict=True))

    @property
    def ragged(self) -> int:
        """The dim of lhs that groups cut."""
        return self.numbers["lhs_ragged_dimensions"][0]

    @cached_property
    def rows(self) -> list[int]:
        """Free dims of lhs."""
        taken = {d for d, _ in self.batch + self.contracting}
        return [d for d in range(len(self.spec.operands[0].shape)) if d not in taken]

    @cached_property
    def columns(self) -> list[int]:
        """Free dims of rhs."""
        taken = {d for _, d in self.batch + self.contracting} | set(self.numbers["rhs_group_dimensions"])
        return [d for d in range(len(self.spec.operands[1].shape)) if d not in taken]

    @property
    def grouped_result(self) -> bool:
        """True where the result has a dim per group: the ragged dim is contracted."""
        return self.ragged in {d for d, _ in self.contracting}

    @cached_property
    def outer(self) -> list[int]:
        """Dims of lhs that lie outside the ragged dim, each with group sizes of its own if the sizes have the dims."""
        batch = [d for d, _ in self.batch]
        family = next(dims for dims in (batch, [d for d, _ in self.contracting], self.rows) if self.ragged in dims)
        inside = family[: family.index(self.ragged)]
        return inside if family == batch else batch + inside

    def sizes_dim(self, lhs_dim: int) -> int:
        """The dim of the group sizes that belongs to a dim of lhs."""
        own = len(self.spec.operands[2].shape) > 1 and lhs_dim in self.outer
        return self.outer.index(lhs_dim) if own else WHOLE


def _mappings(dims: _Dims) -> Iterable[TileMapping]:
    spec = dims.spec
    lhs, rhs, sizes = (t.shape for t in spec.operands)
    one_list = len(sizes) == 1 and not dims.outer
    code = reduction_code("add", spec.results[0])
    pairs = [*dims.batch, *((d, WHOLE) for d in dims.rows), *((WHOLE, d) for d in dims.columns)]
    for r, (left, right) in enumerate(pairs, start=dims.grouped_result):
        if left != dims.ragged or one_list:
            yield TileMapping((left, right, dims.sizes_dim(left)), (r,), spec.results[0].shape[r])
    if code is None:
        return
    for left, right in dims.contracting:
        if left != dims.ragged or one_list:
            yield TileMapping((left, right, dims.sizes_dim(left)), (code,), lhs[left])
    if not one_list:
        return
    if dims.grouped_result:
        yield TileMapping((WHOLE, WHOLE, WHOLE), (0,), sizes[0])
    for group in dims.numbers["rhs_group_dimensions"]:
        yield TileMapping((WHOLE, group, WHOLE), (code,), rhs[group])


def _localize(local: LocalOp) -> list[Value]:
    dims = _Dims(local.spec)
    lhs, rhs, sizes = local.operands
    groups = dims.numbers["rhs_group_dimensions"]
    for m, mapping in enumerate(local.mappings):
        if local.ways(m) > 1 and mapping.operands[0] == dims.ragged:
            sizes = _in_slice(local, sizes, offset(local, m, local.operand_types[0].shape[dims.ragged]), dims)
    for m, mapping in enumerate(local.mappings):
        if local.ways(m) == 1 or mapping.operands[0] != WHOLE:
            continue
        if dims.grouped_result and mapping.results == (0,):
            return [_own_groups(local, m, sizes)]
        if groups and mapping.operands[1] == groups[0]:
            count = local.operand_types[1].shape[groups[0]]
            edges = [int(d == groups[0]) for d in range(len(local.operand_types[1].shape))]
            rhs = local.pad(rhs, local.constant(0, local.operand_types[1].dtype), edges, edges)
            sizes = _joined(local, sizes, offset(local, m, count), count)
    return local.clone([lhs, rhs, sizes])


def _own_groups(local: LocalOp, mapping: int, sizes: Value) -> Value:
    """Only this device's groups of a result that has a dim per group."""
    type_ = local.result_types[0]
    count = type_.shape[0]
    joined = _joined(local, sizes, offset(local, mapping, count), count)
    wide = TensorType((count + 2, *type_.shape[1:]), type_.dtype)
    (parts,) = local.clone([*local.operands[:2], joined], [wide])
    rest = [0] * (len(type_.shape) - 1)
    return local.slice(parts, [1, *rest], [count + 1, *type_.shape[1:]])


def _ends(local: LocalOp, sizes: Value) -> Value:
    """Where each group ends: the running sum of the sizes, by doubling steps."""
    type_ = local.type_of(sizes)
    (count,) = type_.shape
    zero, step = local.constant(0, type_.dtype), 1
    while step < count:
        earlier = local.slice(local.pad(sizes, zero, [step], [0]), [0], [count])
        sizes = local.binary("add", sizes, earlier)
        step *= 2
    return sizes


def _in_slice(local: LocalOp, sizes: Value, start: Value, dims: _Dims) -> Value:
    """What the slice of rows from `start` on has of each group."""
    type_ = local.type_of(sizes)
    length = local.operand_types[0].shape[dims.ragged]
    ends = _ends(local, sizes)
    starts = local.binary("subtract", ends, sizes)
    first = local.broadcast(local.convert(start, type_.dtype), type_.shape)
    last = local.binary("add", first, local.constant(length, type_.dtype, type_.shape))
    ends, starts = (local.binary("minimum", local.binary("maximum", x, first), last) for x in (ends, starts))
    return local.binary("subtract", ends, starts)


def _joined(local: LocalOp, sizes: Value, first: Value, count: int) -> Value:
    """Sizes of: all groups before group `first`, the `count` groups from it on, all groups after."""
    (groups,) = local.type_of(sizes).shape
    ends = _ends(local, sizes)
    total = local.slice(ends, [groups - 1], [groups])
    own = local.dynamic_slice(sizes, [first], [count])
    own_ends = local.dynamic_slice(ends, [first], [count])
    before = local.binary("subtract", local.slice(own_ends, [0], [1]), local.slice(own, [0], [1]))
    after = local.binary("subtract", total, local.slice(own_ends, [count - 1], [count]))
    return local.concatenate([before, own, after], 0)


def _ragged(
    types: str, contracting: str, ragged: int, group: str, batch: str = "", *, sizes: tuple[int, int]
) -> Example:
    left, right = contracting.split(",")
    attributes = (
        f"ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [{batch}], "
        f"rhs_batching_dimensions = [{batch}], lhs_contracting_dimensions = [{left}], "
        f"rhs_contracting_dimensions = [{right}], lhs_ragged_dimensions = [{ragged}], rhs_group_dimensions = [{group}]>"
    )
    return op("chlo.ragged_dot", types, attributes, feed=(None, None, sizes))


def _flop(spec: OpSpec) -> float:
    """2 m k n, since each row (or each k, where that is ragged) meets one group."""
    columns = math.prod(spec.operands[1].shape[d] for d in _Dims(spec).columns)
    return 2.0 * elements(spec.operands[0]) * columns


def _repeats(spec: OpSpec, mapping: TileMapping) -> bool:
    """True along groups: a device joins the groups of the others into two that it multiplies by zeros."""
    return mapping.operands[0] == WHOLE and mapping.operands[1] not in _Dims(spec).columns


def _batched(local: LocalOp) -> list[Value]:
    """A batch dim of both sides, in which groups have sizes of their own if the sizes have it."""
    dims, sizes, size = _Dims(local.spec), local.operands[2], batch_size(local)
    numbers = {name: behind(of) for name, of in dims.numbers.items()}
    batching = {name: [0, *numbers[name]] for name in ("lhs_batching_dimensions", "rhs_batching_dimensions")}
    if is_batched(local, 2) or len(local.spec.operands[2].shape) > 1:
        lengths = [local.spec.operands[0].shape[d] for d in dims.outer]
        whole, own = (size, *lengths, local.spec.operands[2].shape[-1]), with_batch(local, 2)
        is_one = len(local.spec.operands[2].shape) == 1
        sizes = local.broadcast(own, whole, [0, len(whole) - 1] if is_one else range(len(whole)))
    [out], grouped = local.spec.results, int(dims.grouped_result)
    made = TensorType((*out.shape[:grouped], size, *out.shape[grouped:]), out.dtype)
    both = [with_batch(local, 0), with_batch(local, 1), sizes]
    [found] = local.clone(both, [made], ragged_dot_dimension_numbers=numbers | batching)
    return [local.transpose(found, [1, 0, *range(2, len(made.shape))]) if grouped else found]


@rule(
    "chlo.ragged_dot",
    traits=Matmul(
        flop=_flop,
        repeats=_repeats,
        alone=True,
        passes=linear_in(0, 1),
        flop_reason="each row meets one group; XLA counts a row too few times, or once per group",
        platforms=("tpu", "cuda", "rocm"),
    ),
    localize=_localize,
    batched=_batched,
    examples=(
        _ragged("8x6xf32, 4x6x2xf32, 4xi32 -> 8x2xf32", "1,1", 0, "0", sizes=(1, 3)),
        _ragged("6x8xf32, 8x2xf32, 4xi32 -> 4x6x2xf32", "1,0", 1, "", sizes=(0, 3)),
        _ragged("2x8x4xf32, 2x4x2xf32, 4xi32 -> 2x8x2xf32", "2,1", 0, "", "0", sizes=(0, 1)),
    ),
    omissions=(
        Omission(
            "where a batch dim is ragged the sizes do not change the product, so slicing them says nothing",
            lambda spec, mapping: (
                _Dims(spec).ragged in {d for d, _ in _Dims(spec).batch} and mapping.operands[2] != WHOLE
            ),
        ),
    ),
)
def ragged_dot(spec: OpSpec) -> Iterable[TileMapping]:
    """Batch, rows, columns, contracting dims and groups."""
    return _mappings(_Dims(spec))
