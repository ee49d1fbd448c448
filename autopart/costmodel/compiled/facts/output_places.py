"""Outputs of a program: the arguments whose places they take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.program import Program


class OutputPlaces(NamedTuple):
    """Of outputs: the value; where it is tied, the operand entry at its argument; the argument whose memory it takes
    over. -1 where there is none."""

    value: np.ndarray
    use: np.ndarray
    argument: np.ndarray


def output_places(program: Program) -> OutputPlaces:
    """Those of a program."""
    outputs, passed = len(program.outputs), set(program.passed_arguments)
    use, taken = np.full(outputs, -1, np.int32), np.full(outputs, -1, np.int32)
    for output, argument in program.ties.items():
        value = program.arguments[argument]
        use[output] = program.operand_ptr[program.value_op[value]]
        if argument in program.donated and argument in passed:
            taken[output] = value
    return OutputPlaces(np.array(program.outputs, np.int32), use, taken)
