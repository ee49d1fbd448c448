"""Is a cache or records file that was altered, damaged or filled up reported and ignored, never obeyed?"""

from __future__ import annotations

import json
import multiprocessing
import warnings

import numpy as np
import pytest

from autopart.base.errors import TileError
from autopart.core.mesh import Mesh
from autopart.core.table.actions import Atomic, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget
from autopart.search.contract import MESH, run, two_matrices
from autopart.search.evaluation.jobs import Job
from autopart.search.search import Search, search
from autopart.search.storage import cache
from autopart.search.storage.records import Recorder, RecordWarning, read_records
from autopart.search.storage.sealed_json import digest_of, seal, unseal
from tests.errors.damage import damaged
from tests.prompt import slow

BUDGET = Budget(30)
DEEP = b"[" * 100_000
NAN = float("nan")


def cached(directory):
    wanted = Search(("a", "b"), optimizer="greedy", budget=BUDGET, cache=directory)
    return search(Partitioning(two_matrices(), MESH), wanted)


def cache_file(directory):
    (path,) = directory.glob("*.json")
    return path


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A cache file and a records file of one search, and what it found."""
    directory = tmp_path_factory.mktemp("known")
    found = cached(directory)
    records = directory / "records.jsonl"
    run("greedy", BUDGET, records=records)
    return cache_file(directory).read_bytes(), records.read_bytes(), found


def reloaded(tmp_path, data: bytes):
    """What a search returns whose cache file has this content; and what it warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        cached(tmp_path)
    cache_file(tmp_path).write_bytes(data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return cached(tmp_path), [str(w.message) for w in caught]


ACTIONS = {
    "value 10^9": ["tile", 10**9, 0, "a"],
    "value -5": ["tile", -5, 0, "a"],
    "value 10^30": ["tile", 10**30, 0, "a"],
    "value true": ["tile", True, 0, "a"],
    "dim 10^9": ["tile", 0, 10**9, "a"],
    "dim -1": ["tile", 0, -1, "a"],
    "atomic 10^9": ["atomic", 10**9, "a"],
    "atomic -1": ["atomic", -1, "a"],
    "axis": ["tile", 0, 0, "nowhere"],
    "propagate": ["propagate", "nowhere"],
    "word": "tile",
    "empty": [],
    "null": None,
}


@pytest.mark.parametrize("row", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("sealed", [True, slow(False)])
def test_an_action_that_cannot_be_is_reported_and_searched_again(tmp_path, known, row, sealed):
    data = json.loads(known[0])
    data["actions"] = [row]
    if sealed:
        data.pop("digest")
        data = json.loads(seal(data))
    found, told = reloaded(tmp_path, json.dumps(data).encode())
    assert found.actions == known[2].actions
    assert not found.report["cached"]
    assert len(told) == 1
    assert "is ignored" in told[0]
    assert "\n" not in told[0]


REPORTS = {
    "empty": {},
    "NaN": {"best": {"step_s": NAN, "peak_bytes": 1.0, "score": NAN, "fits": True, "actions": 0}},
    "no cost": {"best": 3},
    "word": {"best": {"step_s": "fast", "peak_bytes": 1.0, "score": 1.0, "fits": True}},
    "does not fit": {"best": {"step_s": 1.0, "peak_bytes": 1.0, "score": 1.0, "fits": False}},
}


@pytest.mark.parametrize("change", REPORTS.values(), ids=REPORTS)
def test_a_report_that_cannot_be_is_reported_and_searched_again(tmp_path, known, change):
    data = json.loads(known[0])
    data.pop("digest")
    data["report"] = {**data["report"], **change} if change else {}
    found, told = reloaded(tmp_path, seal(data))
    assert not found.report["cached"]
    assert len(told) == 1


@pytest.mark.parametrize("data", [DEEP, b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"digest": []}', b'{"a": ' * 9999])
def test_a_cache_file_of_something_else_is_reported(tmp_path, known, data):
    found, told = reloaded(tmp_path, data)
    assert found.actions == known[2].actions
    assert len(told) == 1


def test_emptied_actions_without_a_new_digest_are_not_obeyed(tmp_path, known):
    data = json.loads(known[0])
    data["actions"] = []
    found, told = reloaded(tmp_path, json.dumps(data).encode())
    assert found.actions == known[2].actions
    assert "digest" in told[0]


def test_a_file_of_an_older_version_says_so(tmp_path, known):
    data = json.loads(known[0])
    data.pop("digest")
    assert "has no digest" in reloaded(tmp_path, json.dumps(data).encode())[1][0]
    path = tmp_path / "old.jsonl"
    rows = [json.loads(line) for line in known[1].splitlines()]
    path.write_text("\n".join(json.dumps({k: v for k, v in row.items() if k != "digest"}) for row in rows))
    with pytest.warns(RecordWarning, match="has no digest"):
        assert run("greedy", BUDGET, resume=path).report["recalled"] == 0


def resumed(path, data: bytes):
    path.write_bytes(data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return run("greedy", BUDGET, resume=path), [str(w.message) for w in caught]


STATES = {
    "none": lambda s: [],
    "twice": lambda s: [s[0], s[0], *s[1:]],
    "NaN": lambda s: [{**s[0], "cost": [NAN, NAN, 0, 0, NAN]}, *s[1:]],
    "-inf": lambda s: [{**s[0], "cost": [1.0, 1.0, 0, 0, NAN]}, *s[1:]],
    "negative": lambda s: [{**s[0], "cost": [-1.0, 1.0, 0, 0, -1.0]}, *s[1:]],
    "decision": lambda s: [{**s[0], "options": [[["role", 10**9, 0, "a"], 1.0]]}, *s[1:]],
    "given": lambda s: [{**s[0], "options": [[["given", 10**9, 0, "a"], 1.0]]}, *s[1:]],
    "value": lambda s: [{**s[0], "options": [[["value", -3, 0, "a"], 1.0]]}, *s[1:]],
    "dim": lambda s: [{**s[0], "options": [[["role", 0, 99, "a"], 1.0]]}, *s[1:]],
    "axis": lambda s: [{**s[0], "options": [[["role", 0, 0, "c"], 1.0]]}, *s[1:]],
    "prior": lambda s: [{**s[0], "options": [[["role", 0, 0, "a"], NAN]]}, *s[1:]],
    "key": lambda s: [{**s[0], "key": -1}, *s[1:]],
    "other decisions": lambda s: [{**s[0], "decisions": [["stored", 0, -1, "a"]] * 3}, *s[1:]],
    "infinite key": lambda s: [{**s[0], "key": float("inf")}, *s[1:]],
    "empty": lambda s: [{}],
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
@pytest.mark.parametrize("sealed", [True, slow(False)])
def test_states_that_cannot_be_are_reported_and_costed_again(tmp_path, known, change, sealed):
    header, *lines = known[1].splitlines()
    of = unseal(header)
    rows = []
    for line in lines:
        row = unseal(line, digest_of(of))
        row["states"] = change(row["states"])
        rows.append(seal(row, digest_of(of)) if sealed else json.dumps({**row, "digest": "0" * 32}).encode())
    found, told = resumed(tmp_path / "r.jsonl", b"\n".join([header, *rows]))
    assert found.actions == known[2].actions
    assert found.report["recalled"] == 0
    assert len(told) == 1
    assert "\n" not in told[0]


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("line", [DEEP, b"\xff", b"[]", b'{"job": 1e999}'], ids=["deep", "bytes", "list", "infinite"])
def test_a_line_of_something_else_is_reported(tmp_path, known, place, line):
    lines = known[1].splitlines()
    lines[place] = line
    found, told = resumed(tmp_path / "r.jsonl", b"\n".join(lines))
    assert found.actions == known[2].actions
    assert len(told) == 1


def test_a_line_of_another_search_is_not_believed(tmp_path, known):
    header, line = known[1].splitlines()[:2]
    row = unseal(line, digest_of(unseal(header)))
    foreign = seal(row, digest_of({**unseal(header), "objective": "another"}))
    found, told = resumed(tmp_path / "r.jsonl", b"\n".join([header, foreign]))
    assert found.report["recalled"] == 0
    assert "altered" in told[0]


@pytest.mark.parametrize("which", ["full", "directory", "below a file", "null byte"])
def test_records_that_cannot_be_written_are_reported_once_and_the_search_goes_on(tmp_path, known, which):
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "r"
    path = {"full": "/dev/full", "directory": tmp_path, "below a file": below, "null byte": "\0"}[which]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run("greedy", BUDGET, records=path)
    assert found.actions == known[2].actions
    assert [w.category for w in caught] == [RecordWarning]


def test_records_that_cannot_be_read_are_reported(tmp_path):
    with pytest.warns(RecordWarning, match="is ignored"):
        assert run("greedy", BUDGET, resume=tmp_path).report["recalled"] == 0


def _write_records(path, start, count):
    header, state = {"program": "p"}, run("greedy", Budget(1)).best
    recorder = Recorder(path, header)
    for seed in range(start, start + count):
        recorder(Job((), seed=seed), (state,) * 40)
    recorder.close()


def _write_cache(directory, which, count):
    for _ in range(count):
        cache.save(directory, {"program": "p"}, [Tile(which, 0, "a")] * 300, {"which": which})


def in_two_processes(target, *arguments):
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=target, args=a) for a in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0


@pytest.mark.slow
def test_two_writers_of_one_records_file_tear_no_line(tmp_path):
    path = tmp_path / "r.jsonl"
    in_two_processes(_write_records, (path, 0, 100), (path, 1000, 100))
    assert len(read_records(path, {"program": "p"})) == 200


@pytest.mark.slow
def test_two_writers_of_one_cache_file_leave_one_whole(tmp_path):
    in_two_processes(_write_cache, (tmp_path, 1, 100), (tmp_path, 2, 100))
    actions, report = cache.load(tmp_path, {"program": "p"})
    assert actions == [Tile(report["which"], 0, "a")] * 300
    assert [p.suffix for p in tmp_path.iterdir()] == [".json"]


def test_a_torn_last_line_spoils_only_itself(tmp_path, known):
    path, lines = tmp_path / "r.jsonl", known[1].splitlines(keepends=True)
    header = unseal(lines[0])
    path.write_bytes(b"".join(lines[:-1]))
    before = len(read_records(path, header))
    path.write_bytes(known[1][:-20])
    recorder = Recorder(path, header)
    recorder(Job((), seed=5), (run("greedy", Budget(1)).best,))
    recorder.close()
    with pytest.warns(RecordWarning, match="1 lines cannot be read"):
        assert len(read_records(path, header)) == before + 1


@pytest.mark.parametrize("seed", range(2))
def test_damaged_records_change_no_result(tmp_path, known, seed):
    for data in damaged(known[1], 8, seed):
        found, told = resumed(tmp_path / "r.jsonl", data)
        assert found.actions == known[2].actions
        assert len(told) <= 2


def test_damaged_cache_files_change_no_result(tmp_path, known):
    key = json.loads(known[0])["key"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        for data in damaged(known[0], 500, seed=1):
            cache._path(tmp_path, key).write_bytes(data)
            found = cache.load(tmp_path, key)
            assert found is None or tuple(found[0]) == known[2].actions


@pytest.mark.parametrize("value", [10**9, -1, 10**30, 2**31, 1.0, "0", None])
def test_a_value_that_is_none_is_a_tile_error(value):
    partitioning = Partitioning(two_matrices(), Mesh({"a": 4}))
    calls = [
        lambda: partitioning.tile(value, 0, "a"),
        lambda: partitioning.atomic(value, "a"),
        lambda: partitioning.tiled_dim(value, "a"),
        lambda: partitioning.why_not_tile(value, 0, "a"),
        lambda: partitioning.apply(Tile(value, 0, "a")),
        lambda: partitioning.apply(Atomic(value, "a")),
    ]
    for call in calls:
        with pytest.raises(TileError, match="the program has no value"):
            call()


def test_many_values_of_which_one_is_none_are_a_tile_error():
    partitioning = Partitioning(two_matrices(), Mesh({"a": 4}))
    with pytest.raises(TileError, match="the program has no value"):
        partitioning.tile_in_turn(np.array([0, 10**9], np.int32), np.array([0, 0], np.int32), "a")
    assert partitioning.tile_in_turn(np.array([], np.int32), np.array([], np.int32), "a") == []


@pytest.mark.parametrize("dim", [2, -1, 10**30, 0.5, "0", True])
def test_a_dim_that_is_none_is_a_tile_error(dim):
    with pytest.raises(TileError):
        Partitioning(two_matrices(), Mesh({"a": 4})).tile(0, dim, "a")
