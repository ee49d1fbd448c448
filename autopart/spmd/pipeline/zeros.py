"""What is zero where something else is: gradients of layers, where nothing comes back to them.

    dy = 0                             zero
    dx = dot dy, w                     zero: a dot is linear in its first operand
    dw = dot x, dy + 0.1 * w           not known

An op is linear in the operands in which a sum may be pending (`core/ops/passages.py`). A carry is zero if it begins so,
and if what a turn leaves is zero wherever the loop's carries are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autopart.core.op import SUM
from autopart.core.ops.rule import passages_of
from autopart.core.program import Program
from autopart.core.splats import splat_behind


def zeros_of(program: Program, ops: Sequence[int], given: Mapping[int, int]) -> set[int]:
    """The values that `ops`, in order, are known to leave zero where those that are given are; with the given ones.

    given  value that is zero in the first turn -> what it is in the next one, of which the same is to be known
    """
    carries = {op for op in ops if program.spec(op).kind == "carry"}
    while True:
        zeros = set(given)
        for op in ops:
            if op in carries or _is_zero(program, op, zeros):
                zeros.update(program.results_of(op))
        wrong = {op for op in carries if not all(_known(program, v, zeros) for v in program.operands_of(op).tolist())}
        still = {value: after for value, after in given.items() if _known(program, after, zeros)}
        if not wrong and len(still) == len(given):
            return zeros
        carries, given = carries - wrong, still


def _is_zero(program: Program, op: int, zeros: set[int]) -> bool:
    spec, read = program.spec(op), program.operands_of(op).tolist()
    if spec.kind == "carry" or not read:
        return False
    known = [_known(program, value, zeros) for value in read]
    if spec.kind in ("tag", "join", "optimization_barrier"):
        return all(known)
    linear = [passage.parts for passage in passages_of(spec) if passage.code == SUM]
    return any(all(zero for zero, part in zip(known, parts, strict=True) if part) for parts in linear)


def _known(program: Program, value: int, zeros: set[int]) -> bool:
    return value in zeros or splat_behind(program, value) == 0
