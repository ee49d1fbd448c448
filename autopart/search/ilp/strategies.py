"""Strategies of an op: which of its tile mappings each mesh axis uses, and what that asks of operands and results.

    %y = dot_general %x %w    on {a: 4, b: 2}            x             w             y
    (m, -)                    a slices rows              (1, 0)        (0, 0)        (1, 0)
    (m, n)                    b slices columns too       (1, 0)        (0, 2)        (1, 2)
    (k, k)                    both slice what is summed  (2, 2)        (1, 1)        (17, 17)

Every combination is there whose factors the axes divide. What an earlier tactic decided is fixed: an axis that has a
mapping keeps it, and an axis that the search does not use keeps none. An op with passages (`core/ops/passages.py`) may
also work on parts of what is pending over an axis and leave parts (`PASS`). Combinations that ask the same, give the
same and divide the work alike are one strategy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.op import SUM, WHOLE, OpSpec, TileMapping
from autopart.core.ops.passages import Passage
from autopart.core.stretch import Stretch
from autopart.core.table.mapping_table import excluded
from autopart.search.ilp.labels import Label, divides, reading
from autopart.spmd.lowering.divided_scatters import LEAST_OPERANDS

NONE, PASS = -1, -2
"""In place of a mapping's number: no loop over the axis; `PASS - i`: parts pass by the i-th passage."""

LAST_REDUCTION = LAST_TILE + 6


class Fixed(NamedTuple):
    """What the starting state says of an op, per mesh axis.

    mapping    its mapping's number, or `NONE`
    is_open    True where the search may still give it one, or the lowering does
    """

    mapping: tuple[int, ...]
    is_open: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class OpStrategies:
    """The strategies of one op.

    mapping[s]        per axis: a mapping's number, `NONE`, or `PASS - i`
    required[k][s]    the label in which operand k is read, with the stretches that are read of it
    native[r][s]      the label in which result r is left
    ways              float64[s]: over how many devices the loops divide the op's work
    """

    mapping: tuple[Label, ...]
    required: tuple[tuple[Label, ...], ...]
    native: tuple[tuple[Label, ...], ...]
    ways: np.ndarray

    @property
    def count(self) -> int:
        """Their number."""
        return len(self.mapping)


def op_strategies(
    spec: OpSpec,
    mappings: Sequence[TileMapping],
    sizes: Sequence[int],
    fixed: Fixed,
    *,
    passages: Sequence[Passage] = (),
    divided: bool = False,
    free: bool = False,
    repeated: bool = False,
    from_scalars: bool = False,
    repeats: int = 0,
    stretches: Sequence[tuple[int, Stretch]] = (),
) -> OpStrategies:
    """The strategies of an op of this kind from a starting state; at least one.

    passages       by which something pending may pass
    divided        nothing passes on an axis over which a loop divides the op
    free           it does no work of its own: `gathered_slices.py` or `moved_views.py` may take its loop away
    repeated       it repeats what it reads, or puts it in another order: `moved_views.py` may take any other
                   mapping, or none
    from_scalars   it may be made whole on every device, whatever its mapping, for a reader that works on parts
    repeats        bits by mapping number: a loop over that mapping divides no work
    stretches      (dim, stretch) by the number that labels have (`MappingTable.stretches`)
    """
    passing, whole = [PASS - i for i in range(len(passages))], [NONE] if from_scalars else []
    passes_on = free and [t.shape for t in spec.operands] == [t.shape for t in spec.results[:1]]
    choices: list[list[int]] = []
    for mapping, is_open in zip(fixed.mapping, fixed.is_open, strict=True):
        if mapping != NONE:
            given_up = [NONE] if not whole and (passes_on or repeated or _is_slice(mappings[mapping])) else []
            others = range(len(mappings)) if repeated else _of_lowering(mappings, mapping)
            choices.append([mapping, *whole, *given_up, *others, *([] if divided else passing)])
        else:
            choices.append([NONE, *(range(len(mappings)) if is_open else ()), *passing])
    found: dict[tuple[object, ...], Label] = {}
    for combination in itertools.product(*choices):
        if not _divide(mappings, combination, sizes):
            continue
        pairs = tuple(zip(combination, sizes, strict=True))
        required = tuple(
            tuple(_code_read(mappings, passages, m, k, stretches if size > 1 else ()) for m, size in pairs)
            for k in range(len(spec.operands))
        )
        native = tuple(_native(mappings, passages, combination, r) for r in range(len(spec.results)))
        labelled = zip((*spec.operands, *spec.results), (*required, *native), strict=True)
        if combination == fixed.mapping or all(divides(t.shape, label, sizes) for t, label in labelled):
            found.setdefault((required, native, _ways(combination, sizes, repeats)), combination)
    columns = list(found)
    return OpStrategies(
        mapping=tuple(found.values()),
        required=tuple(tuple(c[0][k] for c in columns) for k in range(len(spec.operands))),  # pyright: ignore
        native=tuple(tuple(c[1][r] for c in columns) for r in range(len(spec.results))),  # pyright: ignore
        ways=np.array([c[2] for c in columns], np.float64),
    )


def _is_slice(mapping: TileMapping) -> bool:
    """True for a loop that `spmd/lowering/gathered_slices.py` may take away."""
    return len(mapping.operands) == 1 and bool(mapping.reads)


def _of_lowering(mappings: Sequence[TileMapping], fixed: int) -> list[int]:
    """The mappings that a lowering may take instead of one that is fixed."""
    return [*_over_rows(mappings), *_of_updates(mappings, fixed), *_of_look_ups(mappings, fixed)]


def _of_look_ups(mappings: Sequence[TileMapping], fixed: int) -> list[int]:
    """The mappings that `spmd/lowering/divided_tables.py` may take instead of a sum over the rows of a table."""
    if fixed not in _over_rows(mappings) or mappings[fixed].operands[0] == WHOLE:
        return []
    return [i for i, m in enumerate(mappings) if m.operands[0] == WHOLE and m.results[0] < LAST_TILE]


def _over_rows(mappings: Sequence[TileMapping]) -> list[int]:
    """The mappings that `divided_tables.py` may take instead: slices of one operand alone, which leave a sum."""
    return [
        i
        for i, m in enumerate(mappings)
        if len(m.operands) > len(m.results) == 1 == sum(dim != WHOLE for dim in m.operands) and m.results[0] > LAST_TILE
    ]


def _of_updates(mappings: Sequence[TileMapping], fixed: int) -> list[int]:
    """The mappings that `spmd/lowering/divided_scatters.py` may take instead of one that leaves a sum."""
    if len(mappings[fixed].operands) < LEAST_OPERANDS or mappings[fixed].results[0] != SUM:
        return []
    return [
        i
        for i, m in enumerate(mappings)
        if m.results[0] < LAST_TILE and sum(dim != WHOLE for dim in m.operands) <= 1 == len(m.results)
    ]


def _divide(mappings: Sequence[TileMapping], combination: Label, sizes: Sequence[int]) -> bool:
    """True if the axes divide what they cut, and cut no dim by two mappings of which neither follows the other."""
    cut: dict[int, int] = {}
    for number, size in zip(combination, sizes, strict=True):
        if number >= 0:
            cut[number] = cut.get(number, 1) * size
    exclusive = excluded(mappings)
    for number, parts in cut.items():
        after = mappings[number].after
        if mappings[number].extent % parts:
            return False
        if any(exclusive[number] >> other & exclusive[other] >> number & 1 for other in cut):
            return False
        if after is not None and cut.get(mappings.index(after)) != after.extent:
            return False
    return True


def _code_read(
    mappings: Sequence[TileMapping],
    passages: Sequence[Passage],
    m: int,
    operand: int,
    stretches: Sequence[tuple[int, Stretch]],
) -> int:
    """What an axis that uses mapping, or passage, `m` does to an operand as it is read."""
    if m <= PASS:
        passage = passages[PASS - m]
        return passage.code if passage.parts[operand] else 0
    if m == NONE:
        return 0
    dim, stretch = mappings[m].operands[operand], mappings[m].stretch(operand)
    read = (dim, stretch)
    return dim + 1 if stretch is None or not stretches else reading(dim + 1, stretches.index(read))


def _native(mappings: Sequence[TileMapping], passages: Sequence[Passage], combination: Label, result: int) -> Label:
    return tuple(
        passages[PASS - m].code if m <= PASS else 0 if m == NONE else _code(mappings[m].results[result])
        for m in combination
    )


def _code(entry: int) -> int:
    if entry < LAST_TILE:
        return entry + 1
    return entry if entry <= LAST_REDUCTION else 0


def _ways(combination: Label, sizes: Sequence[int], repeats: int) -> int:
    return math.prod(size for m, size in zip(combination, sizes, strict=True) if m >= 0 and not repeats >> m & 1)
