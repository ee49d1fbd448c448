"""Memory traffic that no compiler avoids: what kernels must read and write however ops are fused and joined.

    %s = dot %q %k         A, written: %p is made of it, and another kernel reads either
    %m = reduce_max %s     may run inside A, as A makes %s: nothing is certain
    %e = exp (%s - %m)     may be computed inside its readers
    %t = reduce_sum %e     cannot run inside A, since A has to end before %m is known: reads %s or %e
    %o = dot (%e / %t) %v  B, reads %s or something on the way from %s, in a kernel of its own

A *station* is an op that is never computed inside others: a product, a reduction, a look-up, an update, an opaque
kernel, and an elementwise op that is a kernel in every state (`certain_kernels.py`). What a station reads comes along a
path of elementwise ops of its size from a *leaf*, which is no such op's result. Something on the path is in memory, so
that the station's kernel reads at least as many bytes as the least on the path has. Leaf and path are the same from
wherever they are looked at, so unlike leaves have paths apart, and a kernel that reads two pays both.

    read once    stations that may run in one kernel read a leaf together: one of them counts, and more of them only
                 where a reduction between two of them keeps their kernels apart. Products never share a kernel,
                 but for one that may run inside another: nothing is certain of what lies between them
    not at all   by what may run inside the kernel that makes the leaf, unless something is moved on the way
    written      what a kernel makes and a kernel apart reads, at the least on the path there; outputs

Where arrays may stay on the chip, bytes count only if they exceed it. Arrays are as large as their layout tiles; which
shapes what is in memory may have is known by its path, too (`padded_tiles.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, MATMUL, OPAQUE, REDUCE, SLICING, UPDATE
from autopart.search.ilp.fusion_regions import Regions
from autopart.search.ilp.padded_tiles import UNKNOWN, Shape

NARROW_BYTES = 2.0
"""Bytes of an f32 element that only products read, where they read it as bf16."""


_WRITING = (MATMUL, CONV, OPAQUE, SLICING, REDUCE, ELEMENTWISE)
"""Classes of stations whose results are written if kernels apart read them."""


class Traffic(NamedTuple):
    """Certain traffic, in bytes for each element of a device's part.

    reads     float64[uses]: of the array as the use reads it
    writes    float64[values]: of the array as its op leaves it
    read_as   of each use, and written_as of each value, the shapes that what is in memory may have (`padded_tiles.py`)
    """

    reads: np.ndarray
    writes: np.ndarray
    read_as: list[frozenset[Shape]]
    written_as: list[frozenset[Shape]]


def certain_traffic(arrays: ProgramArrays, parts: Regions) -> tuple[Traffic, Traffic]:
    """The certain traffic of a program, for any partitioning of it, by what may run in one kernel; and the traffic
    where something is moved on the way from each light op's only product (`product_hosts.py`) to the op."""
    return _Walk(arrays, parts).traffic()


class _Walk:
    """A walk over one program: `leaf[v]`, `least[v]` and `shapes[v]` of the path that ends in value v."""

    def __init__(self, arrays: ProgramArrays, parts: Regions):
        self.arrays, self.regions = arrays, parts
        self.operand_ptr, self.result_ptr = arrays.operand_ptr.tolist(), arrays.result_ptr.tolist()
        self.operands, self.maker = arrays.uses["operands"].tolist(), arrays.values["value_op"].tolist()
        self.op_class, self.scope = arrays.ops["op_class"].tolist(), arrays.ops["op_scope"].tolist()
        self.changes = arrays.ops["changes"].tolist()
        self.narrows = arrays.ops["narrows"].tolist()
        self.element_bytes = arrays.values["element_bytes"].tolist()
        self.elements = arrays.values["elements"].tolist()
        self.turns, rank = arrays.ops["turns"].tolist(), arrays.values["rank"].tolist()
        self.shape = [tuple(dims[:n]) for dims, n in zip(arrays.shape.tolist(), rank, strict=True)]
        self.leaf, self.least, self.shapes = self._paths()

    def _paths(self) -> tuple[list[int], list[float], list[frozenset[Shape]]]:
        """Per value the leaf of its path (-1: there is none), the least bytes of an element on it, and the shapes."""
        count = len(self.maker)
        leaf, least, shapes = [-1] * count, [0.0] * count, [frozenset({shape}) for shape in self.shape]
        fused, base = self.regions.fusable.tolist(), self.regions.base.tolist()
        is_splat = self.arrays.values["is_splat"].tolist()
        for op in range(len(self.op_class)):
            for value in range(self.result_ptr[op], self.result_ptr[op + 1]):
                if base[value] != value:
                    leaf[value], least[value] = leaf[base[value]], least[base[value]]
                    shapes[value] = self._with(op, base[value], value, shapes[base[value]])
                elif is_splat[value]:
                    continue
                elif not fused[op]:
                    leaf[value], least[value] = value, self.element_bytes[value]
                else:
                    for use in range(self.operand_ptr[op], self.operand_ptr[op + 1]):
                        operand = self.operands[use]
                        on_path = min(self.element_bytes[value], least[operand])
                        as_many = self.elements[operand] == self.elements[value] and on_path > 0
                        if as_many and (-on_path, leaf[operand]) < (-least[value], leaf[value]):
                            leaf[value], least[value] = leaf[operand], on_path
                            shapes[value] = self._with(op, operand, value, shapes[operand])
        return leaf, least, shapes

    def _with(self, op: int, operand: int, result: int, shapes: frozenset[Shape]) -> frozenset[Shape]:
        """The shapes of a path that goes on from an operand to a result. A transpose leaves nothing known but where all
        were alike; they are so after it."""
        if not self.turns[op]:
            return shapes | {self.shape[result]}
        return frozenset({self.shape[result]}) if shapes == frozenset({self.shape[operand]}) else UNKNOWN

    def traffic(self) -> tuple[Traffic, Traffic]:
        """See `certain_traffic`."""
        reads, moved = np.zeros(len(self.operands)), np.zeros(len(self.operands))
        writes, written_as = self._writes()
        written, moved_as = np.zeros(len(writes)), [*written_as]
        shared: dict[tuple[int, int], list[int]] = {}
        products: dict[tuple[int, int], list[int]] = {}
        alone: list[int] = []
        for op in np.flatnonzero(self.regions.station).tolist():
            kind = self.op_class[op]
            for use in self._leaves_of(op):
                place = self.leaf[self.operands[use]], self.scope[op]
                if kind in (REDUCE, ELEMENTWISE):
                    shared.setdefault(place, []).append(use)
                elif kind in (MATMUL, CONV):
                    products.setdefault(place, []).append(use)
                else:
                    alone.append(use)
        for place in {**shared, **products}:
            if self.maker[place[0]] in self.regions.nested:
                continue
            by_products = self._in_kernels_apart(products.get(place, []))
            kept = self._apart(place[0], shared.get(place, []), [self._reader(use) for use in by_products])
            for use in (*kept, *by_products):
                reads[use] = self._read_bytes(use, kept)
            leaf, (held, shapes) = place[0], self._written_for(place[0], kept)
            if held > writes[leaf]:
                writes[leaf], written_as[leaf], moved_as[leaf] = held, shapes, shapes
            for use in self._apart_if_moved(leaf, shared.get(place, []), kept):
                moved[use] = self._read_bytes(use, kept)
                if written[leaf] == 0:
                    written[leaf] = self.least[self.operands[use]]
                    if written[leaf] > writes[leaf]:
                        moved_as[leaf] = self.shapes[self.operands[use]]
        for use in alone:
            reads[use] = self._read_bytes(use, [])
        read_as = [self.shapes[operand] for operand in self.operands]
        certain = Traffic(reads, writes, read_as, written_as)
        return certain, Traffic(np.maximum(reads, moved), np.maximum(writes, written), read_as, moved_as)

    def _in_kernels_apart(self, by_products: list[int]) -> list[int]:
        """Of uses by products, those of products that run inside none of the others."""
        readers = {self._reader(use) for use in by_products}
        return [use for use in by_products if self.regions.nested.get(self._reader(use)) not in readers]

    def _reader(self, use: int) -> int:
        return int(self.arrays.uses["use_op"][use])

    def _leaves_of(self, op: int) -> list[int]:
        """One use of the op for each leaf that it reads; what an update changes in place is not read."""
        array, changed = self.changes[op] if self.op_class[op] == UPDATE else -1, set[int]()
        if array >= 0:
            changed = {self.leaf[self.operands[array]], int(self.regions.base[self.operands[array]])}
        best: dict[int, int] = {}
        for use in range(self.operand_ptr[op], self.operand_ptr[op + 1]):
            value = self.operands[use]
            if use == array or self.leaf[value] in changed:
                continue
            known = best.get(self.leaf[value])
            more = known is None or self._whole(use) > self._whole(known)
            if more and self.leaf[value] >= 0 and self.least[value] > 0:
                best[self.leaf[value]] = use
        return list(best.values())

    def _whole(self, use: int) -> float:
        return self.least[self.operands[use]] * self.elements[self.operands[use]]

    def _read_bytes(self, use: int, beside: list[int]) -> float:
        """Bytes of an element that a station reads along the path of a use; `beside`: uses that count for its leaf.

        What only products read may be stored or moved as bf16. Where one product reads it, and no kernel that is
        counted can make it, whoever makes it reads the path before it.
        """
        op, value = self._reader(use), self.operands[use]
        found, leaf, base = self.least[value], self.leaf[value], int(self.regions.base[value])
        if self.op_class[op] == OPAQUE:
            found *= float(self.arrays.specs["read_share"][self.arrays.ops["spec"][op]])
        if not (self.narrows[op] and self.element_bytes[value] == 2 * NARROW_BYTES):
            return found
        made_by, source = self.maker[base], self.maker[leaf]
        if self.regions.fusable[made_by]:
            once = all(self.arrays.user_ptr[v + 1] - self.arrays.user_ptr[v] == 1 for v in {value, base})
            apart = not self._joins(source) or self.regions.order.after(made_by, source)
            if once and apart and all(self.regions.order.after(made_by, self._reader(other)) for other in beside):
                return found
        return min(found, NARROW_BYTES)

    def _joins(self, maker: int) -> bool:
        """True where elementwise ops may run in the kernel that makes an op's result."""
        return self.op_class[maker] in (ELEMENTWISE, MATMUL, CONV)

    def _apart(self, leaf: int, uses: list[int], products: list[int]) -> list[int]:
        """Of uses by stations that may share kernels, those that read the leaf in kernels apart."""
        maker = self.maker[leaf]
        kept: list[int] = []
        for use in uses:
            op = self._reader(use)
            if not self.regions.hosts.of[op].isdisjoint((*products, maker)):
                continue
            if self.op_class[maker] == ELEMENTWISE and not self.regions.order.after(op, maker):
                continue
            if all(self.regions.order.after(op, self._reader(other)) for other in kept):
                kept.append(use)
        return kept

    def _written_for(self, leaf: int, uses: list[int]) -> tuple[float, frozenset[Shape]]:
        """Bytes of an element that are written because of uses that read the leaf in kernels apart from its own, and
        the shapes that what is written may have."""
        maker = self.maker[leaf]
        if not uses or not self.regions.station[maker] or self.op_class[maker] == UPDATE:
            return 0.0, UNKNOWN
        most = max((self.operands[use] for use in uses), key=lambda value: self.least[value])
        return self.least[most], self.shapes[most]

    def _apart_if_moved(self, leaf: int, uses: list[int], kept: list[int]) -> list[int]:
        """Of uses by stations whose only product makes the leaf, those that read it in kernels apart if it is moved."""
        found: list[int] = []
        for use in uses:
            op, only = self._reader(use), self.regions.hosts.only
            others = (self._reader(other) for other in (*kept, *found))
            if only.get(op) == self.maker[leaf] and all(self.regions.order.apart(op, other) for other in others):
                found.append(use)
        return found

    def _writes(self) -> tuple[np.ndarray, list[frozenset[Shape]]]:
        """Bytes of an element of each value that are certainly written, and the shapes of what is."""
        writes, (on_path, shapes) = np.zeros(len(self.maker)), self._least_until_read()
        is_output = self.arrays.values["is_output"].tolist()
        for op in np.flatnonzero(self.regions.station).tolist():
            kind = self.op_class[op]
            for value in range(self.result_ptr[op], self.result_ptr[op + 1]):
                if kind != UPDATE and is_output[value]:
                    writes[value], shapes[value] = self.element_bytes[value], frozenset({self.shape[value]})
                elif op not in self.regions.nested and kind in _WRITING:
                    writes[value] = on_path[value]
        return writes, shapes

    def _least_until_read(self) -> tuple[list[float], list[frozenset[Shape]]]:
        """Per value, of the ways on which it comes to a station that reads in a kernel apart, the most of the least
        bytes of an element on the way; 0 where there is none, or where an output is on the way. And the shapes on that
        way."""
        found, shapes = [0.0] * len(self.maker), [frozenset({shape}) for shape in self.shape]
        users, user = self.arrays.user_ptr.tolist(), self.arrays.user.tolist()
        fusable, is_output = self.regions.fusable, self.arrays.values["is_output"].tolist()
        for op in range(len(self.op_class) - 1, -1, -1):
            for value in range(self.result_ptr[op], self.result_ptr[op + 1]):
                for use in user[users[value] : users[value + 1]]:
                    reader, here, on_way = self._reader(use), self.element_bytes[value], frozenset({self.shape[value]})
                    kind, view = self.op_class[reader], self.arrays.ops["is_view"][reader]
                    if kind in (MATMUL, CONV):
                        apart = fusable[op] and self.leaf[value] >= 0
                        apart = apart and self.regions.order.after(op, self.maker[self.leaf[value]])
                        if self.narrows[reader] and here == 2 * NARROW_BYTES and not apart:
                            here = NARROW_BYTES
                    elif kind in (OPAQUE, SLICING) or (kind == UPDATE and use != self.changes[reader]):
                        pass
                    elif view or (kind == ELEMENTWISE and fusable[reader]):
                        into = self.result_ptr[reader] + (use - self.operand_ptr[reader] if view else 0)
                        same = self.elements[into] == self.elements[value] and self.scope[reader] == self.scope[op]
                        here = min(here, found[into]) if same and not is_output[into] else 0.0
                        on_way = self._with(reader, into, value, shapes[into])
                    else:
                        here = 0.0
                    if here > found[value] or (here == found[value] and len(on_way) < len(shapes[value])):
                        found[value], shapes[value] = here, on_way
        return found, shapes
