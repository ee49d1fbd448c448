"""Indices that reach XLA in range where one dynamic slice reads another.

    device 1 of 2      %t = dynamic_slice %x[8], 4, sizes 4         its part: 4 5 6 7
                       %s = dynamic_slice %t[4], -3, sizes 1        clamped to 0: the 4
    XLA makes of it    %s = dynamic_slice %x[8], 4 - 3, sizes 1     the 1

XLA merges a dynamic slice of a dynamic slice by adding the starts, as if no start had to be clamped, and it makes
dynamic slices of a gather or scatter of one index. It moves elementwise ops and views out of the way first, drops ops
that have nothing to combine, as a sort of one row, and inlines a loop that runs once. The merged op is right if every
start was in range before, so in each such pair of ops all starts that are not provably in range are clamped by an op of
their own. A scatter drops what is out of range rather than clamping it: of one index it becomes

    current = dynamic_slice x, clamped;   new = scatter current, 0, update
    dynamic_update_slice x, select(in range, new, current), clamped

and one of several indices, which XLA turns into a loop, reads its operand through a barrier. Ops that are in no such
pair stay as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from autopart.core.doors.jax_internals import barrier, ir
from autopart.core.op import OpSpec, TensorType
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.op_names import op_names
from autopart.core.ops.rule import Value
from autopart.core.ops.rules.index_vectors import assembled, components
from autopart.core.ops.rules.positions import between, clamped_index
from autopart.core.ops.traits import Elementwise, Reduction, Slicing, View
from autopart.spmd.emission.local_op import MlirLocalOp
from autopart.spmd.emission.loop_counters import Ends
from autopart.spmd.for_xla.intervals import Intervals


@functools.cache
def _by_index() -> frozenset[str]:
    return op_names(lambda traits: traits.by_index)


@functools.cache
def _movable() -> frozenset[str]:
    """Ops that XLA may move a dynamic slice across; its CPU backend drops barriers before it is done simplifying."""
    return op_names(lambda traits: isinstance(traits, Elementwise | View | Slicing) and not traits.by_index)


@functools.cache
def _reductions() -> frozenset[str]:
    return op_names(lambda traits: isinstance(traits, Reduction))


class _NoLoops:
    """`AxisPositions` of an op that is in no loop."""

    def axis_size(self, axis: int) -> int:
        """Never asked: there is no axis."""
        raise IndexError(axis)

    def axis_position(self, axis: int) -> ir.Value:
        """Never asked: there is no axis."""
        raise IndexError(axis)


def is_by_index(op: ir.Operation) -> bool:
    """True for an op that XLA may turn into a dynamic slice of its operand, or a dynamic update of it."""
    return op.name in _by_index()


def keep_indices_in_range(indexed: Sequence[ir.Operation], devices: int) -> None:
    """Clamps the indices of ops that read one another. `indexed` has all such ops of the program, in order; `devices`
    bounds the partition number. Each value is looked at once, however many ops it reaches."""
    intervals = Intervals(devices)
    paired = _paired(indexed, intervals.ends)
    for op in indexed:
        if op in paired:
            _IndexedOp(op, intervals).settle()


def _paired(indexed: Sequence[ir.Operation], ends: Ends) -> set[ir.Operation]:
    """The ops of which one's result may be what the other reads, moved or computed with elementwise."""
    readers: dict[ir.Value, list[ir.Value]] = {value: [] for op in indexed for value in _indexed_operands(op)}
    todo, made, behind = list(readers), list[ir.Value](), set[ir.Operation]()
    while todo:
        value = todo.pop()
        if not isinstance(value.owner, ir.Block) and is_by_index(value.owner.operation):
            made.append(value)
            behind.add(value.owner.operation)
            continue
        for source in _computed_from(value, ends):
            if source not in readers:
                readers[source] = []
                todo.append(source)
            readers[source].append(value)
    reached = set(made)
    while made:
        more = [value for value in readers[made.pop()] if value not in reached]
        reached.update(more)
        made += more
    return behind | {op for op in indexed if not reached.isdisjoint(_indexed_operands(op))}


def _indexed_operands(op: ir.Operation) -> list[ir.Value]:
    """The arrays that an op of an indexed kind takes parts of, or updates."""
    return list(op.operands)[: (len(op.operands) - 1) // 2 if op.name == "stablehlo.scatter" else 1]


def _computed_from(value: ir.Value, ends: Ends) -> Sequence[ir.Value]:
    """The values across which XLA may move a dynamic slice of `value`."""
    if isinstance(value.owner, ir.Block):
        return _passed_to(value, ends)
    owner = value.owner.operation
    if owner.name in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
        return _returned_as(owner, ir.OpResult(value).result_number, ends)
    return list(owner.operands) if owner.name in _movable() or _may_vanish(owner) else ()


def _may_vanish(op: ir.Operation) -> bool:
    """True if XLA may find that the op combines no elements, as a sort of one row, and leave its operand in its place.

    Along dims of size one a sort, a reduction or a transform does nothing, and a product is elementwise. A window of
    one element is told by its result, which has the type of its operand.
    """
    types = [ir.RankedTensorType(v.type) for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
    results = [v.type for v in op.results]
    return any(1 in t.shape for t in types) or (op.name in _reductions() and types[0] in results)


def _passed_to(argument: ir.Value, ends: Ends) -> list[ir.Value]:
    """What a loop's region receives as this argument; nothing for an argument of the function."""
    block = ir.BlockArgument(argument)
    owner = block.owner.owner.operation
    if owner.name != "stablehlo.while":
        return []
    return _returned_as(owner, block.arg_number, ends)


def _returned_as(owner: ir.Operation, number: int, ends: Ends) -> list[ir.Value]:
    """The values that result `number` of a loop or branch is one of."""
    if owner.name == "stablehlo.while":
        return [owner.operands[number], ends.returned(owner.regions[1].blocks[0], number)]
    return [ends.returned(region.blocks[0], number) for region in owner.regions]


class _IndexedOp:
    """An op of an indexed kind, to be given indices that are in range."""

    def __init__(self, op: ir.Operation, intervals: Intervals):
        self._op, self._intervals = op, intervals
        self._spec: OpSpec = spec_of(op)
        self._emit = MlirLocalOp(
            self._spec, op, (), (), list(op.operands), self._spec.operands, self._spec.results, _NoLoops()
        )

    def settle(self) -> None:
        """Emits clamps before the op where an index is not provably in range."""
        with ir.InsertionPoint(self._op), self._op.location:
            getattr(self, f"_{self._spec.kind}")()

    def _known(self, index: Value, highest: int) -> bool:
        found = self._intervals.of(index)
        return found is not None and found[0] >= 0 and found[1] <= highest

    def _clamped(self, index: Value, highest: int) -> Value:
        return index if self._known(index, highest) else clamped_index(self._emit, index, highest)

    # ---- kinds whose indices XLA clamps

    def _dynamic_slice(self) -> None:
        self._clamp_scalars(1, self._spec.results[0].shape)

    def _dynamic_update_slice(self) -> None:
        self._clamp_scalars(2, self._spec.operands[1].shape)

    def _clamp_scalars(self, first: int, window: tuple[int, ...]) -> None:
        starts, whole = self._emit.operands[first:], self._spec.operands[0].shape
        highest = [n - size for n, size in zip(whole, window, strict=True)]
        if all(map(self._known, starts, highest)):
            return
        for i, (start, most) in enumerate(zip(starts, highest, strict=True)):
            self._op.operands[first + i] = clamped_index(self._emit, start, most)

    def _gather(self) -> None:
        numbers, window = self._spec.attributes["dimension_numbers"], self._spec.attributes["slice_sizes"]
        parts = components(self._emit, self._emit.operands[1], numbers["index_vector_dim"])
        highest = [self._spec.operands[0].shape[d] - window[d] for d in numbers["start_index_map"]]
        if parts and not all(map(self._known, parts, highest)):
            parts = [clamped_index(self._emit, part, most) for part, most in zip(parts, highest, strict=True)]
            self._op.operands[1] = self._shaped_as_before(assembled(self._emit, parts, numbers["index_vector_dim"]))

    def _torch_index_select(self) -> None:
        dim = self._spec.attributes["dim"]
        self._op.operands[1] = self._clamped(self._emit.operands[1], self._spec.operands[0].shape[dim] - 1)

    def _shaped_as_before(self, indices: Value) -> Value:
        return self._emit.reshape(indices, self._spec.operands[1].shape)

    # ---- scatter, which drops what is out of range

    def _scatter(self) -> None:
        count = len(self._spec.results)
        numbers = self._spec.attributes["scatter_dimension_numbers"]
        update = self._spec.operands[-1].shape
        scattered = [n for d, n in enumerate(update) if d not in numbers["update_window_dims"]]
        if math.prod(scattered) != 1:
            for i, value in enumerate(barrier(*self._emit.operands[:count])):
                self._op.operands[i] = value
            return
        window = self._window(numbers, update)
        highest = [n - size for n, size in zip(self._spec.operands[0].shape, window, strict=True)]
        parts = components(self._emit, self._emit.operands[count], numbers["index_vector_dim"])
        parts = [self._emit.reshape(part, ()) for part in parts]
        dims = numbers["scattered_dims_to_operand_dims"]
        if not all(self._known(part, highest[d]) for part, d in zip(parts, dims, strict=True)):
            self._as_update(window, dict(zip(dims, parts, strict=True)), highest)

    def _window(self, numbers: dict, update: tuple[int, ...]) -> list[int]:
        """How much of each operand dim one update covers."""
        dropped = {*numbers["inserted_window_dims"], *numbers["input_batching_dims"]}
        sizes = iter([update[d] for d in numbers["update_window_dims"]])
        return [1 if d in dropped else next(sizes) for d in range(len(self._spec.operands[0].shape))]

    def _as_update(self, window: list[int], index: dict[int, Value], highest: list[int]) -> None:
        emit, count = self._emit, len(self._spec.results)
        zero = emit.constant(0, "i32")
        starts = [clamped_index(emit, index[d], most) if d in index else zero for d, most in enumerate(highest)]
        fits = [between(emit, part, highest[d] + 1) for d, part in index.items()]
        fit = functools.reduce(lambda a, b: emit.binary("and", a, b), fits)
        current = [emit.dynamic_slice(value, starts, window) for value in emit.operands[:count]]
        types = [TensorType(tuple(window), t.dtype) for t in self._spec.results]
        origin = emit.constant(0, self._spec.operands[count].dtype, self._spec.operands[count].shape)
        new = emit.clone([*current, origin, *emit.operands[count + 1 :]], types)
        for i in range(count):
            mixed = emit.select(fit, new[i], current[i])
            updated = emit.dynamic_update_slice(emit.operands[i], mixed, starts)
            self._op.results[i].replace_all_uses_with(updated)
        self._op.erase()
