"""How layouts go through ops, and what ops ask of them: the constraints of layout assignment, per distinct op.

    multiply %a, %b       FOLLOWS    the result lies as what it reads
    transpose %a          FOLLOWS    the same memory, dims renamed
    reshape %a            FOLLOWS    the same memory where dims that are split or merged lie together, else row-major
    dot %a, %b            FLEXIBLE   columns minor, rows as they lie in %a; written any other way for its readers
    dot along batch dims  STRICT     the two dims of each matrix are minor, in the order that pads less
    convolution           STRICT     features and images are minor, in the order that pads less
    gather, scatter       ANCHORED   row-major: rows of a table lie along the lanes
    sort, custom          ANCHORED   row-major, unless that pads much
    argument              GIVEN_BY_CALLER    the layout that pads least, as the runtime chooses it
    iota, broadcast 0     FREE       made inside whatever reads it
    carry %init, %next    CARRIED    as the loop's body leaves it, else as it comes

A layout goes through an op by groups of dims: an operand's dim and a result's have one group where one becomes the
other. A reshape's groups have several dims. Sources: XLA's `layout_assignment.cc` (`PropagateOperandConstraint`,
`PropagateReduceLayoutToOperand`, `ReshapeIsBitcast`); which order convolutions and products along batch dims get is of
libtpu, read off its compiled texts (`experiments/simulator_accuracy/labels`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autopart.core.op import MAX_RANK, OpSpec, TensorType, TileMapping
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import (
    Collective,
    Constant,
    Convolution,
    Elementwise,
    Matmul,
    Opaque,
    Reduction,
    Slicing,
    Structural,
    Update,
    View,
    elements,
)
from autopart.costmodel.compiled.dot_strength_reduction import is_summed
from autopart.spmd.for_xla.table_gradients import adds_rows

FREE, GIVEN_BY_CALLER, ANCHORED, FOLLOWS, FLEXIBLE, STRICT, CARRIED = range(7)
NO_GROUP = -1
NOTHING = TensorType((), "i1")


class Transfers(NamedTuple):
    """Per distinct op, and per operand of a distinct op from `first` on.

    kind      int8[specs]: `FREE` to `CARRIED`
    is_convolution, by_rows, updates    bool[specs]; the second: rows of a table are read or added to at indices; the
              third: it changes a part of an array
    counted   int32[specs]: of the result of a gather, of the updates of a scatter, a bit for each dim that counts
              indices
    inner     int32[specs]: of a `STRICT` op, a bit for each dim of the result that may lie inside tiles
    lane      int8[specs]: of those the one that lies along the lanes where either order pads as much
    asked     int32[rows]: of what it reads, a bit for each dim that it asks to lie inside tiles; 0: it reads any
    first     int32[specs]: the row of its first operand in `of_operand`
    same      bool[rows]: the operand's dims are those of the result, in their order
    moved     bool[rows]: the operand has as many elements as the result, be they in other dims
    of_operand, of_result   int8[rows, MAX_RANK]: the group of each dim of the operand, and of the result; `NO_GROUP`
    """

    kind: np.ndarray
    is_convolution: np.ndarray
    by_rows: np.ndarray
    updates: np.ndarray
    counted: np.ndarray
    inner: np.ndarray
    lane: np.ndarray
    asked: np.ndarray
    first: np.ndarray
    same: np.ndarray
    moved: np.ndarray
    of_operand: np.ndarray
    of_result: np.ndarray


def transfers(specs: Sequence[OpSpec]) -> Transfers:
    """Those of a program's distinct ops."""
    kinds = [_kind(spec) for spec in specs]
    mapped = [mappings_of(spec) or () for spec in specs]
    each = [(spec, found, i) for spec, found in zip(specs, mapped, strict=True) for i in range(len(spec.operands))]
    rows = [_groups(*one) for one in each]
    counts = np.array([len(spec.operands) for spec in specs], np.int32)
    both = [(t, spec.results[0]) if spec.results else (t, NOTHING) for spec in specs for t in spec.operands]
    ranks = np.array([len(a.shape) == len(b.shape) for a, b in both], np.bool_)
    groups = np.array(rows, np.int8).reshape(-1, 2, MAX_RANK)
    return Transfers(
        kind=np.array([kind for kind, _, _ in kinds], np.int8),
        is_convolution=np.array([isinstance(traits_of(spec), Convolution) for spec in specs], np.bool_),
        by_rows=np.array([_is_by_rows(spec) for spec in specs], np.bool_),
        updates=np.array([isinstance(traits_of(spec), Update) for spec in specs], np.bool_),
        counted=np.array([_counted(spec) for spec in specs], np.int32),
        inner=np.array([inner for _, inner, _ in kinds], np.int32),
        lane=np.array([lane for _, _, lane in kinds], np.int8),
        asked=np.array([_asked(*one) for one in each], np.int32),
        first=(np.cumsum(counts) - counts).astype(np.int32),
        same=(groups[:, 0] == groups[:, 1]).all(axis=1) & ranks,
        moved=np.array([elements(a) == elements(b) for a, b in both], np.bool_),
        of_operand=np.ascontiguousarray(groups[:, 0]),
        of_result=np.ascontiguousarray(groups[:, 1]),
    )


def _kind(spec: OpSpec) -> tuple[int, int, int]:
    """The kind of an op, with `inner` and `lane`."""
    if spec.kind == "argument":
        return GIVEN_BY_CALLER, 0, 0
    if spec.kind == "carry":
        return CARRIED, 0, 0
    match traits := traits_of(spec):
        case Convolution():
            features, images = traits.minor_dims(spec)
            return STRICT, 1 << features | 1 << images, features
        case Matmul(sides=None):
            return ANCHORED, 0, 0
        case Matmul() if is_summed(spec):
            return FOLLOWS, 0, 0
        case Matmul(sides=sides):
            batch, rank = sides(spec).batch if sides is not None else (), len(spec.results[0].shape)
            if all(spec.results[0].shape[d] == 1 for d in batch):
                return FLEXIBLE, 0, 0
            inner = [d for d in range(rank) if d not in batch]
            return STRICT, sum(1 << d for d in inner), min(inner, default=0)
        case Constant():
            return FREE, 0, 0
        case Elementwise() | View() | Reduction() | Collective() | Structural() if spec.operands:
            spreads = (
                len(spec.operands) == 1 and spec.results and 2 * elements(spec.operands[0]) <= elements(spec.results[0])
            )
            return FREE if spreads and isinstance(traits, Elementwise) else FOLLOWS, 0, 0
        case Elementwise():
            return FREE, 0, 0
        case Slicing(indexed=False):
            return FOLLOWS, 0, 0
        case Update() if traits.one_per_row(spec) or all(not t.shape for t in spec.operands[2:]):
            return FOLLOWS, 0, 0
        case Opaque(sorts=sorts, slides=slides) if slides or sorts(spec) is not None:
            return FOLLOWS, 0, 0
        case _:
            return ANCHORED, 0, 0


def _is_by_rows(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    if adds_rows(spec):
        return True
    if not isinstance(traits, Slicing) or not traits.indexed or not spec.operands[0].shape:
        return False
    return spec.results[0].shape[-1:] == spec.operands[0].shape[-1:] != (1,)


def _counted(spec: OpSpec) -> int:
    traits = traits_of(spec)
    match spec.attributes:
        case {"dimension_numbers": {"offset_dims": windows}} if isinstance(traits, Slicing):
            counts = spec.results[0]
        case {"scatter_dimension_numbers": {"update_window_dims": windows}} if isinstance(traits, Update):
            counts = spec.operands[-1]
        case _:
            return 0
    return sum(1 << d for d in range(len(counts.shape)) if d not in windows)


def _asked(spec: OpSpec, mappings: Sequence[TileMapping], operand: int) -> int:
    """A bit for each dim of an operand of a product along batch dims that is not one of these."""
    traits = traits_of(spec)
    if isinstance(traits, Convolution) and operand == 0:
        return sum(1 << d for d in traits.read_minor_dims(spec))
    if not isinstance(traits, Matmul) or traits.sides is None or operand > 1 or is_summed(spec):
        return 0
    batch = {d for d in traits.sides(spec).batch if spec.results[0].shape[d] > 1}
    if not batch:
        return 0
    outer = {m.operands[operand] for m in mappings if m.results[0] in batch}
    return sum(1 << d for d in range(len(spec.operands[operand].shape)) if d not in outer)


def _groups(spec: OpSpec, mappings: Sequence[TileMapping], operand: int) -> tuple[list[int], list[int]]:
    """The groups of the dims of an operand, and of the first result."""
    if not spec.results:
        return _padded({}), _padded({})
    given, left, traits = spec.operands[operand].shape, spec.results[0].shape, traits_of(spec)
    joins = isinstance(traits, Elementwise) and traits.joins
    if 2 * math.prod(given) <= math.prod(left) and not joins and not _sums(spec) and len(spec.operands) > 1:
        return _padded({}), _padded({})
    pairs = {m.operands[operand]: m.results[0] for m in mappings if m.operands[operand] >= 0}
    pairs = {d: e for d, e in pairs.items() if 0 <= e < len(left)}
    long = [d for d, size in enumerate(given) if size > 1]
    if len(given) == len(left) and all(pairs.get(d, d) == d for d in long) and not _sums(spec):
        alike = {d: d for d in range(len(given)) if given[d] > 1 or left[d] == 1}
        return _padded(alike), _padded({d: d for d in range(len(left))})
    if _sums(spec) or (
        all(d in pairs for d in long) and len({pairs[d] for d in long}) == len(long) and _keeps(given, left)
    ):
        return _padded({d: e for d, e in pairs.items() if given[d] > 1}), _padded({e: e for e in pairs.values()})
    if math.prod(given) == math.prod(left) > 0:
        return _factors(given, left)
    return _padded({}), _padded({})


def _keeps(given: Sequence[int], left: Sequence[int]) -> bool:
    """True where dims are renamed, or more come to them; False where some are split or merged."""
    kept = Counter(left)
    kept.subtract(size for size in given if size > 1)
    return min(kept.values(), default=0) >= 0


def _sums(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), (Reduction, Matmul, Convolution))


def _padded(groups: dict[int, int]) -> list[int]:
    return [groups.get(d, NO_GROUP) for d in range(MAX_RANK)]


def _factors(given: Sequence[int], left: Sequence[int]) -> tuple[list[int], list[int]]:
    """The groups of a reshape: shortest runs of dims with as many elements.

    >>> [groups[:4] for groups in _factors((16, 768), (16, 12, 64))]
    [[0, 1, -1, -1], [0, 1, 1, -1]]
    """
    groups: tuple[dict[int, int], dict[int, int]] = {}, {}
    i = j = number = 0
    while i < len(given) and j < len(left):
        groups[0][i], groups[1][j] = number, number
        a, b = given[i], left[j]
        while a != b:
            if a < b:
                i += 1
                a, groups[0][i] = a * given[i], number
            else:
                j += 1
                b, groups[1][j] = b * left[j], number
        i, j, number = i + 1, j + 1, number + 1
    return _padded(groups[0]), _padded(groups[1])
