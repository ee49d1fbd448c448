"""Stacks that a loop fills part by part: what they begin with is never written.

    %z = constant 0 : f32[12,64,768]
    loop 12 times: %s = update %s at [i] with f32[1,64,768]     the only reader of %s in the body

XLA:TPU allocates such a stack and leaves it as it is (`AllocateBuffer`).
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Structural
from autopart.core.program import Program


def filled_stacks(program: Program, is_update: np.ndarray) -> np.ndarray:
    """bool[values]: one number spread, which begins a loop's stack and is written over whole before anything reads it.

    is_update: bool[ops].
    """
    found = np.zeros(program.value_count, np.bool_)
    user_ptr, user = program.users
    for op, owner in program.owners.items():
        if program.spec(op).kind != "carry":
            continue
        first = int(program.operand_ptr[op])
        begun, following, inside = int(program.operands[first]), int(program.operands[first + 1]), program.result_ptr[op]
        update = int(program.value_op[following])
        alone = user_ptr[begun + 1] - user_ptr[begun] == 1 == user_ptr[inside + 1] - user_ptr[inside]
        if not (alone and is_update[update] and _is_spread(program, int(program.value_op[begun]))):
            continue
        changed = int(program.operand_ptr[update])
        body = program.inner_scopes[owner][1]
        trips = program.scope_trips[body] / program.scope_trips[program.scopes[body].parent]
        part = program.value_elements[program.operands[changed + 1]]
        found[begun] = user[user_ptr[inside]] == changed and trips * part == program.value_elements[begun]
    return found


def _is_spread(program: Program, op: int) -> bool:
    spec = program.spec(op)
    return not isinstance(traits_of(spec), Structural) and all(math.prod(t.shape) == 1 for t in spec.operands)
