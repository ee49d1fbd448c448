"""Pools: windows that slide over an array that is written, and for products alone over what is rounded.

    %r = maximum %y 0           written, in f32 where a gradient reads it, else in bf16
    %p = reduce_window %r       the largest of each window: rounded for the convolution that reads it
    %z = convolution %p %w

Found with libtpu 0.0.51 on v5e.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Reduction
from autopart.core.program import Program


def _chooses(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Reduction) and traits.slides and traits.chooses(spec)


def read_rounded(program: Program, narrows: np.ndarray) -> np.ndarray:
    """bool[ops]: pools that are given rounded elements, as what they choose is rounded for products and read by nothing
    else. narrows: bool[ops], those that round what they read."""
    chooses = np.array([_chooses(spec) for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(chooses).tolist():
        readers = [reader for value in program.results_of(op) for reader in program.readers_of(value)]
        chooses[op] = len(readers) > 0 and narrows[readers].all()
    return chooses & ~np.isin(program.result_ptr[:-1], program.outputs)
