"""How computing and memory traffic add up in a bound, although a kernel hides the shorter behind the longer.

    seconds of a kernel = launch + max(C, M) + u min(C, M)  >=  launch + a C + b M    for 1 and u as a and b, either way

Which ops share a kernel is not known, so the same a and b must hold for all that may: what may run with a product that
computes for longer than it reads counts its computing in full, and u of its traffic. Where a product mostly reads, and
in regions that no product computes in, traffic counts in full and u of the computing. Where products and the vector
unit work side by side, a product's kernel takes the longer: vector work counts only in kernels without products.

A kernel without products takes at least as long as one stream takes for its largest array. That counts for stations
whose kernels have no other certain traffic: they are *alone*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.costmodel.hardware.devices import CONV_SHARE, HBM, IN_TURN, UNHIDDEN, VECTOR
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.op_classes import CONV, MATMUL, OPAQUE, SLICING, UPDATE
from autopart.search.ilp.certain_traffic import Traffic
from autopart.search.ilp.fusion_regions import Regions

MOST_STATIONS = 16
"""In a region of more stations none is looked at as to whether it is alone."""


class Shares(NamedTuple):
    """float64[ops] each.

    work, bytes    the shares of an op's computing and of its bytes' seconds that count
    alone          1 where a station's kernel has no product, and no other station with certain traffic
    """

    work: np.ndarray
    bytes: np.ndarray
    alone: np.ndarray


def kernel_shares(arrays: ProgramArrays, regions: Regions, traffic: Traffic, row: np.ndarray) -> Shares:
    """The shares of every op. `row` is the device's (`device_row`)."""
    hidden, ops = float(row[UNHIDDEN]), arrays.ops
    work_s, vector_s, bytes_s = whole_seconds(arrays, traffic, row)
    count = len(ops)
    vector_of, bytes_of = np.zeros(count), np.zeros(count)
    light = np.flatnonzero(regions.of_op >= 0)
    np.add.at(vector_of, regions.of_op[light], vector_s[light])
    np.add.at(bytes_of, regions.of_op[light], bytes_s[light])
    in_full = {"work": np.zeros(count, np.bool_), "bytes": np.zeros(count, np.bool_)}
    joined: dict[int, list[int]] = {}
    with_product, shares = np.zeros(count, np.bool_), Shares(np.ones(count), np.full(count, hidden), np.zeros(count))
    for op in np.flatnonzero(regions.station & np.isin(ops["op_class"], (MATMUL, CONV, UPDATE, SLICING))).tolist():
        is_product = ops["op_class"][op] in (MATMUL, CONV)
        read_by = regions.read_by(op) if is_product else set[int]()
        touched = sorted(read_by | regions.read_from(op))
        with_product[touched] |= is_product
        shares.alone[op] = not is_product
        for region in read_by:
            joined.setdefault(region, []).append(op)
        if bytes_s[op] > work_s[op] + vector_s[op]:
            shares.work[op], shares.bytes[op] = hidden, 1.0
            in_full["bytes"][touched] = True
        else:
            in_full["work"][sorted(read_by)] = True
    traffic_first = ~in_full["work"] & (bytes_of > vector_of)
    share_of = np.where(traffic_first | in_full["bytes"], hidden, 1.0)
    if not row[IN_TURN]:
        share_of[with_product] = 0.0
    shares.work[light] = share_of[regions.of_op[light]]
    shares.bytes[light] = np.where(traffic_first, 1.0, hidden)[regions.of_op[light]]
    return shares


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
