"""The tile mappings of a program's specs as flat arrays, for the kernels.

    spec s has mappings  first[s] .. first[s+1]
    mapping m:  entries[start[m] : start[m+1]]  =  operand dims (or WHOLE), then result actions
                extent[m]                       =  what the axes taking it must divide

An op refers to a mapping by its number within the spec, so a table row is small and equal for equal layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.rule import mappings_of


class MappingArrays(NamedTuple):
    """What the kernels read; see the module's picture."""

    first: np.ndarray
    start: np.ndarray
    entries: np.ndarray
    extent: np.ndarray


@dataclass(frozen=True)
class MappingTable:
    """Mappings of every spec: as objects (`of`) and as arrays. `unknown` lists the specs without a rule."""

    of: tuple[tuple[TileMapping, ...], ...]
    arrays: MappingArrays
    unknown: frozenset[int]


def mapping_table(specs: list[OpSpec]) -> MappingTable:
    """Runs each spec's rule once."""
    found = [mappings_of(spec) for spec in specs]
    of = tuple(tuple(m or ()) for m in found)
    flat = [m for mappings in of for m in mappings]
    rows = [(*m.operands, *m.results) for m in flat]
    arrays = MappingArrays(
        first=np.cumsum([0, *map(len, of)]).astype(np.int32),
        start=np.cumsum([0, *map(len, rows)]).astype(np.int32),
        entries=np.array([e for row in rows for e in row], np.int8),
        extent=np.array([m.extent for m in flat], np.int64),
    )
    return MappingTable(of, arrays, frozenset(i for i, m in enumerate(found) if m is None))
