"""How computing and memory traffic add up in a bound, although a kernel hides the shorter behind the longer.

    seconds of a kernel = launch + max(C, M) + u min(C, M)  >=  launch + a C + b M    for 1 and u as a and b, either way

Which ops share a kernel is not known, so the same a and b must hold for all that may. A region (`fusion_regions.py`)
counts either way, for all of its ops:

    by work       computing in full, u of the traffic: as a product does that computes for longer than it reads
    by traffic    u of the computing; traffic in full in kernels that no product runs in (`product_hosts.py`), and
                  u of it in those of products that count by work

A product whose regions are all by traffic adds no more than u of either to what it takes by itself, so that it counts
whichever way is more, by strategy. Where products and the vector unit work side by side, a product's kernel takes the
longer and u of the shorter: vector work that may run in one counts u.

Which products count by traffic is decided by part of the program, parts of which no ops may share a kernel: each by its
own traffic and work, or each with those of what may run with it, whichever makes more of the part count.

A kernel without products takes at least as long as one stream takes for its largest array. That counts for stations
whose kernels have no other certain traffic: they are *alone*. Of light ops that need each other's kernels to have
ended, each has a launch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from autopart.costmodel.hardware.devices import (
    CONV_SHARE,
    HBM,
    IN_TURN,
    UNHIDDEN,
    VECTOR,
)
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV, MATMUL, OPAQUE, SLICING, UPDATE
from autopart.search.ilp.certain_traffic import Traffic
from autopart.search.ilp.disjoint_sets import DisjointSets
from autopart.search.ilp.filled_tiles import filled
from autopart.search.ilp.fusion_regions import Regions

MOST_STATIONS = 64
"""In a region of more stations none is looked at as to whether it is alone, or launched if it is moved."""

IF_MOVED = 0.5
"""Whether a region counts by traffic is decided by what then counts; so much of it where only moves make it count."""


class Shares(NamedTuple):
    """float64[ops] each.

    work, bytes    the shares of an op's computing and of its bytes' seconds that count
    either         1 where these may be 1 and u, or u and 1, whichever is more
    alone          1 where a station's kernel has no product, and no other station with certain traffic
    launched       1 for a light op whose kernel is no product's, and no other such op's; and for a product that runs
                   inside no other
    """

    work: np.ndarray
    bytes: np.ndarray
    either: np.ndarray
    alone: np.ndarray
    launched: np.ndarray


def kernel_shares(
    arrays: ProgramArrays, regions: Regions, traffic: Traffic, moved: Traffic, row: np.ndarray
) -> tuple[Shares, Shares]:
    """The shares of every op, and those of light ops where something is moved on the way from their only product
    (`product_hosts.py`). `row` is the device's (`device_row`).

    moved   the traffic where that is so
    """
    seconds = whole_seconds(arrays, traffic, row)
    return _better_by_part(_Kernels.of(arrays, regions, seconds, whole_seconds(arrays, moved, row)[2], row)).shares()


@dataclass(frozen=True)
class _Kernels:
    """One program's kernels: what is certain of them.

    bytes_s, vector_s, work_s   float64[ops]: seconds of certain traffic, of vector work and of matrix work, of the
                         whole op on one device
    moved_s              float64[ops]: of certain traffic where something is moved on the way from the only product
    by_bytes             bool[ops]: the op counts by traffic, unless either way; if that takes longer than its work
    around[op]           the regions that a product, an update or a look-up reads from; of a product also those that
                         read what it makes
    light                stations of regions, in order
    """

    regions: Regions
    op_class: np.ndarray
    bytes_s: np.ndarray
    vector_s: np.ndarray
    work_s: np.ndarray
    moved_s: np.ndarray
    by_bytes: np.ndarray
    around: dict[int, list[int]]
    light: list[int]
    hidden: float
    in_turn: bool

    @staticmethod
    def of(
        arrays: ProgramArrays,
        regions: Regions,
        seconds: tuple[np.ndarray, np.ndarray, np.ndarray],
        moved_s: np.ndarray,
        row: np.ndarray,
    ) -> _Kernels:
        (work_s, vector_s, bytes_s), op_class = seconds, arrays.ops["op_class"]
        around: dict[int, list[int]] = {}
        for op in np.flatnonzero(regions.station & np.isin(op_class, (MATMUL, CONV, UPDATE, SLICING))).tolist():
            made = regions.read_by(op) if op_class[op] in (MATMUL, CONV) else set[int]()
            around[op] = sorted(regions.read_from(op) | made)
        return _Kernels(
            regions=regions,
            op_class=op_class,
            bytes_s=bytes_s,
            vector_s=vector_s,
            work_s=work_s,
            moved_s=moved_s,
            by_bytes=_alike(regions.nested, bytes_s, work_s + vector_s),
            around=around,
            light=sorted(regions.hosts.of),
            hidden=float(row[UNHIDDEN]),
            in_turn=bool(row[IN_TURN]),
        )

    def shares(self) -> tuple[Shares, Shares]:
        """See `kernel_shares`."""
        by_traffic = self._by_traffic()
        work, of_bytes, either = self._counted(by_traffic)
        moved_bytes, only = of_bytes.copy(), list(self.regions.hosts.only)
        moved_bytes[only] = np.where(by_traffic[self.regions.of_op[only]], 1.0, of_bytes[only])
        moved = Shares(work, moved_bytes, either, self._alone(), self._launched())
        alone, launched = moved.alone.copy(), moved.launched.copy()
        alone[only] = launched[only] = 0.0
        return Shares(work, of_bytes, either, alone, launched), moved

    def _counted(self, by_traffic: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`work`, `bytes` and `either` of `Shares`."""
        count, of_op, hosts = len(self.op_class), self.regions.of_op, self.regions.hosts.of
        either, of_bytes, hosting = np.zeros(count), np.full(count, self.hidden), self._hosting()
        nested, outer = self.regions.nested, set(self.regions.nested.values())
        share_of = np.where(by_traffic, self.hidden, 1.0)
        if not self.in_turn:
            share_of[self._with_product()] *= self.hidden
        work = np.where(of_op >= 0, share_of[of_op], 1.0)
        work[self.regions.leaks] = self.hidden if self.in_turn else self.hidden**2
        for op, around in self.around.items():
            if self.by_bytes[op]:
                work[op], of_bytes[op] = self.hidden, 1.0
            with_another = op in nested or op in outer
            either[op] = by_traffic[around].all() and not (self.by_bytes[op] and op in hosting) and not with_another
        for op in self.light:
            in_full = all(self.by_bytes[product] and not either[product] for product in hosts[op])
            if by_traffic[of_op[op]] and in_full:
                of_bytes[op] = 1.0
        return work, of_bytes, either

    def counted(self) -> np.ndarray:
        """float64[ops]: how much of all ops' seconds counts, each on one device."""
        work, of_bytes, either = self._counted(self._by_traffic())
        computing = self.work_s + self.vector_s
        longer, shorter = np.maximum(computing, self.bytes_s), np.minimum(computing, self.bytes_s)
        added = work * computing + of_bytes * self.bytes_s
        return np.where(either > 0, longer + self.hidden * shorter, added)

    def _with_product(self) -> np.ndarray:
        """bool[regions]: a product's kernel may compute its ops."""
        found = np.zeros(len(self.op_class), np.bool_)
        for op, around in self.around.items():
            found[around] |= self.op_class[op] in (MATMUL, CONV)
        return found

    def _by_traffic(self) -> np.ndarray:
        """bool[regions]: it counts by traffic, or computes nothing that counts."""
        count, of_op, hosts = len(self.op_class), self.regions.of_op, self.regions.hosts
        in_region = np.flatnonzero((of_op >= 0) & ~self.regions.leaks)
        vector, apart = np.bincount(of_op[in_region], self.vector_s[in_region], minlength=count), np.zeros(count)
        for op in self.light:
            if not hosts.of[op] or op in hosts.only:
                apart[of_op[op]] += self.moved_s[op] * (IF_MOVED if op in hosts.only else 1.0)
        found = apart > vector
        for op, around in self.around.items():
            found[around] |= self.by_bytes[op]
        return found if self.in_turn else found | self._with_product()

    def _hosting(self) -> set[int]:
        """The products in whose kernels light stations with certain traffic may run."""
        return {p for op in self.light if self.bytes_s[op] > 0 for p in self.regions.hosts.of[op]}

    def _alone(self) -> np.ndarray:
        """See `Shares`, where something is moved on the way from only products."""
        found, stations, hosts = np.zeros(len(self.op_class)), dict[int, list[int]](), self.regions.hosts
        for op in self.around:
            found[op] = self.op_class[op] in (UPDATE, SLICING)
        for op in self.light:
            if self.moved_s[op] > 0:
                stations.setdefault(int(self.regions.of_op[op]), []).append(op)
        for group in stations.values():
            for op in group if len(group) <= MOST_STATIONS else ():
                no_product = op in hosts.only or not hosts.of[op]
                found[op] = no_product and all(self.regions.order.apart(op, other) for other in group if other != op)
        return found

    def _launched(self) -> np.ndarray:
        """The same: in each region, ops that each need the kernel of the one before to have ended, and then, where
        these are few, those that are moved away from their only product."""
        found, region = np.zeros(len(self.op_class)), self.regions.of_op.tolist()
        launched: dict[int, list[int]] = {}
        for op in self.light:
            others = launched.setdefault(region[op], [])
            if not self.regions.hosts.of[op] and (not others or self.regions.order.after(op, others[-1])):
                others.append(op)
        for op in sorted(self.regions.hosts.only):
            others = launched[region[op]]
            if len(others) < MOST_STATIONS and all(self.regions.order.apart(op, other) for other in others):
                others.append(op)
        found[[op for ops in launched.values() for op in ops]] = 1.0
        products = self.regions.station & np.isin(self.op_class, (MATMUL, CONV))
        found[products] = 1.0
        found[list(self.regions.nested)] = 0.0
        return found


def _better_by_part(kernels: _Kernels) -> _Kernels:
    """The kernels where ops count by traffic that have more of it with what may run beside them, in those parts of the
    program for which that counts more. What may run with several products is with each in equal parts."""
    regions, of_op, with_it = kernels.regions, kernels.regions.of_op, kernels.bytes_s.copy()
    for op, hosts in regions.hosts.of.items():
        for product in hosts:
            with_it[product] += kernels.bytes_s[op] / len(hosts)
    beside, vector = kernels.work_s + kernels.vector_s, np.zeros(len(of_op))
    counted = np.flatnonzero((of_op >= 0) & ~regions.leaks)
    np.add.at(vector, of_op[counted], kernels.vector_s[counted])
    near, products = kernels.around, np.zeros(len(of_op))
    for around in near.values():
        products[around] += 1
    for op, around in near.items():
        beside[op] += float((vector[around] / products[around]).sum())
    by_bytes = _alike(regions.nested, with_it, beside)
    together, part = replace(kernels, by_bytes=by_bytes), _parts(of_op, near, regions.nested)
    gained = np.bincount(part, together.counted() - kernels.counted(), minlength=len(part))
    return replace(kernels, by_bytes=np.where(gained[part] > 0, together.by_bytes, kernels.by_bytes))


def _alike(nested: dict[int, int], bytes_s: np.ndarray, work_s: np.ndarray) -> np.ndarray:
    """bool[ops]: traffic takes longer than work; products that may run in one kernel are looked at together."""
    sets = DisjointSets(len(bytes_s))
    for inner, outer in nested.items():
        sets.join(inner, outer)
    of = np.array([sets.of(op) for op in range(len(bytes_s))])
    return np.bincount(of, bytes_s, len(of))[of] > np.bincount(of, work_s, len(of))[of]


def _parts(of_op: np.ndarray, around: dict[int, list[int]], nested: dict[int, int]) -> np.ndarray:
    """int64[ops]: the part of the program that an op is in; ops that may share kernels are in one."""
    sets = DisjointSets(len(of_op))
    for op, regions in around.items():
        for region in regions:
            sets.join(op, region)
    for inner, outer in nested.items():
        sets.join(*(int(of_op[op]) if of_op[op] >= 0 else op for op in (inner, outer)))
    return np.array([sets.of(region if region >= 0 else op) for op, region in enumerate(of_op.tolist())])


def whole_seconds(
    arrays: ProgramArrays, traffic: Traffic, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[ops] each: seconds of matrix work, vector work and certain traffic of the whole op on one device."""
    ops, specs, count = arrays.ops, arrays.specs, len(arrays.ops)
    rate = row[ops["matrix_dtype"]] * np.where(ops["op_class"] == CONV, row[CONV_SHARE], 1.0)
    work_s = specs["passes"][ops["spec"]] * ops["matrix_flop"] / rate
    for op in np.flatnonzero(work_s > 0).tolist():
        work_s[op] /= filled(arrays, row, op, (), (), ())
    elements, uses = arrays.values["elements"], arrays.uses
    used, made = elements[uses["operands"]], np.zeros(count)
    walked = np.zeros(count)
    np.maximum.at(walked, uses["use_op"], used)
    np.maximum.at(made, arrays.values["value_op"], elements)
    vector_s = ops["weight"] * np.where(np.isin(ops["op_class"], (UPDATE, OPAQUE)), walked, np.maximum(walked, made))
    found = np.bincount(uses["use_op"], used * traffic.reads, minlength=count)
    found += np.bincount(arrays.values["value_op"], elements * traffic.writes, minlength=count)
    return work_s, vector_s / row[VECTOR], found / row[HBM]
