"""What is computed of slices of one array and read by products: how often these would slice it.

    %h = dot_general ...                        f32[16384,512]
    %g = multiply (tanh %h[:, :256]), %h[:, 256:]      read by two products, and for the gradients of two

XLA:TPU computes %g inside each of the products that read it as long as they would slice fewer than eight times in all;
else a kernel of its own writes %g, as products round it. Two slices are computed inside three products and written for
four, four slices are written for two (libtpu 0.0.51, v5e). A gated MLP has two products. What a convolution leaves lies
otherwise than products take it, so several slices of that are written for one product too: a WaveNet's layer.
"""

from __future__ import annotations

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.compiled.facts.op_classes import CONV, ELEMENTWISE, MATMUL, SLICING

MOST_SLICES = 8
"""So many slices, in all readers, are written once."""

MOST_OPS = 64
"""Ops of an expression that are looked at."""


def gated_values(program: Program, op_class: np.ndarray, is_view: np.ndarray) -> np.ndarray:
    """bool[values]: written for the slices that products would compute. `is_view` is by op."""
    found, slices = np.zeros(program.value_count, np.bool_), _cut_lanes(program, op_class)
    if not slices.any():
        return found
    ops = np.flatnonzero(op_class == ELEMENTWISE)
    for op in ops[~_read_otherwise(program, op_class, is_view)[program.result_ptr[ops]]].tolist():
        value = int(program.result_ptr[op])
        products = _products(program, op_class, is_view, value)
        taken = _slices(program, op_class, slices, op) if products else []
        if len(taken) > 1:
            found[value] = products * len(taken) >= MOST_SLICES or _is_convolved(program, op_class, taken[0])
    return found


def _cut_lanes(program: Program, op_class: np.ndarray) -> np.ndarray:
    """bool[ops]: takes a stretch of its operand's last dim."""
    found = np.zeros(program.op_count, np.bool_)
    ops = np.flatnonzero((op_class == SLICING) & (np.diff(program.operand_ptr) == 1))
    array, part = program.operands[program.operand_ptr[ops]], program.result_ptr[ops]
    rank = program.value_rank[array]
    ops, array, part = (numbers[(rank > 1) & (rank == program.value_rank[part])] for numbers in (ops, array, part))
    changed = program.value_shape[array] != program.value_shape[part]
    last = program.value_rank[array] - 1
    found[ops] = (changed.sum(axis=1) == 1) & changed[np.arange(len(ops)), last]
    return found


def _read_otherwise(program: Program, op_class: np.ndarray, is_view: np.ndarray) -> np.ndarray:
    """bool[values]: an op that is no product and no view reads it, or none does."""
    found = np.diff(program.users[0]) == 0
    found[program.operands[~(is_view | np.isin(op_class, (MATMUL, CONV)))[program.use_op]]] = True
    return found


def _products(program: Program, op_class: np.ndarray, is_view: np.ndarray, value: int) -> int:
    """How many products read a value, or a view of it; 0 where anything else does."""
    pointer, uses = program.users
    found, seen = 0, [value]
    while seen:
        value = seen.pop()
        for reader in program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist():
            if is_view[reader]:
                seen.append(int(program.result_ptr[reader]))
            elif op_class[reader] in (MATMUL, CONV):
                found += 1
            else:
                return 0
    return found


def _slices(program: Program, op_class: np.ndarray, slices: np.ndarray, op: int) -> list[int]:
    """The slices of one array that an expression reads element by element; none where they are of several."""
    ops, arrays, left = {op}, dict[int, int](), [op]
    while left and len(ops) < MOST_OPS:
        for value in program.operands_of(left.pop()).tolist():
            maker = int(program.value_op[value])
            if slices[maker] and (program.value_shape[value] == program.value_shape[program.result_ptr[op]]).all():
                arrays[value] = int(program.operands[program.operand_ptr[maker]])
            elif op_class[maker] == ELEMENTWISE and maker not in ops:
                ops.add(maker)
                left.append(maker)
    return list(arrays) if len(set(arrays.values())) == 1 else []


def _is_convolved(program: Program, op_class: np.ndarray, part: int) -> bool:
    """True for a slice of what a convolution leaves, or of what is computed of that."""
    left, seen = [int(program.operands[program.operand_ptr[program.value_op[part]]])], 0
    while left and seen < MOST_OPS:
        op, seen = int(program.value_op[left.pop()]), seen + 1
        if op_class[op] == CONV:
            return True
        if op_class[op] == ELEMENTWISE:
            left += program.operands_of(op).tolist()
    return False
