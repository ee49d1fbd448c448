"""Which values are read so soon, in every state, that a reduction of them is never combined with others.

    %s = reduce_sum %x        op 40; if it is a sum over devices, its all_reduce stands behind op 40
    %m = divide %s, 1024      may be computed inside its readers
    %c = subtract %x %m       ... this one too
    %v = dot %c %w            op 52 is a kernel whatever is decided: it reads the sum, 12 ops behind

XLA:TPU leaves such a reduction alone (`combine.py`), so it pays its latency itself; XLA:GPU does not. What stands
between a reduction and its first reader is known up to where neighbouring products change places (`order.py`): no
further than to the kernels beside them that are certain.
"""

from __future__ import annotations

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import FREE
from autopart.costmodel.simulator.links.combine import SOON_OPS
from autopart.search.ilp.fusion_regions import Regions


def read_soon(arrays: ProgramArrays, regions: Regions) -> np.ndarray:
    """bool[values]: some kernel reads the value fewer than `SOON_OPS` ops after it is made, in any state."""
    read_by, later = _read_by(arrays, regions), np.zeros(len(arrays.ops))
    first, last = _between_kernels(arrays, regions)
    is_product = arrays.ops["matrix_flop"] > 0
    ops = np.arange(len(arrays.ops))
    later[is_product] = (last - ops)[is_product]
    sooner = np.where(is_product, ops - first, 0.0)
    maker = arrays.values["value_op"]
    found = read_by < len(ops)
    at = np.where(found, read_by, 0)
    return found & (at + later[at] - maker + sooner[maker] < SOON_OPS - 1)


def _read_by(arrays: ProgramArrays, regions: Regions) -> np.ndarray:
    """int64[values]: the last op at which the first kernel that reads the value may stand; behind all ops for none."""
    op_of, pointer, user = arrays.uses["use_op"].tolist(), arrays.user_ptr.tolist(), arrays.user.tolist()
    structural = ((arrays.ops["op_class"] == FREE) & ~arrays.ops["is_view"]).tolist()
    passes = (regions.fusable | arrays.ops["is_view"]).tolist()
    result, scope = arrays.result_ptr.tolist(), arrays.ops["op_scope"].tolist()
    never = len(structural)
    found = [never] * len(arrays.values)
    for op in range(len(structural) - 1, -1, -1):
        for value in range(result[op], result[op + 1]):
            for use in user[pointer[value] : pointer[value + 1]]:
                reader = op_of[use]
                if structural[reader] or reader <= op or scope[reader] != scope[op]:
                    continue
                inside = (found[v] for v in range(result[reader], result[reader + 1]))
                found[value] = min(found[value], min(inside, default=never) if passes[reader] else reader)
    return np.array(found, np.int64)


def _between_kernels(arrays: ProgramArrays, regions: Regions) -> tuple[np.ndarray, np.ndarray]:
    """int64[ops] each: the op of the last certain kernel before each op, and of the first behind it."""
    count = len(arrays.ops)
    certain = regions.station & regions.computed
    before = np.maximum.accumulate(np.where(certain, np.arange(count), 0))
    behind = np.minimum.accumulate(np.where(certain, np.arange(count), count)[::-1])[::-1]
    return np.concatenate([[0], before[:-1]]), np.concatenate([behind[1:], [count]])
