"""Does a second cost model get the last word on what a search found, and only that?"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import warnings
from dataclasses import dataclass

import pytest

import autopart as ap
from autopart.costmodel import estimate
from autopart.search.execution.ray import Ray
from experiments.models import t32
from experiments.models.tactics import BP, MP
from tests.search.steps import MESH, lowered


@dataclass(frozen=True)
class Bytes:
    """A referee for whom a step takes as many microseconds as it needs kilobytes."""

    def __call__(self, local, mesh):
        found = estimate(local, mesh)
        return dataclasses.replace(found, step_s=1e-9 * found.peak_bytes, simulation=None)


@dataclass(frozen=True)
class Refuses:
    """One that raises over programs below or above so many bytes."""

    below: float = 0.0
    above: float = float("inf")

    def __call__(self, local, mesh):
        found = estimate(local, mesh)
        if not self.below <= found.peak_bytes <= self.above:
            raise RuntimeError(f"refused: {found.peak_bytes:.0f} bytes")
        return Bytes()(local, mesh)


class Stops:
    """One during which Ctrl-C is pressed, at its third program."""

    def __init__(self):
        self.calls = 0

    def __call__(self, local, mesh):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return Bytes()(local, mesh)


def judged(referee, finalists=3, evaluations=40, **settings) -> ap.Lowered:
    settings = {"cache": False, "progress": False} | settings
    auto = ap.AutomaticPartition(
        ("batch", "model"), budget=ap.Budget(evaluations), referee=referee, finalists=finalists, **settings
    )
    return lowered([auto])


def verdict(low: ap.Lowered):
    return low.metadata.tactics[-1].report["referee"]


@pytest.fixture(scope="module")
def by_bytes() -> ap.Lowered:
    return judged(Bytes())


def test_the_referees_best_is_the_result_with_both_figures_in_the_report(by_bytes):
    said, row = verdict(by_bytes), by_bytes.metadata.tactics[-1]
    best = min(said["finalists"], key=lambda f: f["referee"]["step_s"])
    assert said["chosen"] == best["labels"][0]
    assert row.report["decisions"] == best["decisions"]
    assert row.report["best"] == best["estimate"]
    assert (row.step_s, row.peak_bytes) == (best["estimate"]["step_s"], best["estimate"]["peak_bytes"])
    assert best["referee"]["step_s"] == pytest.approx(1e-9 * row.peak_bytes)
    assert best["estimate"]["step_s"] > min(f["estimate"]["step_s"] for f in said["finalists"])


def test_the_search_itself_goes_by_its_own_cost_model(by_bytes):
    alone = lowered([ap.AutomaticPartition(("batch", "model"), budget=ap.Budget(40), cache=False, progress=False)])
    report = alone.metadata.tactics[-1].report
    assert report["history"] == by_bytes.metadata.tactics[-1].report["history"]
    assert "referee" not in report


def test_finalists_are_distinct_and_as_many_as_asked_for(by_bytes):
    said = verdict(by_bytes)
    found = [f for f in said["finalists"] if f["labels"][0].startswith("found")]
    assert len(found) == 3
    costs = [(f["estimate"]["step_s"], f["estimate"]["peak_bytes"]) for f in found]
    assert len(set(costs)) == len(costs)


def test_named_schedules_and_the_start_are_costed_or_said_to_be_left_out(by_bytes):
    said = verdict(by_bytes)
    labels = {label for f in said["finalists"] for label in f["labels"]} | set(said["left_out"])
    assert {"start", "DP(batch)", "DP(batch)+Megatron(model)", "FSDP(batch)"} <= labels
    beside = [f for f in said["finalists"] if not f["labels"][0].startswith("found")]
    assert len(beside) == 3
    rows = {row["name"]: row["step_s"] for row in by_bytes.metadata.tactics[-1].report["baselines"]}
    worst = max(f["estimate"]["step_s"] for f in beside)
    assert all(rows[name] >= worst for name in said["left_out"] if name in rows)


@pytest.mark.slow
def test_schedules_that_were_given_are_always_costed():
    said = verdict(judged(Bytes(), finalists=1, optimizer=ap.MCTS(seeded=False), seeds=[[BP, MP], [MP]]))
    labels = [label for f in said["finalists"] for label in f["labels"]]
    assert {"given 1", "given 2"} <= set(labels)


@pytest.mark.slow
def test_a_referee_that_raises_costs_that_finalist_and_is_reported(by_bytes):
    sizes = sorted({f["estimate"]["peak_bytes"] for f in verdict(by_bytes)["finalists"]})
    with pytest.warns(ap.SearchWarning, match=r"the referee did not cost .*refused"):
        low = judged(Refuses(below=sizes[1]))
    said = verdict(low)
    refused = [f for f in said["finalists"] if f["error"]]
    assert {f["estimate"]["peak_bytes"] for f in refused} == {sizes[0]}
    assert refused[0]["referee"] is None
    assert "RuntimeError: refused" in refused[0]["error"]
    assert low.metadata.tactics[-1].report["best"]["peak_bytes"] == sizes[1]


def test_where_the_referee_costs_nothing_the_searchs_own_best_is_the_result():
    with pytest.warns(ap.SearchWarning, match="the referee did not cost"):
        low = judged(Refuses(above=0.0))
    report = low.metadata.tactics[-1].report
    assert report["referee"]["chosen"] is None
    assert report["best"]["score"] == min(f["estimate"]["score"] for f in report["referee"]["finalists"])


def test_a_referee_that_returns_no_estimate_costs_no_search():
    with pytest.warns(ap.SearchWarning, match="the cost model returned"):
        low = judged(lambda local, mesh: 3)
    assert verdict(low)["chosen"] is None


def test_ctrl_c_during_the_last_word_leaves_the_best_so_far():
    report = judged(Stops()).metadata.tactics[-1].report
    assert report["stopped"] == "interrupted"
    costed = [f for f in report["referee"]["finalists"] if f["referee"]]
    assert len(costed) == 2
    assert report["referee"]["chosen"] == min(costed, key=lambda f: f["referee"]["step_s"])["labels"][0]


def test_what_does_not_fit_by_the_referee_is_warned_of():
    @dataclass(frozen=True)
    class TooLarge:
        def __call__(self, local, mesh):
            return dataclasses.replace(estimate(local, mesh), peak_bytes=1e12, fits=False)

    with pytest.warns(ap.SearchWarning, match="nothing found fits: the least is 1 TB"):
        judged(TooLarge())


@pytest.mark.slow
@pytest.mark.parametrize("executor", [ap.Processes(2), Ray(workers=2)])
def test_executors_change_nothing_and_never_run_the_referee(by_bytes, executor):
    again = verdict(judged(Bytes(), executor=executor))
    plain = verdict(by_bytes)
    for said in (again, plain):
        for finalist in said["finalists"]:
            finalist["seconds"] = 0.0
    assert again == plain


@pytest.mark.slow
def test_a_judged_search_is_cached_by_its_referee_and_failures_are_not(tmp_path):
    first, again = (judged(Bytes(), cache=tmp_path).metadata.tactics[-1].report for _ in range(2))
    assert (first["cached"], again["cached"]) == (False, True)
    assert json.loads(json.dumps(first["referee"])) == again["referee"]
    assert not judged(Bytes(), finalists=2, cache=tmp_path).metadata.tactics[-1].report["cached"]
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ap.SearchWarning)
            assert not judged(Refuses(above=0.0), cache=tmp_path).metadata.tactics[-1].report["cached"]


def test_the_metadata_shows_both_figures_and_what_was_taken(by_bytes):
    text = str(by_bytes.metadata)
    assert "finalists costed by Bytes()" in text
    assert sum(line.endswith("  taken") for line in text.splitlines()) == 1
    assert ap.Metadata.from_json(by_bytes.metadata.to_json()).tactics[-1].report["referee"]["chosen"]


def test_progress_says_which_finalist_is_looked_at(capsys):
    judged(Bytes(), finalists=1, evaluations=4, progress=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("referee Bytes()")]
    assert lines
    assert all(" ... " in line for line in lines)
    assert lines[-1].split()[2] == f"{len(lines)}/{len(lines)}"


@pytest.mark.slow
def test_one_process_compiles_at_a_time_and_the_other_says_whom_it_waits_for(tmp_path):
    code = textwrap.dedent("""
        import sys, time
        from autopart.costmodel.xla.libtpu_turn import take_turn
        take_turn(float(sys.argv[1]))
        print("has it", flush=True)
        sys.stdin.read()
    """)

    def process(wait_s: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        return subprocess.Popen([sys.executable, "-c", code, wait_s], text=True, env=environment, **pipes)

    first = process("0")
    assert first.stdout.readline() == "has it\n"
    hasty, patient = process("0"), process("100")
    _, said = hasty.communicate(timeout=60)
    assert f"libtpu is in use by process {first.pid}" in said
    assert f"for process {first.pid}, which compiles" in patient.stderr.readline()
    first.communicate(timeout=60)
    assert patient.stdout.readline() == "has it\n"
    patient.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs pip install libtpu")
def test_the_tpu_compiler_judges_a_small_step():
    mesh = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e")
    auto = ap.AutomaticPartition(
        ("batch",), budget=ap.Budget(6), cache=False, progress=True, finalists=1, optimizer="greedy",
        referee=ap.costmodel.XlaCompile("v5e:2x4"),
    )  # fmt: skip
    said = verdict(lowered([auto], dataclasses.replace(t32.SMALL, layers=1), mesh))
    assert said["referee"] == "XlaCompile(topology='v5e:2x4')"
    assert not [f["error"] for f in said["finalists"] if f["error"]]
    assert all(f["referee"]["peak_bytes"] > 0 for f in said["finalists"])


def test_a_machine_without_a_gpu_is_told_so():
    with pytest.raises(ap.CallError, match="no GPU to compile for"):
        ap.costmodel.XlaCompile("gpu")(lowered([BP], t32.SMALL, MESH).program, MESH)
