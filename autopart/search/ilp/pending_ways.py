"""Which ops may be reached by a reduction that is pending, through which of their passages, in any state of a search.

    %p = dot_general       a mapping leaves a sum pending
    %t = transpose %p      sums pass: reached            maxima pass too, but no maximum comes here: not reached
    %e = exponential %t    nothing passes
    %m = multiply %e %s    linear in either operand, but no sum comes through %e: not reached

A lowering reduces where that is cheapest (`pending.py`); a model that may reduce anywhere on the way has every
state among its choices. What is left out is what no state can do: outputs, and outside loops values with several uses,
are reduced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM
from autopart.core.ops.passages import Passage
from autopart.core.ops.rule import passages_of
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import LoweringContext

ALWAYS = sum(1 << code for code in (MAX, MIN, AND, OR))
"""Reductions, as bits, for which a value that is the same on every device stands for its parts."""


def may_go_on(program: Program, statics: LoweringContext) -> np.ndarray:
    """bool[values]: one use alone reads the value, or it is in a loop, where all uses may pass it on."""
    uses, runs = np.diff(program.users[0]), statics.passages.runs[statics.passages.scope[program.value_op]]
    return ~statics.is_output & ((uses == 1) | ((uses > 1) & (runs > 1)))


@dataclass(frozen=True, eq=False)
class PendingWays:
    """The passages of ops that may be reached; make it with `PendingWays.of`.

    passages[n]      a set of passages
    of_op[op]        which set an op has
    stands[value]    the reductions, as bits, for parts of which the whole value may stand
    """

    passages: tuple[tuple[Passage, ...], ...]
    of_op: np.ndarray
    stands: np.ndarray

    @staticmethod
    def of(start: Partitioning, statics: LoweringContext, *, rounded: bool) -> PendingWays:
        """Those of a search from `start`; `rounded` also lets reductions through ops that round parts otherwise."""
        program, arrays = start.program, statics.passages
        every = [
            passages_of(spec)
            if (len(spec.results) == 1 or spec.kind == "carry") and (rounded or not arrays.rounded[number])
            else ()
            for number, spec in enumerate(program.specs)
        ]
        reached = _spread(start, statics, every)
        numbers: dict[tuple[Passage, ...], int] = {(): 0}
        of_op = np.zeros(program.op_count, np.int64)
        for op, taken in reached.items():
            passages = every[int(program.op_spec[op])]
            of_op[op] = numbers.setdefault(tuple(passages[i] for i in sorted(taken)), len(numbers))
        identity = arrays.identity.astype(np.int64)
        stands = ALWAYS | (identity & 1) << SUM | (identity >> (MUL - SUM) & 1) << MUL
        return PendingWays(tuple(numbers), of_op, stands)


def _spread(start: Partitioning, statics: LoweringContext, every: list[tuple[Passage, ...]]) -> dict[int, set[int]]:
    """By op, the numbers of the passages through which something pending may come."""
    program = start.program
    goes_on = may_go_on(program, statics).tolist()
    pending, reached = _made(start), dict[int, set[int]]()
    has_passages = np.array([bool(passages) for passages in every], np.bool_)
    candidates = np.flatnonzero(has_passages[program.op_spec]).tolist()
    changes = True
    while changes:
        changes = False
        for op in candidates:
            operands = program.operands_of(op).tolist()
            comes = [pending[value] if goes_on[value] else 0 for value in operands]
            if not any(comes):
                continue
            for number, passage in enumerate(every[int(program.op_spec[op])]):
                bit = 1 << passage.code
                if number in reached.get(op, ()) or not _reaches(passage, comes, bit):
                    continue
                reached.setdefault(op, set()).add(number)
                for value in program.results_of(op):
                    pending[value] |= bit
                changes = True
    return reached


def _reaches(passage: Passage, comes: list[int], bit: int) -> bool:
    return any(part and bits & bit for part, bits in zip(passage.parts, comes, strict=True))


def _made(start: Partitioning) -> list[int]:
    """Per value, as bits, the reductions that mappings of its op leave pending."""
    program = start.program
    made: list[list[int]] = []
    for number, spec in enumerate(program.specs):
        bits = [0] * len(spec.results)
        for mapping in start.table.of[number]:
            for result, entry in enumerate(mapping.results):
                bits[result] |= 1 << entry if LAST_TILE < entry <= OR else 0
        made.append(bits)
    return [bits for spec in program.op_spec.tolist() for bits in made[spec]]
