"""Broadcasts that loops read from outside, made in the loops' bodies instead.

    m = compare q, k : [s,s]                          m = compare q, k : [s,s]
    M = broadcast m : [b,h,s,s]                       while
    while                                               M = broadcast m : [b,h,s,s]
      y = select M, a, c                                y = select M, a, c

A trace takes what does not change, such as a mask, out of a scan; its broadcast then waits in memory for the last loop
that reads it, as residuals do, and each turn reads all of it. In the body it is part of what reads it. `jax.checkpoint`
around a scanned layer leaves it there; so does what is computed again here.
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program


def with_broadcasts_in_loops(program: Program) -> Program:
    """The program with a broadcast of its own in each body for what the body reads of one from outside."""
    expands = np.array([_expands(spec) for spec in program.specs], np.bool_)[program.op_spec]
    made, scope = program.value_op[program.operands], program.use_scope
    in_body = np.array([s.kind == "body" for s in program.scopes], np.bool_)[scope]
    outside = np.flatnonzero(expands[made] & in_body & (program.op_scope[made] != scope))
    place = program.use_position.copy()
    for parts in program.barriers:
        place[program.operand_ptr[parts.start] : program.operand_ptr[parts.stop]] = parts.start
    rewriting = Rewriting(program)
    copies: dict[tuple[int, int], int] = {}
    for use in outside[np.argsort(place[outside], kind="stable")].tolist():
        key = int(scope[use]), int(program.operands[use])
        if key not in copies:
            operands = program.operands_of(int(made[use])).tolist()
            [copies[key]] = rewriting.again(int(made[use]), operands, key[0], int(place[use]))
        rewriting.read(use, copies[key])
    return rewriting.program()


def _expands(spec: OpSpec) -> bool:
    """A broadcast of something at most half as large that is no scalar."""
    if spec.kind != "broadcast_in_dim" or not spec.operands[0].shape:
        return False
    return 2 * math.prod(spec.operands[0].shape) <= math.prod(spec.results[0].shape)
