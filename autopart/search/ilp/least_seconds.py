"""Seconds of an op under each of its strategies that no state spends less of, whatever is fused.

    matrix work    of products and convolutions, with the unfilled tiles of short dims
    vector work    of every op that is computed somewhere, once
    bytes          that certainly pass memory (`certain_traffic.py`), filled up to layout tiles (`padded_tiles.py`)
    launches       of products, look-ups and updates, each a kernel of its own, and of light ops in kernels apart

Work and bytes count in the shares in which they add up (`kernel_shares.py`), so that the sum over all ops is no more
than the sum over the kernels of any program that is lowered from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autopart.costmodel.hardware.devices import (
    CONV_SHARE,
    HBM,
    LAUNCH,
    MATMUL_LAUNCH,
    STREAM,
    UNHIDDEN,
    VECTOR,
    Device,
    device_row,
)
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, MATMUL, OPAQUE, SLICING, UPDATE
from autopart.costmodel.simulator.kernels.roofline import roofline_s
from autopart.search.ilp.certain_traffic import Traffic
from autopart.search.ilp.filled_tiles import filled
from autopart.search.ilp.fusion_regions import Regions
from autopart.search.ilp.kernel_shares import Shares, kernel_shares
from autopart.search.ilp.labels import Label, ways
from autopart.search.ilp.padded_tiles import Shape, padded_share
from autopart.search.ilp.strategies import OpStrategies


class Certain(NamedTuple):
    """What is certain of every op in any state; make it with `certain`.

    traffic     certain bytes of uses and of results
    shares      of its computing, and of its bytes' seconds, that count beside what may share a kernel
    computed    bool[ops]: a kernel of its class runs, or computes it
    station     bool[ops]: it is never computed inside another op
    """

    traffic: Traffic
    shares: Shares
    computed: np.ndarray
    station: np.ndarray


def certain(
    arrays: ProgramArrays,
    parts: Regions,
    traffic: tuple[Traffic, Traffic],
    row: np.ndarray,
    of_op: np.ndarray,
    member: Sequence[int],
) -> tuple[Certain, Certain]:
    """What is certain of all ops of a node at once, at the op `member[node]`; `of_op[op]` is an op's node, or -1. And
    what is where something is moved on the way from each light op's only product (`product_hosts.py`). `traffic` is
    `certain_traffic` of the program."""
    shares = kernel_shares(arrays, parts, *traffic, row)
    ops = np.flatnonzero(of_op >= 0)
    stands = np.arange(len(of_op))
    stands[ops] = np.array(member, np.int64)[of_op[ops]]
    use_op, value_op = arrays.uses["use_op"], arrays.values["value_op"]
    at_use = np.arange(len(use_op)) - arrays.operand_ptr[use_op] + arrays.operand_ptr[stands[use_op]]
    at_value = np.arange(len(value_op)) - arrays.result_ptr[value_op] + arrays.result_ptr[stands[value_op]]
    computed, station = (_least(each.astype(float), stands) > 0 for each in (parts.computed, parts.station))
    by_itself, moved = (
        Certain(
            Traffic(
                _least(passing.reads, at_use),
                _least(passing.writes, at_value),
                _together(passing.read_as, at_use),
                _together(passing.written_as, at_value),
            ),
            Shares(*(_least(column, stands) for column in counted)),
            computed,
            station,
        )
        for passing, counted in zip(traffic, shares, strict=True)
    )
    return by_itself, moved


def _least(figures: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The least figure that comes to each place; infinite places are read by nobody."""
    found = np.full(len(figures), np.inf)
    np.minimum.at(found, place, figures)
    return found


def _together(shapes: list[frozenset[Shape]], place: np.ndarray) -> list[frozenset[Shape]]:
    """The shapes that come to each place."""
    found = [frozenset[Shape]()] * len(shapes)
    for at, those in zip(place.tolist(), shapes, strict=True):
        found[at] = found[at] | those
    return found


def least_seconds(
    arrays: ProgramArrays, device: Device, op: int, options: OpStrategies, sizes: tuple[int, ...], known: Certain
) -> np.ndarray:
    """float64[strategies]: seconds that a run of the op adds at least to those of its kernel."""
    row, kind = device_row(device), int(arrays.ops["op_class"][op])
    if not known.computed[op]:
        return np.zeros(options.count)
    work = float(arrays.specs["passes"][arrays.ops["spec"][op]] * arrays.ops["matrix_flop"][op]) / options.ways
    if kind in (MATMUL, CONV):
        labels = zip(options.required[0], options.native[0], strict=True)
        work = work / np.array([filled(arrays, row, op, *pair, sizes) for pair in labels])
    vector = _vector_flop(arrays, op, options, sizes)
    moved, largest = _certain_bytes(arrays, device, op, options, sizes, known.traffic)
    dtype, is_conv = int(arrays.ops["matrix_dtype"][op]), kind == CONV
    if kind == OPAQUE:
        return np.array(
            [roofline_s(w, dtype, False, v, b, 0.0, row) for w, v, b in zip(work, vector, moved, strict=True)]
        )
    computing = work / (row[dtype] * (row[CONV_SHARE] if is_conv else 1.0)) + vector / row[VECTOR]
    streamed = largest / row[STREAM] if known.shares.alone[op] else 0.0
    seconds = _added(known.shares, op, computing, np.maximum(moved / row[HBM], streamed), float(row[UNHIDDEN]))
    if kind in (MATMUL, CONV):
        return seconds + np.where(work > 0, row[MATMUL_LAUNCH], row[LAUNCH]) * float(known.shares.launched[op])
    launches = known.station[op] if kind in (UPDATE, SLICING) else known.shares.launched[op]
    return seconds + row[LAUNCH] * float(launches)


def _added(shares: Shares, op: int, computing: np.ndarray, moving: np.ndarray, hidden: float) -> np.ndarray:
    """float64[strategies]: what an op's computing and traffic add to the seconds of its kernel."""
    added = shares.work[op] * computing + shares.bytes[op] * moving
    if not shares.either[op]:
        return added
    return np.maximum(computing, moving) + hidden * np.minimum(computing, moving)


def _certain_bytes(
    arrays: ProgramArrays,
    device: Device,
    op: int,
    options: OpStrategies,
    sizes: tuple[int, ...],
    traffic: Traffic,
) -> tuple[np.ndarray, np.ndarray]:
    """float64[strategies] each: bytes that pass memory for the op, and those of the largest array that it reads.

    What is written counts as a kernel's array only where another kernel reads it, not where a collective does.
    """
    found, largest = np.zeros(options.count), np.zeros(options.count)
    kind, elements = int(arrays.ops["op_class"][op]), arrays.values["elements"]
    first, result = int(arrays.operand_ptr[op]), int(arrays.result_ptr[op])
    most = np.full(options.count, np.inf)
    if kind == SLICING:
        most = _parts(float(elements[result]), options.native[0], sizes)
    rows = [
        (int(arrays.uses["operands"][first + k]), traffic.reads[first + k], traffic.read_as[first + k], labels)
        for k, labels in enumerate(options.required)
    ]
    rows += [
        (result + r, traffic.writes[result + r], traffic.written_as[result + r], labels)
        for r, labels in enumerate(options.native)
    ]
    for place, (value, each, shapes, labels) in enumerate(rows):
        if each > 0:
            shape = tuple(int(n) for n in arrays.shape[value, : arrays.values["rank"][value]])
            padded = [padded_share(shape, label, shapes, sizes, device.layout_tile) for label in labels]
            held = float(each) * _parts(float(elements[value]), labels, sizes) * np.array(padded)
            is_read = place < len(options.required)
            taken = np.where(held > device.on_chip_bytes, np.minimum(held, each * most) if is_read else held, 0.0)
            found, largest = found + taken, np.maximum(largest, taken) if is_read else largest
    return found, largest


def _parts(whole: float, labels: Sequence[Label], sizes: tuple[int, ...]) -> np.ndarray:
    return np.array([whole / ways(label, sizes) for label in labels])


def _vector_flop(arrays: ProgramArrays, op: int, options: OpStrategies, sizes: tuple[int, ...]) -> np.ndarray:
    """float64[strategies]: vector flop on a device, as the simulator counts them."""
    kind, weight = int(arrays.ops["op_class"][op]), float(arrays.ops["weight"][op])
    first, end = int(arrays.operand_ptr[op]), int(arrays.operand_ptr[op + 1])
    if weight == 0:
        return np.zeros(options.count)
    if kind == ELEMENTWISE:
        return weight * _parts(float(arrays.values["elements"][arrays.result_ptr[op]]), options.native[0], sizes)
    most = np.zeros(options.count)
    for k in range(min(1, end - first - 1) if kind == UPDATE else 0, end - first):
        whole = float(arrays.values["elements"][arrays.uses["operands"][first + k]])
        most = np.maximum(most, _parts(whole, options.required[k], sizes))
    return weight * most
