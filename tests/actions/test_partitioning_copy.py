"""Is a copy of a partitioning equal to it, and does each then go its own way?"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import autopart as ap
from autopart.api.tactics.tactic import TacticContext
from autopart.core.table.actions import Propagate, ShareGathers, Tile
from autopart.core.table.conflicts import conflicts, unpartitioned
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import LoweringOptions, lower
from tests.property.random_schedules import RandomActionsAnywhere
from tests.search.steps import MESH, decoder

CONFLICT = """func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32> }"""


def described(p: Partitioning) -> tuple:
    """All that can be asked of a state."""
    lowered = lower(p, LoweringOptions())
    open_ops = [(c.op, c.axis, c.candidates) for c in conflicts(p)]
    return p.fingerprint, lowered.fingerprint, p.share_within, open_ops, unpartitioned(p)


def decided(seed: int) -> Partitioning:
    p = Partitioning(decoder(), MESH)
    RandomActionsAnywhere(seed).act(p, TacticContext())
    if seed % 2:
        p.share_gathers(40)
    return p


@pytest.mark.parametrize("seed", range(6))
def test_copy_is_equal_and_what_happens_to_it_leaves_the_original_alone(seed):
    original = decided(seed)
    before = described(original)
    arrays = [array.copy() for array in original.state]
    copy = original.copy()
    assert described(copy) == before
    RandomActionsAnywhere(seed + 100).act(copy, TacticContext())
    copy.share_gathers(99)
    copy.undo(0)
    assert described(original) == before
    for array, kept in zip(original.state, arrays, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("seed", range(6))
def test_copy_goes_on_as_the_original_and_as_a_pickled_one(seed):
    original = decided(seed)
    copies = [original.copy(), pickle.loads(pickle.dumps(original))]
    mark = original.mark()
    for p in (original, *copies):
        RandomActionsAnywhere(seed + 200).act(p, TacticContext())
    assert described(original) == described(copies[0]) == described(copies[1])
    for p in (original, *copies):
        p.undo(mark)
    assert original.fingerprint == copies[0].fingerprint == copies[1].fingerprint == decided(seed).fingerprint


def test_decisions_that_wait_for_a_propagation_are_copied():
    x = decoder().arguments[0]
    original = Partitioning(decoder(), MESH)
    original.apply_all([Tile(x, 0, "batch")])
    copy = original.copy()
    for p in (original, copy):
        p.propagate(["batch"])
    assert copy.fingerprint == original.fingerprint
    assert (copy.state.mapping >= 0).any()


def test_conflicts_are_copied_and_not_shared(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(CONFLICT)
    original = Partitioning(ap.load(path).traced.program, ap.Mesh({"a": 2}))
    original.apply_all([Tile(0, 0, "a")])
    before = original.copy()
    original.apply_all([Propagate("a"), ShareGathers(3)])
    assert conflicts(original.copy()) == conflicts(original) != []
    assert (conflicts(before), before.share_within) == ([], 0)


def test_copies_share_what_does_not_change():
    original = decided(0)
    copy = original.copy()
    assert (copy.program, copy.mesh) == (original.program, original.mesh)
    assert copy.table is original.table
    assert copy.graph is original.graph
    assert not any(np.shares_memory(a, b) for a, b in zip(copy.state, original.state, strict=True))
