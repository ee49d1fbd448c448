"""Features of images that are split into groups lie in memory as the features do.

    %y = convolution %x, %w      f32[8,16,16,320]       in layout tiles of 8 images by 320 features, padded to 384
    %g = reshape %y              f32[8,16,16,16,20]     the same memory, for a norm of each group of features
    %s = reduce %g over h, w, 20                        sums over space first, then over the features of a group

By itself f32[8,16,16,16,20] would have 20 along the lanes, padded to 128, and take five times as much. Found with
libtpu 0.0.51 on v3 and v5e in a UNet of 8 images a device: what it computes of groups, forward and backward, stands on
f32[8,16,16,320].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import View
from autopart.core.program import Program
from autopart.costmodel.simulator.sizes import LANES_BIT

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Dims of an operand and dims of a result that have the same elements, in the same order."""


def split_features(program: Program, marks: np.ndarray) -> bool:
    """Marks images of which a dim is split in two or more, or put together again; True if it marked any.

    marks[value]   0, or a bit for each dim of space
    """
    groups = [_groups(spec) for spec in program.specs]
    views = np.array([len(found) > 0 for found in groups], np.bool_)[program.op_spec]
    result = program.result_ptr[:-1]
    given = np.append(program.operands, 0)[program.operand_ptr[:-1]]
    new = np.flatnonzero(views & (marks[given] > 0) & (np.append(marks, 1)[result] == 0)).tolist()
    for op in new:
        marks[result[op]] = _split(int(marks[given[op]]), groups[program.op_spec[op]])
    return any(marks[result[op]] > 0 for op in new)


def _split(mark: int, groups: Sequence[Group]) -> int:
    """The mark of a view; 0 where a dim of space is split, or dims are put together that are no groups of features."""
    found, joined = 0, mark // LANES_BIT
    for dims, parts in groups:
        if len(dims) == len(parts) == 1:
            found |= (mark >> dims[0] & (LANES_BIT | 1)) << parts[0]
        elif any(mark >> d & 1 for d in dims) or any(not joined >> d & 1 for d in dims if len(dims) > 1):
            return 0
        elif len(parts) > 1:
            found |= sum(LANES_BIT << d for d in parts)
    return found


def _groups(spec: OpSpec) -> list[Group]:
    """Groups of dims that a view splits or puts together, with those that it leaves; none if it does neither."""
    traits = traits_of(spec)
    if not isinstance(traits, View) or traits.fence or len(spec.operands) != 1:
        return []
    given, left = spec.operands[0].shape, spec.results[0].shape
    if math.prod(given) != math.prod(left) or 0 in given:
        return []
    found, a, b = list[Group](), 0, 0
    while a < len(given) and b < len(left):
        first_a, first_b, n, m = a, b, given[a], left[b]
        a, b = a + 1, b + 1
        while n != m:
            if n < m:
                n, a = n * given[a], a + 1
            else:
                m, b = m * left[b], b + 1
        found.append((tuple(range(first_a, a)), tuple(range(first_b, b))))
    simple = all(min(len(dims), len(parts)) == 1 for dims, parts in found)
    changes = any(len(dims) != len(parts) for dims, parts in found)
    return found if simple and changes and a == len(given) and b == len(left) else []
