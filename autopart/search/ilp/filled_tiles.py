"""The share of the matrix unit's tiles that a product or a convolution fills, by how its dims are cut.

    [256, 147] . [147, 64]      tiles of 128 x 128: 147 of two tiles of 128, 64 of one: 0.57 x 0.5 of them is filled

As the simulator counts it (`simulator/arrays.py`).
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.ops.groups_as_one import merged
from autopart.costmodel.hardware.devices import LAYOUT_MINOR, LAYOUT_ROWS, TILE_K, TILE_M, TILE_N
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV
from autopart.costmodel.simulator.local.grouped_tiles import share_of_group
from autopart.costmodel.simulator.local.unit_tiles import share_filled
from autopart.search.ilp.labels import Label, local_dims


def filled(arrays: ProgramArrays, row: np.ndarray, op: int, read: Label, left: Label, sizes: tuple[int, ...]) -> float:
    """The share that an op fills which reads its first operand in one label, and leaves its result in another.

    `row` is the device's (`device_row`).
    """
    sides, is_conv = arrays.specs[int(arrays.ops["spec"][op])], int(arrays.ops["op_class"][op]) == CONV
    operand, result = int(arrays.uses["operands"][arrays.operand_ptr[op]]), int(arrays.result_ptr[op])

    def beside(value: int, dims: int, label: Label, groups: int) -> float:
        shape = tuple(int(n) for n in arrays.shape[value, : arrays.values["rank"][value]])
        local = local_dims(shape, label, sizes) if groups == 1 else shape
        return math.prod(n for d, n in enumerate(local) if dims >> d & 1) / groups if dims else 0.0

    in_rows, taps = bool(sides["rows"]), int(sides["taps"])
    of_inner, of_columns, of_images = (int(sides[f"{part}_groups"]) for part in ("inner", "column", "image"))
    rows_or_summed = (result, int(sides["rows"]), left) if in_rows else (operand, int(sides["summed"]), read)
    inner, columns = beside(*rows_or_summed, of_inner), beside(result, int(sides["columns"]), left, of_columns)
    images = beside(operand, int(sides["images"]), read, of_images)
    tile = int(row[TILE_M]), int(row[TILE_N]), int(row[TILE_K])
    sublanes, lanes = int(row[LAYOUT_ROWS]), int(row[LAYOUT_MINOR])
    as_one = 1
    if of_columns > 1:
        groups = round(beside(result, int(sides["columns"]), left, 1) / columns)
        if lanes > 1:
            places = beside(operand, -1, read, 1) / (groups * inner)
            as_one = merged(groups, inner, columns, images, places, bool(arrays.ops["of_tasks"][op]))
        inner, columns = as_one * inner, as_one * columns
        if groups > as_one:
            return share_of_group(inner, columns, images, taps, in_rows, tile, sublanes) / as_one
    inner_last = bool(sides["inner_last"])
    return share_filled(inner, columns, images, taps, in_rows, inner_last, is_conv, tile) / as_one or 1.0
