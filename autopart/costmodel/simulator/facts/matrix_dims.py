"""The two dims of the matrices that products along batch dims leave, behind transposes too.

    %g = dot_general %p, %q     f32[64,8,512,64], a matrix of 512 x 64 for each of 64 and 8
    %t = transpose %g           f32[64,512,8,64]: dims 1 and 3, as they lie in memory

What a redistribution does along one of them may have to move it out of the layout tiles (`local/scattered_rows.py`).
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Elementwise, Matmul, View
from autopart.core.program import Program


def matrix_dims(program: Program) -> np.ndarray:
    """int32[values]: a bit for each of the two dims, of products along batch dims, also turned; else 0."""
    marks = np.zeros(program.value_count, np.int32)
    multiplies = [_matrix(spec) for spec in program.specs]
    turns = [_moved_dims(spec) for spec in program.specs]
    interesting = np.array([bool(m) or t is not None for m, t in zip(multiplies, turns, strict=True)], np.bool_)
    for op in np.flatnonzero(interesting[program.op_spec]).tolist() if any(multiplies) else []:
        row, result = int(program.op_spec[op]), int(program.result_ptr[op])
        to = turns[row]
        if to is None:
            marks[result] = multiplies[row]
        else:
            marks[result] = sum(1 << to[d] for d in to if marks[program.operands_of(op)[0]] >> d & 1)
    return marks


def _matrix(spec: OpSpec) -> int:
    """Bits of the last dims of a product along batch dims."""
    traits, rank = traits_of(spec), len(spec.results[0].shape) if spec.results else 0
    if not isinstance(traits, Matmul) or traits.sides is None or not (batch := traits.sides(spec).batch):
        return 0
    dims = [d for d in range(rank) if d not in batch]
    return sum(1 << d for d in dims) if len(dims) == 2 else 0


def _moved_dims(spec: OpSpec) -> dict[int, int] | None:
    """Where each dim goes in a transpose, or in an op of one array that keeps its shape; None for any other op."""
    traits = traits_of(spec)
    if not isinstance(traits, Elementwise | View) or len(spec.operands) != 1 or len(spec.results) != 1:
        return None
    before, after = spec.operands[0].shape, spec.results[0].shape
    if isinstance(traits, Elementwise) and traits.turns is not None and traits.weight == 0:
        return {m.operands[0]: m.results[0] for m in mappings_of(spec) or () if m.operands[0] >= 0}
    return {d: d for d in range(len(before))} if before == after else None
