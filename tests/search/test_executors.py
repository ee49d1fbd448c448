"""Is the answer the same on any number of workers, and does a worker's death lose nothing?"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from dataclasses import dataclass

import pytest

from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget
from autopart.search.contract import MESH, run, two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import Job
from autopart.search.execution.executor import Lost, Serial, Waiting, WorkerError, begun
from autopart.search.execution.job_queue import Done, JobQueue, Throughput
from autopart.search.execution.processes import Processes
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions

BUDGET = Budget(80)


@pytest.fixture(scope="module")
def task() -> SearchTask:
    partitioning = Partitioning(two_matrices(), MESH)
    space = DecisionSpace.of(partitioning, ("a", "b"))
    return SearchTask(partitioning, space, LoweringOptions(), None, StepSeconds())


@pytest.fixture
def ray():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = pytest.importorskip("ray")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield ray
        ray.shutdown()


def results(session, jobs):
    found = dict(session.run(jobs, float("inf")))
    return [found[i] for i in range(len(jobs))]


def test_two_processes_find_what_one_finds():
    assert run("mcts", BUDGET, executor=Processes(2)).actions == run("mcts", BUDGET).actions


@pytest.mark.slow
def test_another_process_finds_the_same_one_by_one():
    assert run("mcts", BUDGET, executor=Processes(1)).report["history"] == run("mcts", BUDGET).report["history"]


def test_processes_that_begin_before_the_task_is_made_are_ended_where_it_cannot_be_made():
    waiting = Processes(1).begin()
    with pytest.raises(ArithmeticError), begun(_Begun(waiting)):
        raise ArithmeticError
    handle = waiting._places[0].handle
    assert not handle._thread.is_alive()
    assert handle.pid == 0 or handle._process.exitcode is not None


@dataclass(frozen=True)
class _Begun:
    """An executor whose workers have begun already."""

    waiting: Waiting

    def begin(self) -> Waiting:
        return self.waiting


def jobs_for(task: SearchTask, count: int = 200) -> list[Job]:
    return [Job((), rollout=4, seed=s) for s in range(count)]


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_nothing_is_lost(task):
    jobs = jobs_for(task)
    expected = results(Serial().start(task), jobs)
    session = Processes(2).start(task)
    try:
        assert results(session, jobs[:4]) == expected[:4]
        before = session.pids
        threading.Timer(0.05, os.kill, (before[0], signal.SIGKILL)).start()
        assert results(session, jobs) == expected
        time.sleep(0.1)
        assert results(session, jobs[:4]) == expected[:4]
        assert session.pids[0] != before[0]
        assert session.pids[1] == before[1]
    finally:
        session.close()


@pytest.mark.slow
def test_ray_finds_what_one_process_finds_and_survives_a_death(ray, task):
    from autopart.search.execution.ray import Ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run("mcts", BUDGET, executor=Ray(2)).actions == run("mcts", BUDGET).actions
        jobs = jobs_for(task, 60)
        expected = results(Serial().start(task), jobs)
        session = Ray(2).start(task)
        try:
            before = session.pids
            threading.Timer(0.02, os.kill, (before[0], signal.SIGKILL)).start()
            assert results(session, jobs) == expected
            time.sleep(0.1)
            assert results(session, jobs) == expected
            assert session.pids[0] != before[0]
        finally:
            session.close()


@pytest.mark.slow
def test_a_deadline_leaves_out_the_jobs_that_were_not_begun(task):
    for executor in (Serial(), Processes(1)):
        session = executor.start(task)
        try:
            assert dict(session.run(jobs_for(task, 5), time.monotonic() - 1)) == {}
        finally:
            session.close()


def test_an_error_in_a_worker_reaches_the_driver(task):
    from autopart.search.space.decisions import Decision

    session = Processes(1).start(task)
    try:
        with pytest.raises(IndexError):
            results(session, [Job((Decision("given", 7, -1, ""),))])
    finally:
        session.close()


@dataclass(frozen=True)
class _Deadly:
    """A task whose job 2 always kills its worker."""

    def pickled(self, dumps) -> bytes:
        return dumps(self)

    def worker(self):
        return self

    def run(self, job: int) -> int:
        if job == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return job


@pytest.mark.slow
def test_a_job_that_keeps_killing_workers_is_lost_and_the_others_are_done():
    session = Processes(2).start(_Deadly())
    try:
        assert results(session, [0, 1, 3, 4]) == [0, 1, 3, 4]
        found = results(session, [*range(12)])
        assert isinstance(found[2], Lost)
        assert "2 workers died over the job 2: the process was killed (SIGKILL)" in found[2].why
        assert found[:2] + found[3:] == [0, 1, *range(3, 12)]
    finally:
        session.close()


@pytest.mark.slow
def test_workers_that_die_over_every_job_end_the_search():
    session = Processes(1).start(_Deadly())
    try:
        with pytest.raises(WorkerError, match="workers died over 3 jobs in a row"):
            results(session, [2, 2, 2, 2])
    finally:
        session.close()


def test_chunks_shrink_towards_the_end_of_a_wave_and_with_the_length_of_jobs():
    def sizes(pace):
        waiting = JobQueue([None] * 16, 2, pace, float("inf"))
        return [len(chunk) for chunk in iter(waiting.chunk, range(16, 16))]

    pace = Throughput()
    assert sizes(pace) == [1] * 16
    pace.note(Done((0,) * 10, None, 0.1))
    assert sizes(pace) == [4, 3, 3, 2, 1, 1, 1, 1]
    pace.note(Done((0,), None, 100.0))
    assert sizes(pace) == [1] * 16


@dataclass(frozen=True)
class _Told:
    """A task whose jobs take 50 ms and answer with what the worker was told so far; its workers remember it."""

    def pickled(self, dumps) -> bytes:
        return dumps(self)

    def worker(self) -> _Listener:
        return _Listener()


class _Listener:
    def __init__(self) -> None:
        self._heard: list[int] = []

    def run(self, job: int) -> tuple[int, int, tuple[int, ...]]:
        time.sleep(0.05)
        return job, os.getpid(), tuple(self._heard)

    def learn(self, result: tuple[int, int, tuple[int, ...]]) -> None:
        self._heard.append(result[0])


@pytest.mark.slow
def test_workers_are_told_once_what_the_others_found_where_jobs_are_long():
    session = Processes(2).start(_Told())
    try:
        assert len(session.pids) == 2
        first, second = results(session, [*range(12)]), results(session, [*range(12, 24)])
        for job, pid, heard in second:
            others = [j for j, p, _ in first + second if p != pid and j < job]
            assert len(set(heard)) == len(heard)
            assert {j for j in others if j < 12} <= set(heard)
            assert not {j for j, p, _ in first if p == pid} & set(heard)
    finally:
        session.close()


def test_what_an_evaluator_is_told_it_does_not_cost_again_and_answers_the_same(task, monkeypatch):
    jobs = jobs_for(task, 20)
    found = [task.worker().run(job) for job in jobs]
    told = task.worker()
    for result in found:
        told.learn(result)
    told.learn(3.5)
    monkeypatch.setattr(type(told), "_costed", None)
    assert [told.run(job) for job in jobs] == found
