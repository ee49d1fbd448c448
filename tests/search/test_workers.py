"""Are workers asked for, started and given up as they should be?"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import autopart as ap
from autopart.search.budget import Budget
from autopart.search.contract import run
from autopart.search.evaluation.jobs import Job, states_of_lost
from autopart.search.execution.executor import Lost, Serial, WorkerError
from autopart.search.execution.processes import Processes
from autopart.search.interrupts import interrupts_kept
from tests.prompt import slow
from tests.search.steps import lowered

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("workers", [0, -1, -3, 2.5, True, "2"])
def test_a_number_of_workers_that_is_none_is_refused_and_the_legal_ones_named(workers):
    from autopart.search.execution.ray import Ray

    for executor in (Processes, Ray):
        with pytest.raises(WorkerError, match="an integer from 1 to 4096, or None") as caught:
            executor(workers=workers)
        assert f"{executor.__name__}: workers is {workers!r}" in str(caught.value)


@dataclass(frozen=True)
class Hungry:
    """A task whose job 2 needs more memory than there is, each time or the first time only; job -1 asks who works."""

    folder: str
    always: bool

    def pickled(self, dumps) -> bytes:
        return dumps(self)

    def worker(self):
        return self

    def run(self, job: int) -> int:
        if job == 2 and (self.always or not self._has_been_here()):
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, hard))
            try:
                return int(np.ones(500_000_000)[0])
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        return os.getpid() if job == -1 else job

    def _has_been_here(self) -> bool:
        mark = Path(self.folder) / "was here"
        was = mark.exists()
        mark.touch()
        return was


@pytest.mark.parametrize("executor", [Serial(), slow(Processes(2))], ids=str)
def test_a_job_that_is_out_of_memory_runs_once_more_and_nothing_is_lost(executor, tmp_path):
    session = executor.start(Hungry(str(tmp_path), always=False))
    try:
        assert dict(session.run([0, 1, 2, 3], float("inf"))) == {0: 0, 1: 1, 2: 2, 3: 3}
    finally:
        session.close()


@pytest.mark.parametrize("executor", [Serial(), slow(Processes(2))], ids=str)
def test_a_job_that_is_out_of_memory_twice_is_lost_and_the_others_are_done(executor, tmp_path):
    session = executor.start(Hungry(str(tmp_path), always=True))
    try:
        found = dict(session.run([0, 1, 2, 3], float("inf")))
        assert isinstance(found[2], Lost)
        assert "MemoryError" in found[2].why
        assert {i: found[i] for i in (0, 1, 3)} == {0: 0, 1: 1, 3: 3}
    finally:
        session.close()


@dataclass(frozen=True)
class Loses:
    """This process, except that some jobs are lost."""

    most_decisions: int

    def start(self, task):
        return _LosesSession(Serial().start(task), self.most_decisions)


class _LosesSession:
    def __init__(self, inner, most: int):
        self._inner, self._most = inner, most

    def run(self, jobs, deadline):
        for index, result in self._inner.run(jobs, deadline):
            yield index, Lost("for a test") if len(jobs[index].decisions) > self._most else result

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("optimizer", ["mcts", "beam", "greedy", "annealing"])
def test_a_search_goes_on_without_what_is_lost_and_reports_it(optimizer):
    found = run(optimizer, Budget(100), executor=Loses(1))
    assert found.report["lost"]
    assert {row["why"] for row in found.report["lost"]} == {"for a test"}
    assert found.report["best"]["score"] < found.report["start"]["score"]


def test_a_start_that_is_lost_ends_the_search():
    with pytest.raises(WorkerError, match="the starting state cannot be costed"):
        run("greedy", executor=Loses(-1))


def test_what_stands_for_a_lost_job_is_as_long_as_its_result():
    from autopart.search.space.decisions import Decision

    decisions = tuple(Decision("role", i, 0, "a") for i in range(3))
    assert [s.decisions for s in states_of_lost(Job(decisions, each=True))] == [decisions[:1], decisions[:2], decisions]
    assert [s.decisions for s in states_of_lost(Job(decisions, rollout=4))] == [decisions]
    assert len({s.key for s in states_of_lost(Job(decisions, each=True))}) == 3


def test_lost_jobs_are_told_to_the_user():
    auto = ap.AutomaticPartition(["batch", "model"], budget=Budget(40), cache=False, executor=Loses(1))
    with pytest.warns(ap.SearchWarning, match="a job was given up and the search went on: for a test"):
        lowered([auto])


@dataclass(frozen=True)
class Late:
    """An executor whose workers take longer to start than there is time, or than a wave has."""

    start_s: float = 0.0
    wave_s: float = 0.0

    def start(self, task):
        time.sleep(self.start_s)
        return _LateSession(Serial().start(task), self.wave_s)


class _LateSession:
    def __init__(self, inner, wave_s: float):
        self._inner, self._wave_s = inner, wave_s

    def run(self, jobs, deadline):
        if deadline < float("inf"):
            time.sleep(self._wave_s)
        return self._inner.run(jobs, deadline)

    def close(self) -> None:
        self._inner.close()


def test_starting_up_is_no_part_of_the_seconds():
    report = run("random", Budget(None, 1.0), executor=Late(start_s=1.5)).report
    assert report["evaluations"] > 0
    assert report["start_up_s"] >= 1.5
    assert "nothing_tried" not in report


def test_seconds_in_which_nothing_is_tried_are_told_to_the_user():
    late = Late(wave_s=0.3)
    auto = ap.AutomaticPartition(["batch"], budget=Budget(None, 0.1), cache=False, executor=late, baselines=False)
    with pytest.warns(ap.SearchWarning, match="nothing was tried in 0.3 s"):
        lowered([auto])
    assert "nothing_tried" not in run("random", Budget(None, 0.0)).report
    assert "nothing_tried" not in run("random", Budget(0)).report


def test_searches_in_threads_find_what_they_find_alone():
    seeds = [0, 1, 2, 3]
    alone = [run("mcts", Budget(60), seed=s).actions for s in seeds]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda s: run("mcts", Budget(60), seed=s).actions, seeds)) == alone


@pytest.mark.slow
def test_processes_start_from_threads_of_a_process_that_has_run_jax():
    import jax.numpy as jnp

    assert float(jnp.ones(8).sum()) == 8
    expected = run("mcts", Budget(60)).actions
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda _: run("mcts", Budget(60), executor=Processes(1)).actions, range(2))
        assert list(found) == [expected] * 2


UNGUARDED = """
from autopart.search.budget import Budget
from autopart.search.contract import run
from autopart.search.execution.processes import Processes
print(run("mcts", Budget(40), executor=Processes(2)).report["evaluations"])
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_what_is_missing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=300)
    assert ended.returncode == 1
    assert "WorkerError: workers die before they are ready" in ended.stderr
    assert 'if __name__ == "__main__":' in ended.stderr
    assert ended.stderr.count("Traceback") == 1, ended.stderr


@pytest.fixture
def hears_ctrl_c():
    """A shell that starts the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_is_kept_once_while_a_result_is_put_together():
    with interrupts_kept() as kept:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    assert kept.count == 1
    with pytest.raises(KeyboardInterrupt):
        _press_twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _press_twice() -> None:
    with interrupts_kept():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)


def test_ctrl_c_in_a_sweep_ends_the_sweep():
    from autopart.search.mesh_search import search_meshes

    class Session:
        def run(self, jobs, deadline):
            found = run("greedy", Budget(5))
            found.report["stopped"] = "interrupted"
            yield 0, found

    with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
        search_meshes(Session(), 3, Budget(20))
