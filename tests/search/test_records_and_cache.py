"""Can a search be recorded, resumed and recalled, and are files of something else reported and ignored?"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import autopart
from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget
from autopart.search.contract import MESH, run, two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.search import Search, search
from autopart.search.storage import cache
from autopart.search.storage.records import RecordWarning
from autopart.search.storage.sealed_json import seal


def cached(directory, **settings):
    wanted = Search(("a", "b"), **{"budget": Budget(60), "cache": directory} | settings)
    return search(Partitioning(two_matrices(), MESH), wanted)


def test_every_evaluation_is_recorded_with_its_cost(tmp_path):
    path = tmp_path / "records.jsonl"
    found = run("mcts", records=path)
    header, *rows = map(json.loads, path.read_text().splitlines())
    assert header["device"] == "tpu_v3"
    assert header["mesh"] == {"a": 4, "b": 2}
    assert sum(len(row["states"]) for row in rows) == found.report["evaluations"]
    assert min(s["cost"][4] for row in rows for s in row["states"]) == found.report["best"]["score"]


def test_a_resumed_search_costs_only_what_is_new(tmp_path):
    path = tmp_path / "records.jsonl"
    run("mcts", Budget(50), records=path)
    resumed = run("mcts", Budget(120), resume=path, records=path)
    assert resumed.report["recalled"] > 10
    assert resumed.actions == run("mcts", Budget(120)).actions
    again = run("mcts", Budget(120), resume=path)
    assert again.report["recalled"] >= resumed.report["recalled"]


def test_unreadable_lines_are_reported_and_ignored(tmp_path):
    path = tmp_path / "records.jsonl"
    run("greedy", records=path)
    lines = path.read_text().splitlines()
    lines[3] = lines[3][: len(lines[3]) // 2]
    path.write_text("\n".join(lines))
    with pytest.warns(RecordWarning, match=r"1 lines cannot be read and are ignored, the first is line 4"):
        assert run("greedy", resume=path).actions == run("greedy").actions


@pytest.mark.parametrize("text", ["", "not json\n", '{"hello": 1}\n', "\x00\x01\n"])
def test_a_file_of_something_else_is_reported_and_ignored(tmp_path, text):
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    with pytest.warns(RecordWarning, match="its first line is not a header"):
        assert run("greedy", resume=path).report["recalled"] == 0


def test_records_of_another_search_are_reported_and_ignored(tmp_path):
    path = tmp_path / "records.jsonl"
    run("greedy", records=path, objective=StepSeconds(penalty=3))
    with pytest.warns(RecordWarning, match=r"of another search \(objective is"):
        assert run("greedy", resume=path).report["recalled"] == 0


def test_a_missing_file_to_resume_is_a_beginning_and_said_unless_the_search_writes_it(tmp_path):
    path = tmp_path / "none.jsonl"
    with pytest.warns(RecordWarning, match="nothing to resume"):
        assert run("greedy", resume=path).report["recalled"] == 0
    assert run("greedy", records=path, resume=path).report["recalled"] == 0


def test_a_second_call_is_instant_and_equal(tmp_path):
    first = cached(tmp_path)
    start = time.perf_counter()
    second = cached(tmp_path)
    assert time.perf_counter() - start < 0.2
    assert second.actions == first.actions
    assert second.report["cached"]
    assert not first.report["cached"]


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"budget": Budget(61)}, {"optimizer": "beam"}, {"objective": StepSeconds(penalty=1)}],
    ids=str,
)
def test_another_question_is_not_answered_from_the_cache(tmp_path, change):
    cached(tmp_path)
    assert not cached(tmp_path, **change).report["cached"]


def test_a_damaged_result_is_reported_and_searched_again(tmp_path):
    first = cached(tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text()[:-40])
    with pytest.warns(RecordWarning, match="is ignored"):
        assert cached(tmp_path).actions == first.actions


def test_a_result_under_a_wrong_name_is_reported_and_ignored(tmp_path):
    cached(tmp_path)
    (path,) = tmp_path.glob("*.json")
    data = json.loads(path.read_text())
    data["key"]["program"] = "another"
    del data["digest"]
    path.write_bytes(seal(data))
    with pytest.warns(RecordWarning, match="of another search"):
        assert not cached(tmp_path).report["cached"]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path):
    occupied = tmp_path / "file"
    occupied.write_text("")
    with pytest.warns(RecordWarning, match="is not cached"):
        cached(occupied)


@dataclass(frozen=True)
class Doubled:
    def __call__(self, cost):
        return 2 * cost.step_s


def test_a_function_that_prices_is_not_cached_and_a_value_is(tmp_path):
    cached(tmp_path, objective=lambda cost: cost.step_s)
    assert not list(tmp_path.glob("*.json"))
    cached(tmp_path, objective=Doubled())
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_search_cut_short_by_seconds_is_not_cached(tmp_path):
    cached(tmp_path, budget=Budget(seconds=0.05))
    assert not list(tmp_path.glob("*.json"))


def test_the_key_holds_the_source_of_the_whole_package(monkeypatch):
    """An edit of any file of the package asks another question, and nothing else does."""
    package = Path(autopart.__file__).parent
    changed = {}
    for path in sorted(package.rglob("*.py")):
        if path.name != "__init__.py":
            changed.setdefault(path.parent, path)
    assert {package / part for part in ("core", "spmd", "costmodel", "search", "api")} <= set(changed)
    cache.source_hash.cache_clear()
    first, read = cache.source_hash(), Path.read_bytes
    for edited in changed.values():
        monkeypatch.setattr(Path, "read_bytes", lambda self, edited=edited: read(self) + b"#" * (self == edited))
        cache.source_hash.cache_clear()
        assert cache.source_hash() != first, edited
    monkeypatch.undo()
    cache.source_hash.cache_clear()
    assert cache.source_hash() == first


def test_the_source_is_part_of_the_question(tmp_path, monkeypatch):
    cached(tmp_path)
    assert cached(tmp_path).report["cached"]
    monkeypatch.setattr(cache, "source_hash", lambda: "of another version")
    assert not cached(tmp_path).report["cached"]
