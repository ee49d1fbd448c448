"""Which products may run inside the product that reads them, in some state (`simulator/kernels/nested_products.py`).

    %h = dot %x %a          one kernel with %y: %h is not written, and is no kernel of its own
    %y = dot (gelu %h) %b   unless something moves %h, or the two are too large together however they are tiled

A bound counts neither what such a product writes nor its launch, and the seconds of both together.
"""

from __future__ import annotations

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import MATMUL
from autopart.costmodel.simulator.kernels.fusion import ends_of_readers
from autopart.costmodel.simulator.kernels.nested_products import is_small, nested_sizes


def nesting_products(arrays: ProgramArrays, devices: int, tile: float) -> dict[int, int]:
    """The product in which each product may run, by op. A dim has `devices` parts at most; `tile` is the width of a
    tile of the matrix unit."""
    ops, elements, found = arrays.ops, arrays.values["elements"], dict[int, int]()
    ends, batches = ends_of_readers(arrays), arrays.specs["batches"][ops["spec"]]
    for inner in np.flatnonzero(ops["op_class"] == MATMUL).tolist():
        value = int(arrays.result_ptr[inner])
        outer = int(ends[value]) - len(arrays.values)
        fixed = arrays.values["is_output"][value] or arrays.values["is_written"][value]
        if fixed or outer < 0 or ops["op_class"][outer] != MATMUL or ops["op_scope"][outer] != ops["op_scope"][inner]:
            continue
        if batches[outer] > batches[inner]:
            continue
        made, written = float(elements[value]), float(elements[arrays.result_ptr[outer]])
        sides = elements[arrays.uses["operands"][arrays.operand_ptr[outer] : arrays.operand_ptr[outer + 1]]]
        flop = float(ops["matrix_flop"][inner]), float(ops["matrix_flop"][outer])
        held, fewest, _ = nested_sizes(flop[0], made, flop[1], written, float(sides.min()), float(sides.max()))
        if is_small(held / devices, fewest, tile):
            found[inner] = outer
    return found
