"""Jobs on Ray: on this machine, or on a cluster that runs already.

ray.put(task) once  ->  one actor per worker, each builds its worker from it; what a script defines goes along
some jobs -> an idle actor -> results;  an actor that dies is replaced and its jobs done again
"""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from autopart.core.arguments import NONE, TEXT, check_fields, whole
from autopart.search.execution.executor import Task
from autopart.search.execution.job_queue import Done, JobQueue, Throughput, run_chunk

IN_FLIGHT = 2
"""Chunks that an actor has at a time, so that the next is there when one is done."""


@dataclass(frozen=True)
class Ray:
    """Ray actors.

    workers   how many; None: one per CPU that Ray has
    address   of a running cluster ("auto", "ray://host:10001"); None: Ray is started here, unless it runs already
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, workers=whole(1, 4096) | NONE, address=TEXT | NONE)

    def start(self, task: Task) -> RaySession:
        """See `Executor`."""
        if not ray.is_initialized():
            ray.init(address=self.address, include_dashboard=False, log_to_driver=False, num_cpus=self._cpus)
        count = self.workers or int(ray.cluster_resources().get("CPU", 1))
        return RaySession(task.pickled(ray.cloudpickle.dumps), max(1, count))  # pyright: ignore

    @property
    def _cpus(self) -> int | None:
        """A local Ray has as many CPUs as workers are wanted; a cluster has its own."""
        return None if self.address or self.workers is None else max(self.workers, os.cpu_count() or 1)


class _Actor:
    """What runs in a Ray worker process."""

    def __init__(self, task: bytes):
        self._worker = pickle.loads(task).worker()
        gc.freeze()

    def run(self, jobs: Sequence[Any], seconds: float) -> Done:
        return run_chunk(self._worker, jobs, seconds)

    def pid(self) -> int:
        return os.getpid()


_REMOTE_ACTOR: Any = ray.remote(num_cpus=1)(_Actor)


class RaySession:
    """Actors that hold one task."""

    def __init__(self, task: bytes, workers: int):
        self._task, self._pace = ray.put(task), Throughput()
        self._actors: list[Any] = [_REMOTE_ACTOR.remote(self._task) for _ in range(workers)]
        ray.wait([a.pid.remote() for a in self._actors], num_returns=workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return ray.get([a.pid.remote() for a in self._actors])

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """See `Session`."""
        waiting = JobQueue(jobs, IN_FLIGHT * len(self._actors), self._pace, deadline)
        busy: dict[Any, tuple[Any, int, range]] = {}
        for place in [*range(len(self._actors))] * IN_FLIGHT:
            self._next(place, waiting, jobs, busy)
        while busy:
            [ended], _ = ray.wait(list(busy), num_returns=1)
            actor, place, chunk = busy.pop(ended)
            done = None
            try:
                done = ray.get(ended)
            except RayActorError as death:
                if self._actors[place] is actor:
                    waiting.died(chunk, str(death))
                    self._actors[place] = _REMOTE_ACTOR.remote(self._task)
                else:
                    waiting.back(chunk)  # it was queued behind the chunk over which the actor died
            self._next(place, waiting, jobs, busy)
            if done is not None:
                yield from waiting.done(chunk, done)

    def _next(
        self, place: int, waiting: JobQueue, jobs: Sequence[Any], busy: dict[Any, tuple[Any, int, range]]
    ) -> None:
        if chunk := waiting.chunk():
            actor = self._actors[place]
            given = actor.run.remote(jobs[chunk.start : chunk.stop], waiting.seconds_left)
            busy[given] = (actor, place, chunk)

    def close(self) -> None:
        """Ends the actors; Ray itself goes on, as others may use it."""
        for actor in self._actors:
            ray.kill(actor)
