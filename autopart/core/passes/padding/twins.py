"""A value and its longer twin: what a pad of it, at its end and with zeros, makes.

%table f32[50257,64] -> pad -> f32[50304,64]       tiles of a vocabulary are tiles of the twin
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autopart.core.program import Program

MARK = "twin"
"""The attribute by which the pass marks its own pads: one that a model writes is no twin."""


def twin_of(program: Program, value: int, dim: int) -> int | None:
    """The first value that is `value` with a longer `dim`; None where there is none."""
    pointer, uses = program.users
    for use in uses[pointer[value] : pointer[value + 1]].tolist():
        op = int(program.use_op[use])
        spec = program.spec(op)
        if MARK in spec.attributes and use == program.operand_ptr[op] and _is_longer(spec.attributes, dim):
            return int(program.result_ptr[op])
    return None


def twins(program: Program) -> list[int]:
    """The longer twins of a program's arguments."""
    found = (twin_of(program, v, d) for v in program.arguments for d in range(len(program.type_of(v).shape)))
    return list(dict.fromkeys(twin for twin in found if twin is not None))


def _is_longer(attributes: Mapping[str, Any], dim: int) -> bool:
    more, zeros = attributes["edge_padding_high"], (*attributes["edge_padding_low"], *attributes["interior_padding"])
    return more[dim] > 0 and not any(zeros) and min(more) >= 0
