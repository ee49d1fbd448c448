"""Is one plan one file, however it was found?"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.api.plan.canonical_actions import canonical_actions
from autopart.core.table.actions import Propagate, ShareGathers, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.axis_symmetry import in_canonical_axes, symmetric_axes
from autopart.search.space.decision_space import DecisionSpace

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
SQUARE = jax.ShapeDtypeStruct((64, 64), "float32")


def mlp(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return x


ARGS = ([SQUARE] * 4, SQUARE)
PROGRAM = ap.jit(mlp, MESH).lower(*ARGS).traced.program
WEIGHTS, X = PROGRAM.arguments[:4], PROGRAM.arguments[4]


def canonical(*actions):
    return canonical_actions(PROGRAM, MESH, ap.LoweringOptions(), [actions])


def test_the_order_of_independent_decisions_does_not_matter():
    parts = [[Tile(X, 0, "batch"), Propagate("batch")], [Tile(WEIGHTS[0], 1, "model"), Propagate("model")]]
    found = [canonical(*itertools.chain(*order)) for order in itertools.permutations(parts)]
    assert found[0] == found[1]


def test_what_implies_each_other_is_one_plan():
    by_columns = canonical(Tile(WEIGHTS[0], 1, "model"), Propagate("model"))
    by_rows = canonical(Tile(WEIGHTS[1], 0, "model"), Propagate("model"))
    assert by_columns == by_rows == [[Tile(WEIGHTS[0], 1, "model"), Propagate("model")]]


def test_decisions_that_change_nothing_are_left_out():
    more = canonical(Tile(X, 0, "batch"), Propagate("batch"), Tile(X, 0, "batch"), Propagate("batch"))
    assert more == canonical(Tile(X, 0, "batch"), Propagate("batch"))
    shared = canonical(ShareGathers(3), ShareGathers(64))
    assert shared == [[ShareGathers(64)]]


def test_the_order_of_two_axes_of_a_dim_is_kept():
    for axes in (("batch", "model"), ("model", "batch")):
        actions = [Tile(X, 0, axis) for axis in axes] + [Propagate(axis) for axis in axes]
        found, theirs = Partitioning(PROGRAM, MESH), Partitioning(PROGRAM, MESH)
        theirs.apply_all(actions)
        found.apply_all(canonical(*actions)[0])
        assert found.ways(X, 0) == theirs.ways(X, 0) == 8
        low = ap.jit(mlp, MESH, [ap.ManualPartition({"x": 0}, axis=axes)]).lower(*ARGS)
        assert low.plan.inputs[4].spec == (axes,)
        assert ap.jit(mlp, MESH, low.plan).lower(*ARGS).plan.inputs[4].spec == (axes,)


def test_seeds_that_find_one_cost_on_alike_axes_find_one_file():
    mesh = ap.Mesh({"a": 2, "b": 2}, device="h100")
    files: dict[float, set[str]] = {}
    for seed in range(6):
        auto = ap.AutomaticPartition(
            ["a", "b"],
            optimizer="random",
            budget=ap.Budget(40),
            seed=seed,
            cache=False,
            progress=False,
            baselines=False,
        )
        plan = ap.jit(mlp, mesh, [auto]).lower(*ARGS).plan
        files.setdefault(plan.step_s, set()).add(plan.to_json())
    assert len(files) < 6
    assert {len(found) for found in files.values()} == {1}


@pytest.mark.parametrize("axes", ["ab", "ba"])
def test_axes_that_are_alike_are_named_in_one_way(axes):
    partitioning = Partitioning(PROGRAM, ap.Mesh({"a": 2, "b": 2}, device="h100"))
    alike = symmetric_axes(partitioning, ["a", "b"])
    assert alike == {"b": "a"}
    space = DecisionSpace.of(partitioning, ["a", "b"], symmetric_to=alike)
    offered = [o.decision for o in space.options(partitioning) if o.decision.kind == "tile_group"]
    rows = [next(d for d in offered if d.dim == dim) for dim in (0, 1)]

    def named(names):
        decisions = [d._replace(axis=axis) for d, axis in zip(rows, names, strict=True)]
        return in_canonical_axes(partitioning, decisions, lambda d: space.apply(partitioning, d), alike)

    assert named(axes) == named(axes[::-1])
    assert partitioning.mark() == 0
