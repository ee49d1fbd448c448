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
    made, reader = program.value_op[program.operands], program.use_op
    outside = expands[made] & (program.op_scope[made] != program.op_scope[reader])
    rewriting = Rewriting(program)
    copies: dict[tuple[int, int], int] = {}
    for use in np.flatnonzero(outside).tolist():
        op, scope, value = int(reader[use]), int(program.op_scope[reader[use]]), int(program.operands[use])
        if program.scopes[scope].kind != "body":
            continue
        if (scope, value) not in copies:
            operands = program.operands_of(made[use]).tolist()
            [copies[scope, value]] = rewriting.again(int(made[use]), operands, scope, op)
        rewriting.read(use, copies[scope, value])
    return rewriting.program()


def _expands(spec: OpSpec) -> bool:
    """A broadcast of something at most half as large that is no scalar."""
    if spec.kind != "broadcast_in_dim" or not spec.operands[0].shape:
        return False
    return 2 * math.prod(spec.operands[0].shape) <= math.prod(spec.results[0].shape)
