"""Prices of the redistributions that a program's lowerings have asked for so far, by number.

    (type, source layout, target layout, stretches)  ->  row  ->  seconds, bytes, ...: a column of `figures` each

Row 0 is what costs nothing. A step of a deep model has thousands of redistributions of a few dozen kinds, so rows are
looked up by a kernel; what it does not find is planned and priced once.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.links.bf16_collectives import narrow_moves
from autopart.costmodel.compiled.links.redistribution_costs import FIGURES, NO_STEPS, PlanCost

if TYPE_CHECKING:
    from autopart.spmd.device_local import DeviceLocal

ROW_FIELDS = np.dtype(
    [
        ("source", np.uint64),
        ("target", np.uint64),
        ("stretch", np.int64),
        ("type_id", np.int32),
        ("row", np.int32),
    ],
    align=True,
)


class Asked(NamedTuple):
    """What is asked about redistributions; `types` are those of values, -2 - type of what is moved as bf16."""

    types: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    stretches: np.ndarray


def ask(type_of: np.ndarray, narrow_uses: np.ndarray, local: DeviceLocal) -> Asked:
    """All redistributions of a lowering, those after ops first; `type_of` as `Program.value_type_id`."""
    place, count = local.placement, len(local.at_def) + len(local.placement.value)
    sources, targets = np.empty(count, np.uint64), np.empty(count, np.uint64)
    asked = Asked(np.empty(count, np.int32), sources, targets, np.empty(count, np.int64))
    _ask(
        type_of, narrow_uses, local.native, local.settled, local.at_def, place.value, place.target, place.stretch,
        place.of_use, np.empty(len(place.value), np.bool_), asked,
    )  # fmt: skip
    return asked


@kernel
def _ask(
    type_of: np.ndarray,
    narrow_uses: np.ndarray,
    native: np.ndarray,
    settled: np.ndarray,
    at_def: np.ndarray,
    value: np.ndarray,
    target: np.ndarray,
    stretch: np.ndarray,
    of_use: np.ndarray,
    narrow: np.ndarray,
    asked: Asked,
) -> None:
    """Fills in `asked`, from the arrays of a `DeviceLocal` and its placement; `narrow` is scratch."""
    defs = at_def.shape[0]
    for d in range(defs):
        asked.types[d], asked.stretches[d] = type_of[at_def[d]], 0
        asked.sources[d], asked.targets[d] = native[at_def[d]], settled[at_def[d]]
    narrow_moves(narrow_uses, of_use, narrow)
    for r in range(value.shape[0]):
        type_id = type_of[value[r]]
        asked.types[defs + r], asked.stretches[defs + r] = -2 - type_id if narrow[r] else type_id, stretch[r]
        asked.sources[defs + r], asked.targets[defs + r] = settled[value[r]], target[r]


class KnownPlans:
    """Prices by (type, source, target, stretches); `kinds`: the greatest number of a kind that may be combined.

    figures, moves_nothing   by row
    read_shares              by row, NaN until somebody asks: of what is made, the share that stretches read
    """

    def __init__(self) -> None:
        self.kinds = 0
        self.read_shares = np.empty(0)
        self.costs: list[PlanCost] = [NO_STEPS]
        self._keys: list[tuple[int, int, int, int]] = [(-1, 0, 0, 0)]
        self._grow(512)

    def rows(
        self,
        types: np.ndarray,
        sources: np.ndarray,
        targets: np.ndarray,
        stretches: np.ndarray,
        price: Callable[[int], PlanCost],
    ) -> np.ndarray:
        """int32[n]: the row of each of n redistributions; `price(i)` costs the i-th if it is new."""
        rows = np.empty(len(types), np.int32)
        while (first := _find(self._table, types, sources, targets, stretches, rows)) < len(rows):
            self.costs.append(price(first))
            self._keys.append(tuple(int(key[first]) for key in (types, sources, targets, stretches)))
            if 2 * len(self.costs) > len(self._table):
                self._grow(2 * len(self._table))
            else:
                self._enter(len(self.costs) - 1)
        return rows

    def _grow(self, room: int) -> None:
        """Makes room for half as many rows."""
        self._table: Any = np.zeros(room, ROW_FIELDS)
        self.figures = np.zeros((len(FIGURES), room // 2 + 1))
        self.moves_nothing = np.zeros(room // 2 + 1, np.bool_)
        self.read_shares = np.append(self.read_shares, np.full(room // 2 + 1 - len(self.read_shares), np.nan))
        for row in range(len(self.costs)):
            self._enter(row)

    def _enter(self, row: int) -> None:
        """Writes a row into the arrays."""
        self.kinds = max(self.kinds, self.costs[row].combinable)
        cost, (type_id, source, target, stretch) = self.costs[row], self._keys[row]
        self.figures[:, row], self.moves_nothing[row] = cost.figures, not cost.steps
        if row > 0:
            place = _place(self._table, type_id, np.uint64(source), np.uint64(target), stretch)
            self._table[place] = (source, target, stretch, type_id, row)


@kernel
def _place(table: Any, type_id: int, source: np.uint64, target: np.uint64, stretch: int) -> int:
    """Where in the hash table a redistribution stands, or would stand; the row of an empty place is 0."""
    last = table.shape[0] - 1
    mixed = (source * np.uint64(0x9E3779B97F4A7C15)) ^ (target * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= np.uint64(stretch) * np.uint64(0xD6E8FEB86659FD93)
    place = np.int64((mixed + np.uint64(type_id) * np.uint64(0x165667B19E3779F9)) >> np.uint64(40)) & last
    while table.row[place] > 0 and (
        table.type_id[place] != type_id
        or table.source[place] != source
        or table.target[place] != target
        or table.stretch[place] != stretch
    ):
        place = (place + 1) & last
    return place


@kernel
def _find(
    table: Any,
    types: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    stretches: np.ndarray,
    rows: np.ndarray,
) -> int:
    """Writes the rows up to the first redistribution that is new; returns that, or how many there are."""
    for i in range(rows.shape[0]):
        row = table.row[_place(table, types[i], sources[i], targets[i], stretches[i])]
        if row == 0:
            return i
        rows[i] = row
    return rows.shape[0]
