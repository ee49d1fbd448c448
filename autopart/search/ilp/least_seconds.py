"""Seconds of an op under each of its strategies that no state spends less of, whatever is fused.

    products, convolutions    their matrix work: each is computed once, in some kernel, with tiles filled
    every op                  its vector work, in full where units work in turn or there are no products; else a
                              product's kernel may hide all but `Device.unhidden_share` of it
    opaque kernels            their roofline without bytes
    kernels of their own      the launches of products, of look-ups and of updates

A kernel takes at least as long as it computes, so computing adds up over any kernels. Bytes that pass memory may all be
hidden behind computing, or stay on the chip: none count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import CONV, ELEMENTWISE, FREE, MATMUL, OPAQUE, SLICING, UPDATE
from autopart.costmodel.compiled.roofline import roofline_s
from autopart.costmodel.hardware.devices import (
    CONV_SHARE,
    IN_TURN,
    LAUNCH,
    MATMUL_LAUNCH,
    UNHIDDEN,
    VECTOR,
    Device,
    device_row,
)
from autopart.search.ilp.labels import Label, ways
from autopart.search.ilp.strategies import OpStrategies


def least_seconds(
    arrays: ProgramArrays, device: Device, op: int, options: OpStrategies, sizes: tuple[int, ...]
) -> np.ndarray:
    """float64[strategies]: seconds that a run of the op adds at least to those of its kernel."""
    row, kind = device_row(device), int(arrays.ops["op_class"][op])
    if kind == FREE:
        return np.zeros(options.count)
    work = float(arrays.specs["passes"][arrays.ops["spec"][op]] * arrays.ops["matrix_flop"][op]) / options.ways
    vector, dtype = _vector_flop(arrays, op, options, sizes), int(arrays.ops["matrix_dtype"][op])
    if kind == OPAQUE:
        return np.array([roofline_s(w, dtype, False, v, 0.0, 0.0, row) for w, v in zip(work, vector, strict=True)])
    beside = bool((arrays.ops["matrix_flop"] > 0).any()) and not row[IN_TURN]
    seconds = (row[UNHIDDEN] if beside else 1.0) * vector / row[VECTOR]
    if kind in (MATMUL, CONV):
        seconds = seconds + work / (row[dtype] * (row[CONV_SHARE] if kind == CONV else 1.0))
        return seconds + np.where(work > 0, row[MATMUL_LAUNCH], row[LAUNCH])
    runs_alone = kind in (UPDATE, SLICING) and not arrays.ops["fuses"][op]
    return seconds + row[LAUNCH] * float(runs_alone)


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
