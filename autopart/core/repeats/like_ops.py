"""Which op of a program with fewer layers each op of one with more of them is like (`fewer_layers.py`).

    more     layers 1  2  3  4  5  6  7  8          fewer     layers 1  2  3  8
    like            1  2  3  3  3  3  3  8

What is known of the ops, values and uses of the program with fewer layers is so known of all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.program import Program


class Like(NamedTuple):
    """ops, values, uses: for those of the program with more layers, the corresponding ones of that with fewer."""

    ops: np.ndarray
    values: np.ndarray
    uses: np.ndarray

    @staticmethod
    def of(more: Program, fewer: Program, ops: np.ndarray) -> Like:
        """`ops` as in the fields; corresponding ops have as many operands and results."""
        value_op, use_op = more.value_op, more.use_op
        values = np.arange(more.value_count) - more.result_ptr[value_op] + fewer.result_ptr[ops[value_op]]
        uses = np.arange(len(more.operands)) - more.operand_ptr[use_op] + fewer.operand_ptr[ops[use_op]]
        return Like(ops, values, uses)
