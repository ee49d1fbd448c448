"""Which elementwise ops some state may compute inside their readers; all others are kernels, whatever is decided.

    %x = add %y %z       %y, %z: two large arrays, each read along a way of its own
    %n = reduce_sum %x   kernels that end apart, so that inside them %x would be computed twice, from more bytes than
    %h = dot %x %w       it has: the compiler writes it, with and without collectives on the way
    %g = gelu %h         from one array: computed inside its readers, unless something is moved in between
    %s = tanh %x         where %x may be computed inside it they are one kernel of several ops: it may be merged into
                         what reads it (`merged_kernels.py`), so nothing is certain

The simulator's own rule (`fusion.py`) with nothing moved says what may be fused at most. What is moved ends a way
sooner: readers that end apart do so in every state.
"""

from __future__ import annotations

import numpy as np

from autopart.costmodel.simulator.arrays import F32_BYTES, ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import FREE
from autopart.costmodel.simulator.kernels.fusion import most_fused
from autopart.costmodel.simulator.kernels.merged_kernels import LARGE_SHARE


def fusable_ops(arrays: ProgramArrays, bases: np.ndarray, devices: int, *, into_matmul: bool) -> np.ndarray:
    """bool[ops]: False for what is never computed inside others.

    bases         the value that each value is a view of, or itself
    devices       a dim may be cut into so many parts at most
    into_matmul   products compute what they read, on this device
    """
    able, splits = most_fused(arrays, into_matmul)
    ops, values = arrays.ops, arrays.values
    may = ops["fuses"] & (np.diff(arrays.result_ptr) == 1) & (ops["op_class"] != FREE)
    may &= able[arrays.result_ptr[:-1].clip(max=len(values) - 1)]
    apart, maker = _behind_views(arrays, splits), values["value_op"]
    for op in np.flatnonzero(may).tolist():
        value = arrays.result_ptr[op]
        read = arrays.uses["operands"][arrays.operand_ptr[op] : arrays.operand_ptr[op + 1]]
        inputs = bases[read[~values["is_splat"][read]]]
        if apart[value] and not may[maker[inputs]].any():
            may[op] = not _reads_more(arrays, value, np.unique(inputs), devices)
    return may


def _reads_more(arrays: ProgramArrays, value: int, inputs: np.ndarray, devices: int) -> bool:
    """True if any two large arrays of those that an op reads have more bytes than its result, however they are tiled;
    not for what is rounded, as products may compute that."""
    elements, element_bytes = arrays.values["elements"], arrays.values["element_bytes"]
    large = inputs[elements[inputs] * devices >= LARGE_SHARE * elements[value]]
    alike = elements[large] == elements[value]
    if element_bytes[value] < F32_BYTES or len(large) < 2 or np.count_nonzero(~alike) > 1:
        return False
    held = np.sort(np.where(alike, 1.0, LARGE_SHARE) * element_bytes[large])
    return bool(held[:2].sum() > element_bytes[value])


def _behind_views(arrays: ProgramArrays, splits: np.ndarray) -> np.ndarray:
    """bool[values]: the readers of the value, or of a view of it, end apart."""
    found, ops = splits.copy(), arrays.ops
    for op in np.flatnonzero(ops["is_view"])[::-1].tolist():
        for place in range(int(arrays.result_ptr[op + 1] - arrays.result_ptr[op])):
            shown = int(arrays.uses["operands"][arrays.operand_ptr[op] + place])
            found[shown] |= found[arrays.result_ptr[op] + place]
    return found
