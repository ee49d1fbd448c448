"""Which decisions does a state offer, and do they mean what they say?"""

from __future__ import annotations

import numpy as np
import pytest

import autopart as ap
from autopart.core.table.actions import Propagate, Tile
from autopart.core.table.conflicts import conflicts
from autopart.core.table.partitioning import Partitioning
from autopart.search.contract import two_matrices
from autopart.search.space import DecisionSpace
from autopart.search.space.axis_symmetry import symmetric_axes
from autopart.search.space.value_groups import value_groups
from experiments.models.tactics import BP
from tests.search.steps import MEGATRON, MESH, decoder, decoder_partitioning

AXES = ("batch", "model")


def space_of(partitioning: Partitioning, axes=AXES, **settings) -> DecisionSpace:
    return DecisionSpace.of(partitioning, axes, **settings)


def texts(space: DecisionSpace, partitioning: Partitioning) -> list[str]:
    return [space.describe(o.decision) for o in space.options(partitioning)]


def test_values_of_repeated_layers_share_a_group():
    program = decoder(3)
    named = dict(zip(program.argument_names, program.arguments, strict=True))
    of = value_groups(program).of
    assert of[named["params/blocks/0/up"]] == of[named["params/blocks/1/up"]] == of[named["params/blocks/2/up"]]
    assert of[named["params/blocks/0/up"]] != of[named["params/blocks/0/down"]]
    assert of[named["params/blocks/0/up"]] != of[named["opt_state/0/mu/blocks/0/up"]]


def test_groups_of_the_same_shape_tell_sizes_apart():
    program = two_matrices()
    named = dict(zip(program.argument_names, program.arguments, strict=True))
    of = value_groups(program, same_shape=True).of
    assert of[named["params/w1"]] != of[named["params/w2"]]


def test_depth_does_not_add_decisions():
    few, many = decoder_partitioning(layers=3), decoder_partitioning(layers=6)
    assert len(space_of(many).options(many)) == len(space_of(few).options(few))


def test_optimizer_state_that_follows_its_parameter_is_not_offered():
    partitioning = decoder_partitioning()
    assert not any("opt_state" in text for text in texts(space_of(partitioning), partitioning))


def test_priors_add_up_to_one_and_space_leaves_the_state_alone():
    partitioning = decoder_partitioning()
    before = partitioning.fingerprint
    options = space_of(partitioning).options(partitioning)
    assert sum(o.prior for o in options) == pytest.approx(1)
    assert partitioning.fingerprint == before


def test_every_option_does_something():
    for tactics in ((), (BP,), (BP, MEGATRON)):
        partitioning = decoder_partitioning(*tactics)
        space = space_of(partitioning)
        for option in space.options(partitioning):
            mark = partitioning.mark()
            actions = space.apply(partitioning, option.decision)
            partitioning.undo(mark)
            assert any(not isinstance(a, Propagate) for a in actions), space.describe(option.decision)


def test_after_megatron_the_pending_sums_may_be_tiled_over_the_sequence():
    partitioning = decoder_partitioning(BP, MEGATRON)
    space = space_of(partitioning)
    pending = [
        o.decision
        for o in space.options(partitioning)
        if o.decision.kind == "tile_group" and o.decision.axis == "model" and o.decision.dim == 1
        and partitioning.pending(int(space.values(o.decision)[0]), "model")
    ]  # fmt: skip
    assert pending
    assert space.apply(partitioning, pending[0])


def test_a_tagged_value_is_offered():
    import jax.numpy as jnp

    def f(w, x):
        return ap.tag("hidden", jnp.tanh(x @ w)).sum()

    shapes = (np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
    program = ap.jit(f, MESH).lower(*shapes).traced.program
    partitioning = Partitioning(program, MESH)
    space = space_of(partitioning)
    offered = {v for p in space.probes for v in space.values(p.decision).tolist()}
    assert set(program.tags["hidden"]) & offered


def test_the_result_of_an_op_in_conflict_is_offered():
    import jax.numpy as jnp

    def f(x, y):
        return jnp.tanh(x + y)

    shapes = (np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
    program = ap.jit(f, MESH).lower(*shapes).traced.program
    partitioning = Partitioning(program, MESH)
    for name, dim in (("x", 0), ("y", 1)):
        partitioning.tile(program.arguments[program.argument_names.index(name)], dim, "batch")
    partitioning.propagate()
    assert conflicts(partitioning)
    space = space_of(partitioning)
    result = program.results_of(conflicts(partitioning)[0].op)[0]
    offered = [o.decision for o in space.options(partitioning) if result in space.values(o.decision)]
    assert {d.dim for d in offered} == {0, 1}


def test_values_in_turn_alternate_as_inference_decides():
    """Of a chain of equal square matrices, every second one is tiled; the others are inferred."""
    import jax.numpy as jnp

    def f(layers, x):
        for w in layers:
            x = jnp.tanh(x @ w)
        return x

    args = ([np.zeros((64, 64), np.float32)] * 6, np.zeros((64, 64), np.float32))
    program = ap.jit(f, MESH).lower(*args).traced.program
    partitioning = Partitioning(program, MESH)
    values = np.array(program.arguments[:6], np.int32)
    tiles = partitioning.tile_in_turn(values, np.full(6, 1), "model")
    assert [t.value for t in tiles] == values[::2].tolist()
    assert [partitioning.tiled_dim(int(v), "model") for v in values] == [1, 0, 1, 0, 1, 0]
    assert all(isinstance(t, Tile) for t in tiles)


def test_of_axes_that_are_alike_only_the_first_is_offered_until_it_is_used():
    partitioning = Partitioning(decoder(), ap.Mesh({"a": 2, "b": 2}, device="h100"))
    symmetric_to = symmetric_axes(partitioning, ("a", "b"))
    assert symmetric_to == {"b": "a"}
    space = space_of(partitioning, ("a", "b"), symmetric_to=symmetric_to)
    assert {o.decision.axis for o in space.options(partitioning)} == {"a"}
    space.apply(partitioning, space.probes[0].decision)
    assert {o.decision.axis for o in space.options(partitioning)} == {"a", "b"}


def test_axes_of_other_sizes_are_not_symmetric():
    assert symmetric_axes(decoder_partitioning(), AXES) == {}
