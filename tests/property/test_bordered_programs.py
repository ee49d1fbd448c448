"""Random programs over borders: are the numbers those of one device, and do borders alone move?

pytest tests/property/test_bordered_programs.py -m "slow or not slow"        200 programs
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import autopart as ap
from tests.property.bordered_programs import BorderedProgram

MESHES = {1: {"a": 4}, 2: {"a": 4, "b": 2}}
SMALL, REAL = 32, {1: 2**22, 2: 4096}
MOST_BORDERS = 32
"""Each border is read by each op that reads a neighbour, and by those of the gradient."""

SEEDS = [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_stay_and_borders_alone_move(seed: int):
    program, rng = BorderedProgram(seed), np.random.default_rng(seed)
    x, w = jax.tree.map(lambda s: rng.normal(size=s.shape).astype(np.float32), program.shapes(SMALL))
    mesh, dims = MESHES[program.axes], range(program.first, program.first + program.axes)
    placed = [ap.ManualPartition({"x": d}, axis) for d, axis in zip(dims, mesh, strict=True)]
    want, got = jax.jit(program.fun)(x, w), ap.jit(lambda x, w: program.fun(x, w), ap.Mesh(mesh), placed)(x, w)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * float(np.abs(a).max()), err_msg=str(program))
    size = REAL[program.space]
    step = ap.jit(lambda x, w: program.fun(x, w), ap.Mesh(mesh, device="h100"), placed)
    moved = step.lower(*program.shapes(size)).estimate.collectives
    most = MOST_BORDERS * program.border_bytes(size) + 1e6
    assert sum(total.bytes for total in moved.values()) <= most, (moved, str(program))
