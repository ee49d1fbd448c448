"""Places of images that are taken together as features, spread out again, or cut into windows: copied tile by tile.

    %a = reshape %x            bf16[16,28,2,28,2,96] of bf16[16,56,56,96]
    %t = transpose %a          bf16[16,28,28,2,2,96]: 377 us, as tiles of two rows by 96 features
    %m = reshape %t            bf16[16,28,28,384]

    %a = reshape %y            bf16[16,28,28,2,2,96] of the gradient
    %t = transpose %a          bf16[16,28,2,28,2,96]: 94 us, as tiles of eight images by 96 features
    %g = reshape %t            bf16[16,56,56,96]

A transpose costs nothing where memory has an order of dims that both reshapes can read: heads are such. Dims of one
group lie one behind the other, so there is none where a dim would need two next to it on one side, as the width of a
patch does: behind its row of patches for %x, behind the height of the patch for %m. Then a kernel copies, and what it
reads and writes is written. Each layout tile of the result takes as long whatever it has: so few rows, 22.5 cycles on
v5e, v6e and, within a half, on v3 and v4, 5 to 7 on v5p; half that where tiles stay as they are, or where images fill
the lanes (`patch_tiles.py`). Of few features images lie along the lanes, if there are many. Found with libtpu 0.0.51 on
v5e, in 40 programs of patches of 2 to 16 places, windows of 4 to 8, shuffled pixels, and 1 to 256 features. Images of
tasks with windows of their own are in `joined_images.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.behind_reshapes import is_view, runs
from autopart.costmodel.simulator.facts.joined_images import around_tasks

TOGETHER = 32
"""Added to the dim in front of the features where both are features of the result."""


class Patches(NamedTuple):
    """Transposes that copy, and what is written around them.

    moved     int32[ops]: 1 + the dim in front of the last, with `TOGETHER` if both are one dim behind it; 0: no copy
    written   bool[values]
    """

    moved: np.ndarray
    written: np.ndarray


def patches(program: Program) -> Patches:
    """Those of a program."""
    found = Patches(np.zeros(program.op_count, np.int32), np.zeros(program.value_count, np.bool_))
    turns = np.array([_permutes(spec) for spec in program.specs], np.bool_)[program.op_spec]
    views = np.array([is_view(spec) for spec in program.specs], np.bool_)[program.op_spec]
    tasks = around_tasks(program)
    for op in np.flatnonzero(turns).tolist():
        given, made = int(program.operands[program.operand_ptr[op]]), int(program.result_ptr[op])
        maker = int(program.value_op[given])
        if not views[maker] or tasks[given]:
            continue
        order = [int(d) for d in program.spec(op).attributes["permutation"]]
        split = [[order.index(d) for d in dims] for dims in runs(program.spec(maker), 1)]
        for by in program.readers_of(made):
            together = runs(program.spec(by), 0) if views[by] else []
            if _conflict([*split, *together]):
                last = len(order) - 1
                joint = any(dims[-2:] == [last - 1, last] for dims in together)
                found.moved[op] = last + (TOGETHER if joint else 0)
                found.written[[made, given, int(program.operands[program.operand_ptr[maker]])]] = True
    return found


def _permutes(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Elementwise) and traits.turns is not None and "permutation" in spec.attributes


def _conflict(apart: list[list[int]]) -> bool:
    """True if a dim would have two next to it on one side, where all these runs lie as they stand."""
    behind, front = dict[int, int](), dict[int, int]()
    for one, other in _next_to(apart):
        if behind.setdefault(one, other) != other or front.setdefault(other, one) != one:
            return True
    return False


def _next_to(apart: list[list[int]]) -> Iterator[tuple[int, int]]:
    for run in apart:
        yield from pairwise(run)
