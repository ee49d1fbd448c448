"""Which ops may run in one kernel, in any state: what a bound must not count apart.

    %h = dot %x %w                product
    %g = gelu %h                  may run in the product before it, and inside the one after it
    %n = reduce_sum %g            may run in the product before it, as gelu does: one region {%g, %n}
    %y = dot %g %v                product: touches {%g, %n} as a reader, the one before touches it as a maker

A *station* is an op that is never computed inside another. *Light* ops are elementwise ops, slices and reductions:
those that share arrays, as readers or as an elementwise maker and its readers, are one region. A kernel without a
product has light ops of one region, and one with a product those of regions that it reads from and is read by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.op_classes import ELEMENTWISE, FREE, OPAQUE, REDUCE, SLICING, UPDATE
from autopart.search.ilp.certain_kernels import fusable_ops
from autopart.search.ilp.product_hosts import Hosts, product_hosts

BREAKERS = (REDUCE, OPAQUE, UPDATE, SLICING)
"""Classes whose results no kernel takes while it is made: what needs them runs in a later kernel."""

MOST_BEHIND, DEEPEST = 400, 4
"""How many ops are looked at behind a station, and through how many breakers."""


@dataclass(frozen=True, eq=False)
class Regions:
    """What `regions` says of a program.

    base[value]       the value of which it is a view, itself where it is none
    fusable[op]       it may be computed inside every reader (`certain_kernels.py`)
    station[op]       a kernel op that is never computed inside another
    computed[op]      a kernel op that some kernel runs
    of_op[op]         the region of a light op, else -1
    """

    arrays: ProgramArrays
    base: np.ndarray
    fusable: np.ndarray
    station: np.ndarray
    computed: np.ndarray
    of_op: np.ndarray
    _behind: dict[int, frozenset[int]] = field(default_factory=dict, repr=False)
    _breakers: dict[int, frozenset[int]] = field(default_factory=dict, repr=False)

    def read_from(self, op: int) -> set[int]:
        """The regions whose results an op reads."""
        first, end = self.arrays.operand_ptr[op], self.arrays.operand_ptr[op + 1]
        makers = self.arrays.values["value_op"][self.base[self.arrays.uses["operands"][first:end]]]
        return {int(r) for r in self.of_op[makers] if r >= 0}

    def read_by(self, op: int) -> set[int]:
        """The regions that read results of an op."""
        results = range(int(self.arrays.result_ptr[op]), int(self.arrays.result_ptr[op + 1]))
        return {int(self.of_op[r]) for value in results for r in self._readers(value) if self.of_op[r] >= 0}

    @cached_property
    def hosts(self) -> Hosts:
        """The products in whose kernels light stations may run."""
        return product_hosts(self.arrays, self.of_op, np.flatnonzero(self.station), self.read_by)

    def after(self, op: int, other: int) -> bool:
        """True where an op needs a breaker's result that needs the other op's, or the other's, if it is a breaker."""
        seen, front = set[int](), {op}
        for _ in range(DEEPEST):
            front = {b for o in front for b in self._breakers_behind(o)} - seen
            if other in front or any(other in self.behind(b) for b in front):
                return True
            seen |= front
        return False

    def _breakers_behind(self, op: int) -> frozenset[int]:
        if op not in self._breakers:
            op_class = self.arrays.ops["op_class"]
            self._breakers[op] = frozenset(b for b in self.behind(op) if int(op_class[b]) in BREAKERS)
        return self._breakers[op]

    def apart(self, op: int, other: int) -> bool:
        """True where either of two ops is after the other."""
        return self.after(op, other) or self.after(other, op)

    def behind(self, op: int) -> frozenset[int]:
        """The ops in its scope that an op reads from, through elementwise ops and views; the nearest of many."""
        if op not in self._behind:
            arrays, found, front = self.arrays, dict[int, None](), [op]
            ops, values = arrays.ops, arrays.values["value_op"]
            while front and len(found) < MOST_BEHIND:
                at = front.pop(0)
                for value in arrays.uses["operands"][arrays.operand_ptr[at] : arrays.operand_ptr[at + 1]]:
                    maker = int(values[self.base[value]])
                    if maker not in found and ops["op_scope"][maker] == ops["op_scope"][op] and maker < op:
                        found[maker] = None
                        if ops["op_class"][maker] == ELEMENTWISE:
                            front.append(maker)
            self._behind[op] = frozenset(found)
        return self._behind[op]

    def _readers(self, value: int) -> Iterator[int]:
        """The ops that read a value, or a view of it."""
        arrays = self.arrays
        for use in arrays.user[arrays.user_ptr[value] : arrays.user_ptr[value + 1]].tolist():
            reader = int(arrays.uses["use_op"][use])
            yield reader
            if arrays.ops["is_view"][reader]:
                yield from self._readers(int(arrays.result_ptr[reader] + use - arrays.operand_ptr[reader]))


def regions(arrays: ProgramArrays, devices: int, *, into_matmul: bool) -> Regions:
    """The regions of a program, for any partitioning of it over so many devices; see `fusable_ops`."""
    ops, base = arrays.ops, _bases(arrays)
    is_view, op_class = ops["is_view"], ops["op_class"]
    fusable = fusable_ops(arrays, base, devices, into_matmul=into_matmul)
    station = (op_class != FREE) & ~fusable
    computed = _computed(arrays, station)
    light = ((op_class == ELEMENTWISE) | (op_class == REDUCE) | (op_class == SLICING)) & (
        fusable | (op_class != SLICING)
    )
    return Regions(arrays, base, fusable, station & ~is_view, computed, _joined(arrays, base, light))


def _bases(arrays: ProgramArrays) -> np.ndarray:
    """int64[values]: see `Regions.base`. What a view shows is made before it."""
    base = np.arange(len(arrays.values))
    for op in np.flatnonzero(arrays.ops["is_view"]).tolist():
        for place in range(int(arrays.result_ptr[op + 1] - arrays.result_ptr[op])):
            shown = arrays.uses["operands"][arrays.operand_ptr[op] + place]
            base[arrays.result_ptr[op] + place] = base[shown]
    return base


def _computed(arrays: ProgramArrays, station: np.ndarray) -> np.ndarray:
    """bool[ops]: stations, and what they read through others."""
    found = (station | (arrays.ops["op_class"] == FREE) & ~arrays.ops["is_view"]).tolist()
    operands, makers = arrays.uses["operands"].tolist(), arrays.values["value_op"].tolist()
    pointer, is_output = arrays.operand_ptr.tolist(), arrays.values["is_output"]
    for value in np.flatnonzero(is_output).tolist():
        found[makers[value]] = True
    for op in range(len(found) - 1, -1, -1):
        if found[op]:
            for use in range(pointer[op], pointer[op + 1]):
                found[makers[operands[use]]] = True
    return np.array(found, np.bool_) & (arrays.ops["op_class"] != FREE)


def _joined(arrays: ProgramArrays, base: np.ndarray, light: np.ndarray) -> np.ndarray:
    """int64[ops]: see `Regions.of_op`. A region has the number of one of its ops."""
    parent = list(range(len(light)))

    def root(op: int) -> int:
        while parent[op] != op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    first: dict[int, int] = {}
    uses = arrays.uses
    shared = light[uses["use_op"]] & (arrays.values["elements"][uses["operands"]] > 1)
    for use in np.flatnonzero(shared).tolist():
        value, reader = int(base[uses["operands"][use]]), int(uses["use_op"][use])
        maker = int(arrays.values["value_op"][value])
        if light[maker] and arrays.ops["op_class"][maker] != REDUCE:
            first.setdefault(value, maker)
        parent[root(reader)] = root(first.setdefault(value, reader))
    return np.array([root(op) if light[op] else -1 for op in range(len(light))])
