"""How a whole program is like one with fewer of its layers: which op is to one what another is to another.

    fewer     layers 1  2  3              8       %q of layer 3 reads %h of layer 2
    whole     layers 1  2  3  4  5  6  7  8       %q of layer 6, which is like it, reads %h of layer 5

Layers are as far from each other in both; an op in no layer is the same for all.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.core.kernels import kernel
from autopart.core.like_ops import Like
from autopart.core.program import Program
from autopart.core.repeated_layers import NO_CHAIN
from autopart.costmodel.simulator.facts.output_places import output_places

NOWHERE = -1
"""Instead of an op or a buffer: there is none at the corresponding place."""


class Stack(NamedTuple):
    """How a whole program is like one with fewer layers; the end of a program counts as an op in no chain.

    like           int32[whole ops + 1]: the op with fewer layers that each op is like
    whole_layer    int32[whole ops + 1]: its layer
    kept_as        int32[ops + 1]: the op of the whole program that is kept as an op
    chain, layer   int32[ops + 1]: as in `FewerLayers`
    table, low     as in `RepeatedLayers`
    three          as in `FewerLayers`, ops
    value_op, result_ptr   the whole program's
    output_value, output_argument, output_at   of the whole program's outputs: the value; the donated argument whose
                   memory it takes over, or -1; the argument's op, or -1
    """

    like: np.ndarray
    whole_layer: np.ndarray
    kept_as: np.ndarray
    chain: np.ndarray
    layer: np.ndarray
    table: np.ndarray
    low: int
    three: np.ndarray
    value_op: np.ndarray
    result_ptr: np.ndarray
    output_value: np.ndarray
    output_argument: np.ndarray
    output_at: np.ndarray

    @staticmethod
    def of(whole: Program, fewer: FewerLayers, like: Like) -> Stack:
        """`like` from the ops of the whole program to those with fewer layers."""
        layers, places = fewer.layers, output_places(whole)
        at = np.where(places.use >= 0, whole.use_op[places.use], NOWHERE)
        return Stack(
            like=_with_end(like.ops, fewer.program.op_count), whole_layer=_with_end(layers.layer, 0),
            kept_as=_with_end(fewer.ops, whole.op_count), chain=_with_end(fewer.chain, NO_CHAIN),
            layer=_with_end(fewer.layer, 0), table=layers.table(), low=layers.low, three=fewer.three.ops,
            value_op=whole.value_op.astype(np.int32), result_ptr=whole.result_ptr.astype(np.int32),
            output_value=places.value, output_argument=places.argument, output_at=at.astype(np.int32),
        )  # fmt: skip


@kernel
def corresponding(stack: Stack, there: int, like: int, op: int) -> int:
    """The op that is to `op` of the whole program what `there` is to the op that it is like, or `NOWHERE`."""
    if there == like:
        return op
    if stack.chain[there] < 0 or stack.chain[like] < 0:
        return stack.kept_as[there]
    column = stack.whole_layer[op] + stack.layer[there] - stack.layer[like] - stack.low
    if column < 0 or column >= stack.table.shape[1]:
        return NOWHERE
    return stack.table[stack.chain[there], column]


def reads_correspond(stack: Stack, whole: Program, fewer: Program, like: Like) -> bool:
    """True if each op of the whole program reads what corresponds to what the op reads that it is like."""
    made_by = fewer.value_op[fewer.operands].astype(np.int32)
    return bool(_reads_correspond(stack, whole.operands, whole.use_op.astype(np.int32), like.uses, made_by))


@kernel
def _reads_correspond(
    stack: Stack, operands: np.ndarray, use_op: np.ndarray, like: np.ndarray, made_by: np.ndarray
) -> bool:
    """`like[use]` is a use of the program with fewer layers, whose operand `made_by` makes."""
    for use in range(operands.shape[0]):
        op, there = use_op[use], made_by[like[use]]
        if stack.value_op[operands[use]] != corresponding(stack, there, stack.like[op], op):
            return False
    return True


def _with_end(ops: np.ndarray, end: int) -> np.ndarray:
    """What is known of the ops of a program, and of its end."""
    return np.append(ops, end).astype(np.int32)
