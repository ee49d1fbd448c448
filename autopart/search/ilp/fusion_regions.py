"""Which ops may run in one kernel, in any state: what a bound must not count apart.

    %h = dot %x %w                product
    %g = gelu %h                  may run in the product before it, and inside the one after it
    %n = reduce_sum %g            may run in the product before it, as gelu does: one region {%g, %n}
    %y = dot %g %v                product: touches {%g, %n} as a reader, the one before touches it as a maker

A *station* is an op that is never computed inside another. *Light* ops are elementwise ops, slices and reductions:
those that share arrays, as readers or as an elementwise maker and its readers, are one region. A kernel without a
product has light ops of one region, and one with a product those of regions that it reads from and is read by.

    %b = add %u %v           [1024]: computed inside each of its readers; they do not run together because they read it
    %y = multiply %b %x      [512, 1024, 1024] on 32 devices: no device walks through as few elements as %b has
    %z = multiply %b %q      unless they share another array, not of the region of %y

Kernels run as one where they read an array in step, an element at a time (`multi_output.py`). An array of fewer
elements than any device walks through joins nothing. What makes it and is computed inside readers *leaks* into their
regions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE, FREE, REDUCE, SLICING
from autopart.search.ilp.certain_kernels import fusable_ops
from autopart.search.ilp.disjoint_sets import DisjointSets
from autopart.search.ilp.kernel_order import KernelOrder, kernel_order
from autopart.search.ilp.nesting_products import nesting_products
from autopart.search.ilp.product_hosts import Hosts, product_hosts


@dataclass(frozen=True, eq=False)
class Regions:
    """What `regions` says of a program.

    base[value]       the value of which it is a view, itself where it is none
    fusable[op]       it may be computed inside every reader (`certain_kernels.py`)
    station[op]       a kernel op that is never computed inside another
    computed[op]      a kernel op that some kernel runs
    of_op[op]         the region of a light op, else -1
    leaks[op]         a light op that kernels of other regions may compute, too
    nested[op]        the product in which a product may run, by op (`nesting_products.py`)
    """

    arrays: ProgramArrays
    base: np.ndarray
    fusable: np.ndarray
    station: np.ndarray
    computed: np.ndarray
    of_op: np.ndarray
    leaks: np.ndarray
    nested: dict[int, int]

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
    def order(self) -> KernelOrder:
        """Which stations' kernels have ended before an op's begins."""
        apart = self.station.copy()
        apart[list(self.nested)] = False
        return kernel_order(self.arrays, self.base, apart)

    @cached_property
    def hosts(self) -> Hosts:
        """The products in whose kernels light stations may run."""
        return product_hosts(self.arrays, self.of_op, np.flatnonzero(self.station), self.read_by)

    def _readers(self, value: int) -> Iterator[int]:
        """The ops that read a value, or a view of it."""
        arrays = self.arrays
        for use in arrays.user[arrays.user_ptr[value] : arrays.user_ptr[value + 1]].tolist():
            reader = int(arrays.uses["use_op"][use])
            yield reader
            if arrays.ops["is_view"][reader]:
                yield from self._readers(int(arrays.result_ptr[reader] + use - arrays.operand_ptr[reader]))


def regions(arrays: ProgramArrays, devices: int, chip: Device) -> Regions:
    """The regions of a program, for any partitioning of it over so many devices; on such devices."""
    ops, base = arrays.ops, _bases(arrays)
    is_view, op_class = ops["is_view"], ops["op_class"]
    fusable = fusable_ops(arrays, base, devices, into_matmul=chip.around_matmul.fuses_operands)
    station = (op_class != FREE) & ~fusable
    computed = _computed(arrays, station)
    light = ((op_class == ELEMENTWISE) | (op_class == REDUCE) | (op_class == SLICING)) & (
        fusable | (op_class != SLICING)
    )
    of_op, leaks = _joined(arrays, base, light, light & fusable, devices)
    nested = nesting_products(arrays, devices, float(chip.matmul_tile[2])) if chip.around_matmul.nests_products else {}
    return Regions(arrays, base, fusable, station & ~is_view, computed, of_op, leaks, nested)


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


def _joined(
    arrays: ProgramArrays, base: np.ndarray, light: np.ndarray, inside: np.ndarray, devices: int
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[ops], bool[ops]): see `Regions.of_op` and `Regions.leaks`. A region has the number of one of its ops.

    inside   bool[ops]: light ops that may be computed inside others
    """
    first, sets = dict[int, int](), DisjointSets(len(light))
    uses, leaks = arrays.uses, np.zeros(len(light), np.bool_)
    largest, fewest = _largest_read(arrays, base, inside), _fewest_in_step(arrays, base, light, inside)
    shared = light[uses["use_op"]] & (arrays.values["elements"][uses["operands"]] > 1)
    for use in np.flatnonzero(shared).tolist():
        value, reader = int(base[uses["operands"][use]]), int(uses["use_op"][use])
        maker = int(arrays.values["value_op"][value])
        if largest[value] * devices < fewest[reader]:
            leaks[maker] |= inside[maker]
            continue
        if light[maker] and arrays.ops["op_class"][maker] != REDUCE:
            first.setdefault(value, maker)
        sets.join(reader, first.setdefault(value, reader))
    for use in np.flatnonzero(inside[uses["use_op"]])[::-1].tolist():
        maker = int(arrays.values["value_op"][base[uses["operands"][use]]])
        leaks[maker] |= inside[maker] and leaks[uses["use_op"][use]]
    return np.array([sets.of(op) if light[op] else -1 for op in range(len(light))]), leaks


def _largest_read(arrays: ProgramArrays, base: np.ndarray, inside: np.ndarray) -> list[float]:
    """Per value, the elements of the largest array that a kernel may read for it: the value or what it is made of."""
    found = arrays.values["elements"].astype(float).tolist()
    pointer, operands = arrays.operand_ptr.tolist(), base[arrays.uses["operands"]].tolist()
    result = arrays.result_ptr.tolist()
    for op in np.flatnonzero(inside).tolist():
        read = [found[value] for value in operands[pointer[op] : pointer[op + 1]]]
        for value in range(result[op], result[op + 1]):
            found[value] = max(found[value], *read, 0.0)
    return found


def _fewest_in_step(arrays: ProgramArrays, base: np.ndarray, light: np.ndarray, inside: np.ndarray) -> list[float]:
    """Per op, the fewest elements that a kernel which computes it walks through, the whole of it on one device; such
    kernels are named after the op, or after one that reads its result and computes it."""
    elements, op_class = arrays.values["elements"], arrays.ops["op_class"].tolist()
    readers: dict[int, list[int]] = {}
    for use in np.flatnonzero(light[arrays.uses["use_op"]]).tolist():
        readers.setdefault(int(base[arrays.uses["operands"][use]]), []).append(int(arrays.uses["use_op"][use]))
    found = [np.inf] * len(op_class)
    for op in range(len(op_class) - 1, -1, -1):
        result = int(arrays.result_ptr[op])
        if op_class[op] == ELEMENTWISE:
            found[op] = float(elements[result])
        elif op_class[op] == REDUCE:
            found[op] = float(elements[arrays.uses["operands"][arrays.operand_ptr[op]]])
        if inside[op]:
            found[op] = min([found[op], *(found[reader] for reader in readers.get(result, ()))])
    return found
