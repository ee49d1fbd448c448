"""The tile mappings of a program's specs as flat arrays, for the kernels.

    spec s has mappings  first[s] .. first[s+1]
    mapping m:  entries[start[m] : start[m+1]]  =  operand dims (or WHOLE), then result actions
                extent[m]                       =  what the axes taking it must divide

An op refers to a mapping by its number within the spec, so a table row is small and equal for equal layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from autopart.core.op import SUM, WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Slicing, combines_two, only_moves, repeated_elements
from autopart.core.stretch import Stretch


class MappingArrays(NamedTuple):
    """What the kernels read; see the module's picture.

    after[m]     the number of the mapping that must be used up before, or -1
    excludes[m]  bits by number: mappings of the spec that another axis must not have taken
    draws        like `entries`, bits by dim: which tiles of an operand draw the mapping
    drawn[s]     True for a spec of which something draws a mapping
    alone[m]     True for a mapping that is only taken where it is drawn
    stretch      like `entries`: 1 + the number in `MappingTable.stretches` of what is read of an operand, 0 for a tile
    repeats[s]   elements that a spec repeats in a larger array, 0 for one that repeats none (`traits.py`)
    moves[s]     True for a spec that only moves the elements of its one operand
    scales[s]    True for a spec that combines two arrays place by place, of which one may be a number
    looks_up[s]  True for rows of a table at an array of indices
    """

    first: np.ndarray
    start: np.ndarray
    entries: np.ndarray
    extent: np.ndarray
    after: np.ndarray
    excludes: np.ndarray
    draws: np.ndarray
    drawn: np.ndarray
    alone: np.ndarray
    stretch: np.ndarray
    repeats: np.ndarray
    moves: np.ndarray
    scales: np.ndarray
    looks_up: np.ndarray


@dataclass(frozen=True)
class MappingTable:
    """Mappings of every spec: as objects (`of`) and as arrays. `unknown` lists the specs without a rule.

    stretches  (dim, stretch) of every operand of which an iteration reads a stretch, each once
    """

    of: tuple[tuple[TileMapping, ...], ...]
    arrays: MappingArrays
    unknown: frozenset[int]
    stretches: tuple[tuple[int, Stretch], ...] = ()

    def without_exchanges(self) -> MappingTable:
        """The table in which no tile draws a mapping: for loops that run in sequence, which exchange nothing."""
        arrays = self.arrays._replace(draws=np.zeros_like(self.arrays.draws), drawn=np.zeros_like(self.arrays.drawn))
        return replace(self, arrays=arrays)


def mapping_table(specs: list[OpSpec]) -> MappingTable:
    """Runs each spec's rule once."""
    found = [mappings_of(spec) for spec in specs]
    of = tuple(tuple(m or ()) for m in found)
    flat = [m for mappings in of for m in mappings]
    rows = [(*m.operands, *m.results) for m in flat]
    read = [_read(m) for m in flat]
    stretches = tuple(dict.fromkeys(pair for row in read for pair in row if pair is not None))
    arrays = MappingArrays(
        first=np.cumsum([0, *map(len, of)]).astype(np.int32),
        start=np.cumsum([0, *map(len, rows)]).astype(np.int32),
        entries=np.array([e for row in rows for e in row], np.int8),
        extent=np.array([m.extent for m in flat], np.int64),
        after=np.array([-1 if m.after is None else ms.index(m.after) for ms in of for m in ms], np.int8),
        excludes=np.array([bits for mappings in of for bits in excluded(mappings)], np.int64),
        draws=np.array([bits for m in flat for bits in _draws(m)], np.int32),
        drawn=np.array([any(m.drawn_by for m in mappings) for mappings in of], np.bool_),
        alone=np.array([m.is_only_drawn for m in flat], np.bool_),
        stretch=np.array([1 + stretches.index(pair) if pair else 0 for row in read for pair in row], np.int32),
        repeats=np.array([repeated_elements(traits_of(spec), spec) for spec in specs], np.float64),
        moves=np.array([only_moves(traits_of(spec), spec) for spec in specs], np.bool_),
        scales=np.array([combines_two(traits_of(spec), spec) for spec in specs], np.bool_),
        looks_up=np.array([isinstance(t := traits_of(spec), Slicing) and t.indexed for spec in specs], np.bool_),
    )
    return MappingTable(of, arrays, frozenset(i for i, m in enumerate(found) if m is None), stretches)


def excluded(mappings: Sequence[TileMapping]) -> list[int]:
    """Per mapping, bits by number: the others that slice a dim which it slices, and which it does not follow."""
    if not any(m.after or m.drawn_by for m in mappings):
        return [0] * len(mappings)
    return [
        sum(1 << i for i, other in enumerate(mappings) if other is not one and _share(one, other) and i not in before)
        for one, before in ((m, _before(m, mappings)) for m in mappings)
    ]


def _share(one: TileMapping, other: TileMapping) -> bool:
    """True if both slice a dim of an operand, or tile one of a result."""
    sliced = any(a == b != WHOLE for a, b in zip(one.operands, other.operands, strict=True))
    return sliced or any(a == b < SUM for a, b in zip(one.results, other.results, strict=True))


def _before(mapping: TileMapping, mappings: Sequence[TileMapping]) -> set[int]:
    found: set[int] = set()
    while mapping.after is not None:
        mapping = mapping.after
        found.add(mappings.index(mapping))
    return found


def _draws(mapping: TileMapping) -> list[int]:
    bits = [0] * (len(mapping.operands) + len(mapping.results))
    for operand, dim in mapping.drawn_by:
        bits[operand] |= 1 << dim
    return bits


def _read(mapping: TileMapping) -> list[tuple[int, Stretch] | None]:
    stretches = [mapping.stretch(k) for k in range(len(mapping.operands))]
    pairs = [None if s is None else (dim, s) for dim, s in zip(mapping.operands, stretches, strict=True)]
    return [*pairs, *[None] * len(mapping.results)]
