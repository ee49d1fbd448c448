"""Colour refinement: ops get one colour where the program looks alike around them.

    colour of an op   <-   its own colour, those of the producers of its operands, those of the readers of its results

A round looks one hop further. What the first colours say is up to the caller: kinds, sizes, attributes, names.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program

_DIGITS = re.compile(r"\d+")


def path_without_digits(name: str) -> str:
    """An argument's path with its numbers taken off: "blocks/3/up" and "blocks/12/up" are alike."""
    return _DIGITS.sub("#", name)


def text_colour(text: str) -> np.uint64:
    """64 bits that stand for a text."""
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def mixed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A 64-bit hash of pairs (splitmix64 finaliser)."""
    h = a * np.uint64(0x9E3779B97F4A7C15) ^ (b + np.uint64(0x165667B19E3779F9)) * np.uint64(0xC2B2AE3D27D4EB4F)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


_mixed = kernel(mixed)
"""The same hash in kernels, of one pair."""


def refined(program: Program, colour: np.ndarray, changes: np.ndarray | None = None) -> np.ndarray:
    """One round, uint64[ops]: each use tells its producer what reads it where, and its reader what it reads there.

    Ops that are False in `changes`, bool[ops], keep their colour.
    """
    changes = np.ones(program.op_count, np.bool_) if changes is None else changes
    of_values = program.value_op, program.result_ptr, program.operand_ptr, program.operands
    made, below = np.zeros((2, program.op_count), np.uint64)
    _tell(_Uses(*(np.asarray(each, np.int32) for each in of_values)), colour, changes, below, made)
    return made


class _Uses(NamedTuple):
    """What is read where, int32; arrays of `Program`."""

    value_op: np.ndarray
    result_ptr: np.ndarray
    operand_ptr: np.ndarray
    operands: np.ndarray


@kernel
def _tell(uses: _Uses, colour: np.ndarray, changes: np.ndarray, below: np.ndarray, made: np.ndarray) -> None:
    """Fills in the colours that are made. Scratch: below, 0 at first: what an op is told by what reads it."""
    for op in range(colour.shape[0]):
        first, above = uses.operand_ptr[op], np.uint64(0)
        for use in range(first, uses.operand_ptr[op + 1]):
            producer = uses.value_op[uses.operands[use]]
            place, result = np.uint64(use - first), np.uint64(uses.operands[use] - uses.result_ptr[producer])
            if changes[op]:
                above += _mixed(_mixed(colour[producer], result), place + np.uint64(1))
            if changes[producer]:
                below[producer] += _mixed(_mixed(colour[op], place), result + np.uint64(1 << 20))
        made[op] = above
    for op in range(colour.shape[0]):
        if changes[op]:
            made[op] = _mixed(_mixed(colour[op], made[op]), below[op] + np.uint64(1 << 40))
        else:
            made[op] = colour[op]
