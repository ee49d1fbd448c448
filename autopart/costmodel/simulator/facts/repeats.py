"""Places and heads that are repeated beside each other, and sums over what was repeated: kernels of their own.

    %b = broadcast %x          bf16[32,16,2,16,2,128] of bf16[32,16,16,128]: 61.5 us
    %u = reshape %b            bf16[32,32,32,128]: an image of twice the places; keys for four heads each

    %a = reshape %g            f32[32,16,2,16,2,128] of the gradient
    %s = reduce %a, dims 2 4   f32[32,16,16,128]: 84 us, and %g is written

Each layout tile of what is repeated takes as long as one of a patch (`patches.py`), each that is summed up a third
longer. What is spread along the features themselves, as means of groups are, is spread inside what reads it. Found with
libtpu 0.0.51 on v5e, in ten programs of images and of heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, Reduction
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.behind_reshapes import is_view, runs

REPEATS, SUMS = 64, 65
"""Marks of broadcasts that are written out, and of reductions of such; no mark of `Patches.moved` is as large."""


class Repeats(NamedTuple):
    """What repeats and sums up, and what is written around it.

    marks     int32[ops]: `REPEATS`, `SUMS`, 0 for all other ops
    written   bool[values]
    """

    marks: np.ndarray
    written: np.ndarray


def repeats(program: Program) -> Repeats:
    """Those of a program."""
    found = Repeats(np.zeros(program.op_count, np.int32), np.zeros(program.value_count, np.bool_))
    views, spreads, sums = (
        np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec]
        for test in (is_view, _spreads, _sums)
    )
    for op in np.flatnonzero(spreads).tolist():
        given, made = int(program.operands[program.operand_ptr[op]]), int(program.result_ptr[op])
        kept = _kept(program.spec(op))
        if any(_mixes(program.spec(by), 0, kept) for by in program.readers_of(made) if views[by]):
            found.marks[op] = REPEATS
            found.written[[made, given]] = True
    for op in np.flatnonzero(sums).tolist():
        read = int(program.operands[program.operand_ptr[op]])
        maker = int(program.value_op[read])
        if views[maker]:
            kept = set(range(int(program.value_rank[read]))) - set(program.spec(op).attributes["dimensions"])
            if _mixes(program.spec(maker), 1, kept):
                found.marks[op] = SUMS
                found.written[int(program.operands[program.operand_ptr[maker]])] = True
    return found


def _mixes(view: OpSpec, side: int, kept: set[int]) -> bool:
    """True if a dim on one side of a view is, on the other, one of `kept` before one that is not."""
    return any(first in kept and not kept.issuperset(rest) for first, *rest in runs(view, side))


def _kept(spec: OpSpec) -> set[int]:
    """The dims of a broadcast's result that its operand has."""
    before, after = spec.operands[0].shape, spec.results[0].shape
    return {r for d, r in enumerate(spec.attributes["broadcast_dimensions"]) if before[d] == after[r]}


def _spreads(spec: OpSpec) -> bool:
    """True for a broadcast of an array that keeps its last dim, behind new ones."""
    traits, kept = traits_of(spec), spec.attributes.get("broadcast_dimensions")
    if not isinstance(traits, Elementwise) or kept is None or len(kept) < 2 or not spec.operands[0].shape:
        return False
    result, last = spec.results[0].shape, len(spec.results[0].shape) - 1
    return kept[-1] == last and spec.operands[0].shape[-1] == result[last] > 1


def _sums(spec: OpSpec) -> bool:
    """True for a reduction that leaves the last dim."""
    traits, dims = traits_of(spec), spec.attributes.get("dimensions")
    if not isinstance(traits, Reduction) or traits.slides or dims is None:
        return False
    return len(spec.results) == 1 and len(spec.operands[0].shape) - 1 not in dims
