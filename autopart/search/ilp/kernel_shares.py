"""How computing and memory traffic add up in a bound, although a kernel hides the shorter behind the longer.

    seconds of a kernel = launch + max(C, M) + u min(C, M)  >=  launch + a C + b M    for 1 and u as a and b, either way

Which ops share a kernel is not known, so the same a and b must hold for all that may. A region (`fusion_regions.py`)
counts either way, for all of its ops:

    by work       computing in full, u of the traffic: as a product does that computes for longer than it reads
    by traffic    u of the computing; traffic in full in kernels that no product runs in (`product_hosts.py`), and
                  u of it in those of products that count by work

A product whose regions are all by traffic adds no more than u of either to what it takes by itself, so that it counts
whichever way is more, by strategy. Where products and the vector unit work side by side, a product's kernel takes the
longer: vector work counts only in kernels without products.

A kernel without products takes at least as long as one stream takes for its largest array. That counts for stations
whose kernels have no other certain traffic: they are *alone*. Of light ops that need each other's kernels to have ended,
each has a launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.costmodel.hardware.devices import CONV_SHARE, HBM, IN_TURN, UNHIDDEN, VECTOR
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.op_classes import CONV, MATMUL, OPAQUE, SLICING, UPDATE
from autopart.search.ilp.certain_traffic import Traffic
from autopart.search.ilp.fusion_regions import Regions

MOST_STATIONS = 16
"""In a region of more stations with traffic none is looked at as to whether it is alone."""


class Shares(NamedTuple):
    """float64[ops] each.

    work, bytes    the shares of an op's computing and of its bytes' seconds that count
    either         1 where these may be 1 and u, or u and 1, whichever is more
    alone          1 where a station's kernel has no product, and no other station with certain traffic
    launched       1 for a light op whose kernel is no product's, and no other such op's
    """

    work: np.ndarray
    bytes: np.ndarray
    either: np.ndarray
    alone: np.ndarray
    launched: np.ndarray


def kernel_shares(arrays: ProgramArrays, regions: Regions, traffic: Traffic, row: np.ndarray) -> Shares:
    """The shares of every op. `row` is the device's (`device_row`)."""
    return _Kernels.of(arrays, regions, whole_seconds(arrays, traffic, row), row).shares()


@dataclass(frozen=True)
class _Kernels:
    """One program's kernels: what is certain of them.

    bytes_s, vector_s    float64[ops]: seconds of certain traffic, and of vector work, of the whole op on one device
    by_bytes             bool[ops]: certain traffic takes longer than all of the op's work
    around[op]           the regions that a product, an update or a look-up reads from; of a product also those that
                         read what it makes
    light                stations of regions, in order
    """

    regions: Regions
    op_class: np.ndarray
    bytes_s: np.ndarray
    vector_s: np.ndarray
    by_bytes: np.ndarray
    around: dict[int, list[int]]
    light: list[int]
    hidden: float
    in_turn: bool

    @staticmethod
    def of(
        arrays: ProgramArrays, regions: Regions, seconds: tuple[np.ndarray, np.ndarray, np.ndarray], row: np.ndarray
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
            by_bytes=bytes_s > work_s + vector_s,
            around=around,
            light=sorted(regions.hosts),
            hidden=float(row[UNHIDDEN]),
            in_turn=bool(row[IN_TURN]),
        )

    def shares(self) -> Shares:
        """See `Shares`."""
        count = len(self.op_class)
        with_product, by_traffic = self._with_product(), self._by_traffic()
        work, of_bytes = np.ones(count), np.full(count, self.hidden)
        in_region = np.flatnonzero(self.regions.of_op >= 0)
        share_of = np.where(by_traffic, self.hidden, 1.0)
        if not self.in_turn:
            share_of[with_product], by_traffic[with_product] = 0.0, True
        work[in_region] = share_of[self.regions.of_op[in_region]]
        either, hosting = np.zeros(count), self._hosting()
        for op, around in self.around.items():
            if self.by_bytes[op]:
                work[op], of_bytes[op] = self.hidden, 1.0
            either[op] = by_traffic[around].all() and not (self.by_bytes[op] and op in hosting)
        for op in self.light:
            if by_traffic[self.regions.of_op[op]]:
                in_full = all(self.by_bytes[p] and not either[p] for p in self.regions.hosts[op])
                of_bytes[op] = 1.0 if in_full else self.hidden
        return Shares(work, of_bytes, either, self._alone(), self._launched())

    def _with_product(self) -> np.ndarray:
        """bool[regions]: a product's kernel may compute its ops."""
        found = np.zeros(len(self.op_class), np.bool_)
        for op, around in self.around.items():
            found[around] |= self.op_class[op] in (MATMUL, CONV)
        return found

    def _by_traffic(self) -> np.ndarray:
        """bool[regions]: it counts by traffic."""
        count, of_op = len(self.op_class), self.regions.of_op
        vector, apart, in_region = np.zeros(count), np.zeros(count), np.flatnonzero(of_op >= 0)
        np.add.at(vector, of_op[in_region], self.vector_s[in_region])
        unhosted = [op for op in self.light if not self.regions.hosts[op]]
        np.add.at(apart, of_op[unhosted], self.bytes_s[unhosted])
        found = apart > vector
        for op, around in self.around.items():
            found[around] |= self.by_bytes[op]
        return found

    def _hosting(self) -> set[int]:
        """The products in whose kernels light stations with certain traffic may run."""
        return {p for op in self.light if self.bytes_s[op] > 0 for p in self.regions.hosts[op]}

    def _alone(self) -> np.ndarray:
        """See `Shares`."""
        found, stations = np.zeros(len(self.op_class)), dict[int, list[int]]()
        for op in self.around:
            found[op] = self.op_class[op] in (UPDATE, SLICING)
        for op in self.light:
            if self.bytes_s[op] > 0:
                stations.setdefault(int(self.regions.of_op[op]), []).append(op)
        for group in stations.values():
            for op in group if len(group) <= MOST_STATIONS else ():
                others = (other for other in group if other != op)
                found[op] = not self.regions.hosts[op] and all(self._apart(op, other) for other in others)
        return found

    def _apart(self, op: int, other: int) -> bool:
        return self.regions.after(op, other) or self.regions.after(other, op)

    def _launched(self) -> np.ndarray:
        """See `Shares`: in each region, ops that each need the kernel of the one before to have ended."""
        found, last = np.zeros(len(self.op_class)), dict[int, int]()
        for op in self.light:
            region = int(self.regions.of_op[op])
            if not self.regions.hosts[op] and (region not in last or self.regions.after(op, last[region])):
                found[op], last[region] = 1.0, op
        return found


def whole_seconds(
    arrays: ProgramArrays, traffic: Traffic, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[ops] each: seconds of matrix work, vector work and certain traffic of the whole op on one device."""
    ops, specs, count = arrays.ops, arrays.specs, len(arrays.ops)
    rate = row[ops["matrix_dtype"]] * np.where(ops["op_class"] == CONV, row[CONV_SHARE], 1.0)
    work_s = specs["passes"][ops["spec"]] * ops["matrix_flop"] / rate
    elements, uses = arrays.values["elements"], arrays.uses
    used, made = elements[uses["operands"]], np.zeros(count)
    walked = np.zeros(count)
    np.maximum.at(walked, uses["use_op"], used)
    np.maximum.at(made, arrays.values["value_op"], elements)
    vector_s = ops["weight"] * np.where(np.isin(ops["op_class"], (UPDATE, OPAQUE)), walked, np.maximum(walked, made))
    found = np.bincount(uses["use_op"], used * traffic.reads, minlength=count)
    found += np.bincount(arrays.values["value_op"], elements * traffic.writes, minlength=count)
    return work_s, vector_s / row[VECTOR], found / row[HBM]
