"""The order of arguments by what a program does with them, whatever they are called and wherever they stand.

    step(opt_state, ema, params, x)     params/emb, params/blocks/0/up, ..., params/head     as the first matrix ops
                                        opt_state/mu/emb, opt_state/nu/emb, ...              read them; state follows,
                                        ema/emb, ...                                         each as its gradient does

Decisions are tried, and arrays stored in parts, in this order. An array that matrix ops read comes before those that
none reads, since what is decided about a parameter is inferred for its optimizer state, its average and its gradient.
"""

from __future__ import annotations

import numpy as np

from autopart.core.ops.rule import named
from autopart.core.program import Program
from autopart.core.repeats.colours import mixed, refined, text_colour

HOPS = 16
"""How far from a matrix op an update may be: Adam with clipping, weight decay and a schedule takes ten ops."""

ROUNDS = 2
"""Hops that tell apart what is equally far from the same matrix op."""

_FAR = np.iinfo(np.int64).max


def argument_order(program: Program, read_by_matrix: np.ndarray, is_matrix: np.ndarray) -> np.ndarray:
    """int64[values]: the place of each argument in the order, that of other values behind them all.

    read_by_matrix    bool[values]: a matrix op, or a look-up, reads the value
    is_matrix         bool[ops]: these ops
    Takes `HOPS` passes over the program's uses.
    """
    arguments = np.array(program.arguments, np.int64)
    op, hop = _nearest(program, is_matrix)
    keys = (arguments, _colours(program)[arguments], hop[arguments], op[arguments], ~read_by_matrix[arguments])
    order = np.full(program.value_count, len(arguments), np.int64)
    order[arguments[np.lexsort(keys)]] = np.arange(len(arguments))
    return order


def _nearest(program: Program, is_matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[values] twice: the first matrix op among the nearest to each value, and how many ops are between them.

    The way goes through ops of arrays of one size, forwards and backwards: from an optimizer's state to the update, and
    from there to the gradient.
    """
    size = program.value_shape.prod(axis=1, dtype=np.int64)
    result_op, use_op, operands = program.value_op, program.use_op, program.operands
    goes = ~is_matrix
    goes[result_op[program.arguments]] = False
    values, ops = np.concatenate([operands, np.arange(program.value_count)]), np.concatenate([use_op, result_op])
    first = np.full(program.value_count, _FAR)
    at = is_matrix[ops]
    np.minimum.at(first, values[at], ops[at])
    hop = np.where(first < _FAR, 0, _FAR)
    values, ops = values[goes[ops]], ops[goes[ops]]
    largest = np.zeros(program.op_count, np.int64)
    np.maximum.at(largest, ops, size[values])
    whole = size[values] == largest[ops]
    values, ops = values[whole], ops[whole]
    for distance in range(1, HOPS + 1):
        told = np.full(program.op_count, _FAR)
        np.minimum.at(told, ops, first[values])
        is_new = (first[values] == _FAR) & (told[ops] < _FAR)
        if not is_new.any():
            break
        found = np.full(program.value_count, _FAR)
        np.minimum.at(found, values[is_new], told[ops[is_new]])
        hop[found < _FAR] = distance
        first = np.minimum(first, found)
    return first, hop


def _colours(program: Program) -> np.ndarray:
    """uint64[values]: equal where the program looks alike around them."""
    texts = [f"{named(spec)} {spec.operands} {spec.results} {spec.region}" for spec in program.specs]
    colour = np.array([text_colour(text) for text in texts], np.uint64)[program.op_spec]
    for _ in range(ROUNDS):
        colour = refined(program, colour)
    position = np.arange(program.value_count) - program.result_ptr[program.value_op]
    return mixed(colour[program.value_op], position.astype(np.uint64))
