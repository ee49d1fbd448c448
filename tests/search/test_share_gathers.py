"""Is sharing gathers a decision like any other: undone, costed, found, cached, replayed and written as code?"""

from __future__ import annotations

import json

import pytest

import autopart as ap
from autopart.core.table.actions import ShareGathers
from autopart.core.table.partitioning import Partitioning
from autopart.search.search import Search, search
from autopart.search.space import Decision, DecisionSpace
from experiments.models import t32
from experiments.models.tactics import BP, Z3
from tests.search.steps import MEGATRON, MESH, decoder, decoder_partitioning, lowered

FAR = 10**6
"""Further than any two ops are apart."""


def offered(*tactics: ap.Tactic) -> list[int]:
    partitioning = decoder_partitioning(*tactics)
    space = DecisionSpace.of(partitioning, ("batch", "model"))
    return [o.decision.target for o in space.options(partitioning) if o.decision.kind == "share_gathers"]


def gathers(*tactics: ap.Tactic, **settings) -> int:
    return lowered([*tactics], **settings).program.collectives()["all_gather"]


def greedy(**settings) -> ap.AutomaticPartition:
    settings = {"optimizer": "greedy", "budget": ap.Budget(40), "cache": False, "progress": False} | settings
    return ap.AutomaticPartition(["batch"], **settings)


@pytest.fixture(scope="module")
def found() -> ap.Lowered:
    """On a step this small latency rules, so that one gather instead of two makes it faster."""
    return lowered([BP, Z3, greedy()])


def test_it_is_part_of_the_state_and_undone_with_it():
    partitioning = decoder_partitioning(BP)
    states = [(partitioning.mark(), partitioning.fingerprint, 0)]
    for within in (10, 50):
        partitioning.share_gathers(within)
        states.append((partitioning.mark(), partitioning.fingerprint, within))
        partitioning.tile(decoder().arguments[within], 0, "model")
    assert len({fingerprint for _, fingerprint, _ in states}) == 3
    for mark, fingerprint, within in reversed(states):
        partitioning.undo(mark)
        assert (partitioning.fingerprint, partitioning.share_within) == (fingerprint, within)


def test_the_largest_distance_counts_and_the_way_to_it_does_not():
    one, other = Partitioning(decoder(), MESH), Partitioning(decoder(), MESH)
    for within in (10, 50, 20):
        one.apply(ShareGathers(within))
    other.apply(ShareGathers(50))
    assert one.share_within == other.share_within == 50
    assert one.fingerprint == other.fingerprint


def test_a_negative_distance_names_the_tactic():
    with pytest.raises(ap.ArgumentError, match="SharedGathers: within is -1"):
        ap.SharedGathers(-1)


def test_the_tactic_lowers_as_the_option_does():
    options = ap.LoweringOptions(share_within=FAR)
    step = ap.jit(t32.step(t32.SMALL), MESH, [BP, Z3], donate_argnums=(0, 1), options=options)
    optional = step.lower(*t32.abstract_args(t32.SMALL))
    apart, shared = lowered([BP, Z3]), lowered([BP, Z3, ap.SharedGathers(FAR)])
    assert shared.program.collectives() == optional.program.collectives()
    assert shared.estimate == optional.estimate
    assert shared.program.collectives()["all_gather"] < apart.program.collectives()["all_gather"]
    assert shared.metadata.tactics[-1].actions == (f"share_gathers<{FAR}>",)
    assert shared.metadata.tactics[-1].step_s < apart.metadata.tactics[-1].step_s


def test_it_is_offered_where_an_array_is_gathered_twice():
    assert offered() == []
    assert offered(MEGATRON) == []
    distances = offered(BP, Z3)
    assert distances == sorted(distances, reverse=True)
    assert offered(BP, Z3, ap.SharedGathers(max(distances))) == []
    nearest = min(distances)
    assert offered(BP, Z3, ap.SharedGathers(nearest)) == [d for d in distances if d != nearest]


def test_each_offered_distance_spares_gathers():
    counts = [gathers(BP, Z3)]
    counts += [gathers(BP, Z3, ap.SharedGathers(within)) for within in sorted(offered(BP, Z3))]
    assert counts == sorted(set(counts), reverse=True)


def test_refinement_tries_the_other_distances():
    space = DecisionSpace.of(decoder_partitioning(), ("batch",))
    distances = space.facts.repeated_reads.distances
    instead = space.refinements(Decision("share_gathers", distances[0], -1, ""))
    assert [d.target for (d,) in instead] == distances[1:]


def test_a_search_takes_it_where_it_pays(found):
    row = found.metadata.tactics[-1]
    assert any(action.startswith("share_gathers<") for action in row.actions)
    assert any(text.startswith("share_gathers<") for text in row.report["decisions"])
    assert row.report["best"]["step_s"] == row.step_s < found.metadata.tactics[-2].step_s


def test_the_found_schedule_as_code_shares_too(found):
    code = found.metadata.as_schedule()
    assert "ap.SharedGathers(within=" in code
    space = {"ap": ap}
    exec(code, space)
    again = lowered(space["schedule"]).metadata.tactics[-1]
    row = found.metadata.tactics[-1]
    assert (again.step_s, again.collectives) == (row.step_s, row.collectives)


def test_records_cache_replay_and_seeds_hold_it(found, tmp_path):
    partitioning = decoder_partitioning(BP, Z3)
    wanted = Search(("batch",), "greedy", ap.Budget(40), cache=tmp_path / "cache", records=tmp_path / "records.jsonl")
    first, second = search(partitioning, wanted), search(partitioning, wanted)
    assert second.report["cached"]
    assert second.actions == first.actions
    assert any(isinstance(action, ShareGathers) for action in first.actions)
    rows = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert any(decision[:1] == ["share_gathers"] for row in rows[1:] for decision in row["job"][0])
    assert lowered([BP, Z3, ap.Replay(first.actions)]).program.collectives() == found.program.collectives()
    seeded = greedy(optimizer="mcts", budget=ap.Budget(1), seeds=[[ap.SharedGathers(FAR)]])
    assert lowered([BP, Z3, seeded]).metadata.tactics[-1].actions == (f"share_gathers<{FAR}>",)
