"""Stacks that a loop fills part by part: what they begin with is never written.

    %z = broadcast 0 : f32[12,64,768]
    loop i < 12: %s = update %s at [i] with f32[1,64,768]     the only reader of %s in the body

XLA:TPU allocates such a stack and leaves it as it is (`AllocateBuffer`, `while_loop_fusible_sinking.cc`). Numbers that
are spread to one type are one value to it, so one that anything else reads is written for all; and only the loop's
count itself is known to come to all parts: a backward pass, which fills its stacks from the end, begins with zeros.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Structural
from autopart.core.program import Program


def filled_stacks(program: Program, is_update: np.ndarray) -> np.ndarray:
    """bool[values]: one number spread, which begins stacks alone that are written over whole before anything reads
    them.

    is_update: bool[ops].
    """
    begin = {
        int(program.operands[program.operand_ptr[op]])
        for op, owner in program.owners.items()
        if program.spec(op).kind == "carry" and _is_filled(program, op, program.inner_scopes[owner][1], is_update)
    }
    alike = defaultdict[Hashable, list[int]](list)
    for value in range(program.value_count) if begin else ():
        if (key := _spread_number(program, value)) is not None:
            alike[key].append(value)
    found = np.zeros(program.value_count, np.bool_)
    for values in alike.values():
        found[values] = all(value in begin for value in values)
    return found


def _spread_number(program: Program, value: int) -> Hashable | None:
    """What a value of several elements is that is one number spread; None for others."""
    op = int(program.value_op[value])
    spec = program.spec(op)
    if program.value_elements[value] == 1 or isinstance(traits_of(spec), Structural):
        return None
    if any(math.prod(t.shape) != 1 for t in spec.operands):
        return None
    makers = program.value_op[program.operands[program.operand_ptr[op] : program.operand_ptr[op + 1]]]
    return spec, tuple(str(program.spec(int(maker))) for maker in makers)


def _is_filled(program: Program, carry: int, body: int, is_update: np.ndarray) -> bool:
    """True if a body writes a part of what it carries in each turn, from the first to the last, and reads nothing of
    it."""
    user_ptr, user = program.users
    first, inside = int(program.operand_ptr[carry]), int(program.result_ptr[carry])
    begun, update = int(program.operands[first]), int(program.value_op[program.operands[first + 1]])
    changed = int(program.operand_ptr[update])
    alone = user_ptr[begun + 1] - user_ptr[begun] == 1 == user_ptr[inside + 1] - user_ptr[inside]
    if not (alone and is_update[update] and user[user_ptr[inside]] == changed):
        return False
    trips = program.scope_trips[body] / program.scope_trips[program.scopes[body].parent]
    part = program.operands[changed + 1]
    if trips * program.value_elements[part] != program.value_elements[begun]:
        return False
    along = np.flatnonzero(program.value_shape[part] != program.value_shape[inside])
    places = program.operands[changed + 2 : program.operand_ptr[update + 1]]
    counted = [program.spec(int(program.value_op[places[d]])).kind == "carry" for d in along if d < len(places)]
    return counted == [True]
