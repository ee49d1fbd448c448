"""Does every registered kind of decision do what it says, and can a kind be added in one file?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import autopart as ap
from autopart.base.registry import RegistryError
from autopart.core.table.actions import Action, Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.contract import OutOfOrder, run
from autopart.search.space import Decision, DecisionKind, DecisionSpace, Option, register_decision_kind
from autopart.search.space.decisions import DECISION_KINDS
from autopart.search.space.tile_and_keep import tile_each
from tests.search.steps import decoder, decoder_partitioning

AXES = ("batch", "model")
UP, DOWN, MU = "params/blocks/0/up", "params/blocks/0/down", "opt_state/0/mu/blocks/0/up"


def argument(name: str) -> int:
    program = decoder()
    return program.arguments[program.argument_names.index(name)]


def given() -> tuple[Action, ...]:
    return Tile(argument(UP), 1, "model"), Propagate("model")


def space_of(partitioning: Partitioning) -> DecisionSpace:
    return DecisionSpace.of(partitioning, AXES, given=[given()])


@pytest.fixture(scope="module")
def space() -> DecisionSpace:
    return space_of(decoder_partitioning())


EXAMPLES: dict[str, Callable[[DecisionSpace], Decision]] = {
    "tile_group": lambda s: Decision("tile_group", int(s.facts.groups.of[argument(UP)]), 1, "model"),
    "same_shape": lambda s: Decision("same_shape", int(s.facts.same_shape.of[argument(UP)]), 1, "model"),
    "value": lambda s: Decision("value", argument(UP), 1, "model"),
    "keep": lambda s: Decision("keep", int(s.facts.groups.of[argument(UP)]), -1, "batch"),
    "keep_value": lambda s: Decision("keep_value", argument(UP), -1, "batch"),
    "zero3": lambda s: Decision("zero3", 0, -1, "batch"),
    "zero2": lambda s: Decision("zero2", 0, -1, "batch"),
    "given": lambda s: Decision("given", 0, -1, ""),
    "share_gathers": lambda s: Decision("share_gathers", s.facts.repeated_reads.distances[0], -1, ""),
    "shard_loops": lambda s: Decision("shard_loops", 0, -1, ""),
}
"""A decision of each registered kind that does something in the decoder's starting state."""

kinds = pytest.mark.parametrize("kind", sorted(DECISION_KINDS))


def applied(space: DecisionSpace, *decisions: Decision) -> tuple[Partitioning, list[list[Action]]]:
    partitioning = decoder_partitioning()
    return partitioning, [space.apply(partitioning, d) for d in decisions]


def dims(partitioning: Partitioning, axis: str, *names: str) -> list[int]:
    return [partitioning.tiled_dim(argument(name), axis) for name in names]


# ---- what holds for every kind


def test_every_registered_kind_has_an_example():
    assert set(EXAMPLES) == set(DECISION_KINDS)


@kinds
def test_a_decision_round_trips_through_records(kind, space):
    decision = EXAMPLES[kind](space)
    assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


@kinds
def test_its_actions_lead_to_its_state_and_undo_leads_back(kind, space):
    partitioning, decision = decoder_partitioning(), EXAMPLES[kind](space)
    before, mark = partitioning.fingerprint, partitioning.mark()
    actions = space.apply(partitioning, decision)
    replayed = decoder_partitioning()
    for action in actions:
        replayed.apply(action)
    assert replayed.fingerprint == partitioning.fingerprint != before
    partitioning.undo(mark)
    assert partitioning.fingerprint == before


@kinds
def test_a_second_time_there_is_nothing_left_to_do(kind, space):
    decision = EXAMPLES[kind](space)
    assert applied(space, decision, decision)[1][1] == []


@kinds
def test_a_partitioning_is_what_it_was_after_asking_for_options(kind, space):
    partitioning = decoder_partitioning()
    before = partitioning.fingerprint
    for option in space.kinds[kind].options(space, partitioning, AXES):
        assert option.decision.kind == kind
        assert option.prior > 0
    assert partitioning.fingerprint == before


@kinds
def test_its_text_tells_it_from_the_same_on_another_axis(kind, space):
    decision = EXAMPLES[kind](space)
    assert space.describe(decision)
    if decision.axis:
        other = Decision(decision.kind, decision.target, decision.dim, "model" if decision.axis == "batch" else "batch")
        assert space.describe(other) != space.describe(decision)


@kinds
def test_the_parts_together_are_the_whole(kind, space):
    decision = EXAMPLES[kind](space)
    parts = space.parts(decision)
    if parts:
        assert applied(space, *parts)[0].fingerprint == applied(space, decision)[0].fingerprint


@kinds
def test_its_refinements_lead_elsewhere(kind, space):
    decision = EXAMPLES[kind](space)
    itself = applied(space, decision)[0].fingerprint
    refinements = space.refinements(decision)
    assert not refinements or any(applied(space, *instead)[0].fingerprint != itself for instead in refinements)


# ---- what each kind says


def test_a_groups_decision_has_its_values_as_parts_and_these_have_none(space):
    whole = EXAMPLES["tile_group"](space)
    parts = space.parts(whole)
    assert [p.kind for p in parts] == ["value", "value"]
    assert [p.target for p in parts] == space.values(whole).tolist()
    assert space.parts(parts[0]) == []
    assert space.refinements(whole) == [(parts[1],), (parts[0],)]


def test_a_group_of_several_sizes_has_its_sizes_as_parts():
    def f(params, x):
        return sum((x[i] @ layer["w"]).sum() for i, layer in enumerate(params["layers"]))

    widths = [32, 64, 128]
    params = {"layers": [{"w": np.zeros((n, n), np.float32)} for n in widths]}
    mesh = ap.Mesh({"batch": 4, "model": 2})
    x = [np.zeros((16, n), np.float32) for n in widths]
    program = ap.jit(f, mesh).lower(params, x).traced.program
    space = DecisionSpace.of(Partitioning(program, mesh), AXES)
    group = int(space.facts.groups.of[program.arguments[0]])
    assert len(space.facts.groups.values(group)) == 3
    parts = space.parts(Decision("tile_group", group, 1, "model"))
    assert [p.kind for p in parts] == ["same_shape"] * 3
    assert [len(space.values(p)) for p in parts] == [1, 1, 1]


def test_zero3_tiles_every_large_updated_array(space):
    partitioning, _ = applied(space, EXAMPLES["zero3"](space))
    assert min(dims(partitioning, "batch", UP, DOWN, MU)) >= 0


def test_zero2_tiles_optimizer_state_and_keeps_parameters_whole(space):
    partitioning, [actions] = applied(space, EXAMPLES["zero2"](space))
    assert dims(partitioning, "batch", UP, DOWN) == [-1, -1]
    assert dims(partitioning, "batch", MU)[0] >= 0
    assert Atomic(argument(UP), "batch") in actions


@pytest.mark.parametrize("kind", ["zero2", "zero3"])
def test_zero_is_offered_per_axis_until_everything_is_decided(kind, space):
    partitioning = decoder_partitioning()
    offer = space.kinds[kind].options
    assert [o.decision.axis for o in offer(space, partitioning, AXES)] == ["batch", "model"]
    space.apply(partitioning, Decision("zero3", 0, -1, "batch"))
    assert [o.decision.axis for o in offer(space, partitioning, AXES)] == ["model"]


@pytest.mark.parametrize("kind", ["zero2", "zero3"])
def test_zero_is_refined_by_keeping_one_group_whole(kind, space):
    decision = EXAMPLES[kind](space)
    kept = {instead[0].target for instead in space.refinements(decision)}
    assert all(instead[0].kind == "keep" and instead[1:] == (decision,) for instead in space.refinements(decision))
    assert kept == set(space.facts.groups.of[space.facts.updated].tolist())


def test_keep_makes_the_undecided_values_of_a_group_atomic(space):
    decision = EXAMPLES["keep"](space)
    first, second = space.values(decision).tolist()
    assert applied(space, decision)[1] == [[Atomic(first, "batch"), Atomic(second, "batch")]]
    tiled = Decision("value", first, 1, "batch")
    assert Atomic(first, "batch") not in applied(space, tiled, decision)[1][1]


def test_given_actions_that_are_no_longer_legal_are_left_out(space):
    keep = Decision("keep", int(space.facts.groups.of[argument(UP)]), -1, "model")
    assert applied(space, keep, EXAMPLES["given"](space))[1][1] == []
    assert space.seeds == [(EXAMPLES["given"](space),)]


# ---- a kind that somebody else adds


@dataclass(frozen=True)
class EveryAxis(DecisionKind):
    """Tiles one value group on one dim along every axis, in one decision."""

    def probed(self, facts, axes):
        return [Decision("every_axis", int(facts.groups.of[facts.updated[0]]), 1, axes[0])]

    def options(self, space, partitioning, axes):
        return [Option(o.decision, 5.0) for o in space.probed_options("every_axis", partitioning, axes)]

    def values(self, facts, decision):
        return facts.groups.values(decision.target)

    def exists(self, facts, decision):
        return 0 <= decision.target < facts.groups.count and facts.has_dim(decision.dim)

    def apply(self, facts, partitioning, decision):
        names = partitioning.mesh.axis_names
        return [a for n in names for a in tile_each(partitioning, self.values(facts, decision), decision.dim, n)]

    def describe(self, facts, decision):
        return f"tile<{facts.named(self.values(facts, decision))}, {decision.dim}, every axis>"


@pytest.mark.parametrize("optimizer", ["mcts", "greedy", "annealing"])
def test_an_added_kind_is_probed_searched_described_and_recorded(tmp_path, optimizer):
    path = tmp_path / "records.jsonl"
    with DECISION_KINDS.temporarily("every_axis", EveryAxis):
        found = run(optimizer, records=path, executor=OutOfOrder())
        assert any("every axis" in text for text in found.report["decisions"])
        again = run(optimizer, records=path, resume=path)
        assert again.report["recalled"] > 1
        assert again.actions == found.actions
    with pytest.warns(UserWarning, match="of another search \\(kinds is"):
        run(optimizer, resume=path)


def test_a_decision_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="no decision kind is called 'tile_grupp'"):
        Decision.from_json(["tile_grupp", 0, 0, "batch"])
    with pytest.raises(ap.UnknownNameError, match="tile_group"):
        space_of(decoder_partitioning()).describe(Decision("tile_grupp", 0, 0, "batch"))


@pytest.mark.parametrize("row", [["zero3", 0, "0", "batch"], ["zero3", None, 0, "batch"], ["zero3", 0, 0, 1]])
def test_a_row_that_is_no_decision_is_refused(row):
    with pytest.raises(ValueError, match="is not a decision"):
        Decision.from_json(row)


def test_a_kind_is_registered_once():
    with pytest.raises(RegistryError, match='decision kind "zero3" is registered already'):
        register_decision_kind("zero3")(EveryAxis)


def test_a_kind_must_say_what_it_does():
    @dataclass(frozen=True)
    class Nothing(DecisionKind):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Nothing()
