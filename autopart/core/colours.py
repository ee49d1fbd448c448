"""Colour refinement: ops get one colour where the program looks alike around them.

    colour of an op   <-   its own colour, those of the producers of its operands, those of the readers of its results

A round looks one hop further. What the first colours say is up to the caller: kinds, sizes, attributes, names.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np

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


def refined(program: Program, colour: np.ndarray) -> np.ndarray:
    """One round, uint64[ops]: each use tells its producer what reads it where, and its reader what it reads there."""
    producer = program.value_op[program.operands]
    place = (np.arange(len(program.operands)) - program.operand_ptr[program.use_op]).astype(np.uint64)
    result = (program.operands - program.result_ptr[producer]).astype(np.uint64)
    told_reader = mixed(mixed(colour[producer], result), place + np.uint64(1))
    told_producer = mixed(mixed(colour[program.use_op], place), result + np.uint64(1 << 20))
    above, below = np.zeros_like(colour), np.zeros_like(colour)
    np.add.at(above, program.use_op, told_reader)
    np.add.at(below, producer, told_producer)
    return mixed(mixed(colour, above), below + np.uint64(1 << 40))
