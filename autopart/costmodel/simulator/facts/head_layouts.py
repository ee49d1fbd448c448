"""What heads read lies with tokens along the lanes: f32[1024,49,288] of which queries, keys and values are parts.

    %qkv = dot_general %x, %w              bf16[1024,49,288]
    %q = reshape %qkv[.., 0:96]            bf16[1024,49,3,32]
    %s = dot_general %q, %k                bf16[1024,3,49,49], 1024 and 3 of the batch

49 is padded to 128, and the three take 75 MB; any other array would have the features along the lanes, and take 29 MB.
The longer of the two dims of an operand that are not of the batch lies so. Found with libtpu 0.0.51 on v3 and v5e, in
each of five transformers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Elementwise, Matmul, Slicing, Structural, View
from autopart.core.program import Program
from autopart.costmodel.simulator.sizes import LANES_BIT

NARROW_BYTES = 2.0
"""Of an element of what heads read."""


def _tokens(spec: OpSpec) -> Iterator[tuple[int, int]]:
    """Operands of a product along batch dims, each with the longer of its two other dims."""
    traits = traits_of(spec)
    batch = set(traits.sides(spec).batch) if isinstance(traits, Matmul) and traits.sides is not None else set[int]()
    if not batch:
        return
    for place, operand in enumerate(spec.operands):
        along = {m.operands[place] for m in mappings_of(spec) or () if m.results[0] in batch}
        others = [d for d in range(len(operand.shape)) if d not in along]
        if len(others) == 2:
            yield place, max(others, key=lambda d: operand.shape[d])


def source_dim(spec: OpSpec, dim: int) -> tuple[int, int] | None:
    """Which operand, and which of its dims, a dim of the result of an op is that only moves or computes elements."""
    traits = traits_of(spec)
    moves = isinstance(traits, Elementwise) or (isinstance(traits, View) and not traits.fence)
    if not moves and not (isinstance(traits, Slicing) and not traits.indexed):
        return None
    for m in mappings_of(spec) or ():
        for place, at in enumerate(m.operands):
            alike = m.results[0] == dim and at >= 0 and spec.operands[place].shape[at] == spec.results[0].shape[dim]
            if alike and len(spec.operands[place].shape) > 1:
                return place, at
    return None


def token_lanes(program: Program) -> np.ndarray:
    """int32[values]: `LANES_BIT` shifted by the dim that lies along the lanes, of what heads read.

    Arguments, and what loops carry, lie as they are given. Of f32 the compiler rounds what heads read, so that it takes
    no more than without padding: neither is counted.
    """
    marks, sources = np.zeros(program.value_count, np.int32), dict[tuple[int, int], tuple[int, int] | None]()
    found = [list(_tokens(spec)) for spec in program.specs]
    given = np.array([isinstance(traits_of(spec), Structural) for spec in program.specs], np.bool_)
    for op in np.flatnonzero(np.array([len(f) > 0 for f in found], np.bool_)[program.op_spec]).tolist():
        for place, dim in found[program.op_spec[op]]:
            value = int(program.operands[program.operand_ptr[op] + place])
            while marks[value] == 0:
                maker = int(program.value_op[value])
                key = int(program.op_spec[maker]), dim
                if given[key[0]] or program.element_bytes[value] > NARROW_BYTES:
                    break
                marks[value] = LANES_BIT << dim
                if key not in sources:
                    sources[key] = source_dim(program.specs[key[0]], dim)
                if (source := sources[key]) is None:
                    break
                value, dim = int(program.operands[program.operand_ptr[maker] + source[0]]), source[1]
    return marks
