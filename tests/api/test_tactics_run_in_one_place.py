"""Is a tactic told the same things, and named in errors, wherever it runs: a schedule, a sweep, a seed of a search?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import jax
import pytest

import autopart as ap
from autopart.core.table.actions import Propagate, ShareGathers, Tile
from autopart.costmodel.estimate import estimate

X = jax.ShapeDtypeStruct((64, 64), "float32")
MESH = ap.Mesh({"a": 2, "b": 4}, device="tpu_v3")
OPTIONS = ap.LoweringOptions(share_within=7)


def fun(w, x):
    return jax.numpy.tanh(x @ w) @ w


@dataclass(frozen=True)
class Constant:
    """A cost model of a known answer."""

    step_s: float = 3.0

    def __call__(self, program, mesh):
        return dataclasses.replace(estimate(program, mesh), step_s=self.step_s)


@dataclass
class Listener:
    """A tactic that tiles nothing and keeps what it was told."""

    heard: list = field(default_factory=list)
    name: str = "listener"

    def act(self, partitioning, context):
        self.heard.append(context)
        return ap.TacticResult([], {"heard": len(self.heard)})


WRONG = ap.ManualPartition({"x": 7}, axis="a", name="wrong")
AUTO = ap.AutomaticPartition(["a"], optimizer="greedy", budget=ap.Budget(4), cache=False, name="auto")


def in_jit(schedule):
    ap.jit(fun, MESH, schedule, options=OPTIONS, cost_model=Constant()).lower(X, X)


def in_sweep(schedule):
    settings = {"devices": 8, "device": "tpu_v3", "meshes": [MESH], "budget": ap.Budget(2), "cache": False}
    found = ap.sweep(fun, (X, X), schedule=schedule, options=OPTIONS, cost_model=Constant(), **settings)
    if found.rows[0].error:
        raise ap.PartitionError(found.rows[0].error)


def in_seed(schedule):
    auto = ap.AutomaticPartition(
        ["a"], optimizer="greedy", budget=ap.Budget(2), cache=False, seeds=[[], schedule], name="auto"
    )
    in_jit([auto])


PLACES = [in_jit, in_sweep, in_seed]


@pytest.mark.parametrize("place", PLACES)
def test_tactic_is_told_options_cost_model_place_and_what_was_said_before_it(place):
    listener = Listener()
    place([listener, ap.SharedGathers(3), listener])
    first, last = listener.heard
    assert (first.options, first.cost_model) == (last.options, last.cost_model) == (OPTIONS, Constant())
    assert (first.position, last.position, last.count) == (1, 3, 3)
    assert first.notes == ()
    assert [dict(note) for note in last.notes] == [{"heard": 1}, {}]
    assert last.schedule == ('seed 2 of "auto"' if place is in_seed else "")


@pytest.mark.parametrize("place", PLACES)
def test_error_names_the_tactic_and_its_place(place):
    within = ' in seed 2 of "auto"' if place is in_seed else ""
    with pytest.raises(ap.PartitionError) as caught:
        place([ap.SharedGathers(1), WRONG])
    assert f'ManualPartition "wrong" (tactic 2 of 2{within})' in str(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_search_in_a_schedule_has_the_schedules_options_and_cost_model_unless_it_has_its_own(place, monkeypatch):
    asked = []

    def listening(partitioning, wanted):
        asked.append((wanted.options, wanted.cost_model))
        return real(partitioning, wanted)

    real = ap.api.tactics.automatic.search
    monkeypatch.setattr(ap.api.tactics.automatic, "search", listening)
    own = ap.AutomaticPartition(
        ["b"],
        optimizer="greedy",
        budget=ap.Budget(2),
        cache=False,
        options=ap.LoweringOptions(),
        cost_model=Constant(5.0),
    )
    place([AUTO, own])
    assert (OPTIONS, Constant()) in asked
    assert (ap.LoweringOptions(), Constant(5.0)) in asked


@pytest.mark.parametrize("place", PLACES)
def test_search_that_cannot_run_is_named(place):
    nowhere = ap.AutomaticPartition(["a", "no axis"], budget=ap.Budget(2), name="lost")
    with pytest.raises(ap.PartitionError, match=r'AutomaticPartition "lost" \(tactic 1 of 1'):
        place([nowhere])


def test_what_a_search_found_may_be_a_seed_and_is_taken_as_it_is():
    found = ap.jit(fun, MESH, [AUTO]).lower(X, X).scheduled.actions
    seeded = ap.AutomaticPartition(["a"], budget=ap.Budget(2), cache=False, seeds=[[ap.Replay(found)]])
    again = ap.jit(fun, MESH, [seeded]).lower(X, X)
    alone = ap.jit(fun, MESH, [ap.Replay(found)]).lower(X, X)
    assert again.estimate.step_s <= alone.estimate.step_s
    assert ap.jit(fun, MESH, [AUTO]).lower(X, X).as_text("core") == alone.as_text("core")


def test_every_action_that_a_search_takes_can_be_replayed():
    actions = (Tile(0, 0, "a"), Propagate("a"), ShareGathers(9))
    low = ap.jit(fun, MESH, [ap.Replay(actions)]).lower(X, X)
    assert low.scheduled.actions == actions
    assert low.scheduled.partitioning.share_within == 9


@dataclass
class OldStyle:
    name: str = "old"

    def act(self, partitioning):
        return []


class Forgetful(OldStyle):
    def act(self, partitioning, context):
        return [Propagate("a")]


def test_tactic_that_takes_no_context_is_refused_with_what_is_legal():
    with pytest.raises(ap.ArgumentError, match="ManualPartition"):
        ap.jit(fun, MESH, [OldStyle()])


@pytest.mark.parametrize("place", PLACES)
def test_tactic_that_returns_something_else_is_named(place):
    with pytest.raises(ap.PartitionError, match=r"(?s)it returned \[Propagate.*Forgetful.*TacticResult"):
        place([Forgetful()])
