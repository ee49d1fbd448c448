"""What is computed of few elements is written before it is spread over more: its reader would compute it for each.

    %s = rsqrt %v        f32[8192]: a kernel of its own, 1.3 us
    %b = broadcast %s    f32[8192,512]
    %y = multiply %x %b

XLA:TPU does so for whatever is computed, a negation or a rounding too, and however few times it is read; a single
number it computes inside the reader. Found with libtpu 0.0.51 on v5e, in 24 programs of a few ops: a norm is five
kernels, two of which take a microsecond.
"""

from __future__ import annotations

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.core.splats import splat_behind
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE


def spread_results(program: Program, op_class: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """bool[values]: what an elementwise op computes, and a reader spreads along a dim, perhaps behind other moves.

    op_class   of each op
    moves      bool[ops]: views, and elementwise ops that compute nothing
    """
    _, user = program.users
    reads, results = np.diff(program.operand_ptr), np.diff(program.result_ptr)
    passes, computes = moves & (reads == 1), (op_class == ELEMENTWISE) & ~moves & (reads > 0)
    passing = user[passes[program.use_op[user]]]
    made_of = program.result_ptr[program.use_op[passing]].tolist()
    counts = np.bincount(program.operands[passing], minlength=program.value_count)
    first = np.concatenate([[0], np.cumsum(counts)]).tolist()
    elements = program.value_shape.prod(axis=1, dtype=np.float64).tolist()
    spreads, found = [False] * program.value_count, np.zeros(program.value_count, np.bool_)
    for op in np.flatnonzero((passes | computes) & (results == 1))[::-1].tolist():
        value = int(program.result_ptr[op])
        made, own = made_of[first[value] : first[value + 1]], elements[value]
        spreads[value] = any(spreads[other] or elements[other] > own for other in made)
        if spreads[value] and computes[op] and own > 1 and not _is_dropped(program, op):
            found[value], spreads[value] = True, False
    return found


def _is_dropped(program: Program, op: int) -> bool:
    """True for an op that leaves one operand as it is: the maximum of a row, and of that and minus infinity."""
    traits = traits_of(program.spec(op))
    if not isinstance(traits, Elementwise) or traits.neutral is None:
        return False
    return any(splat_behind(program, value) == traits.neutral for value in program.operands_of(op).tolist())
