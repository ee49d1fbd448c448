"""Jobs on Ray: on this machine, or on a cluster that runs already.

ray.put(task) once  ->  one actor per worker, each builds its worker from it
job -> an idle actor -> result;  an actor that dies is replaced and its job done again
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from autopart.search.executor import Session, Task
from autopart.search.process_executor import MOST_DEATHS, WorkerError


@dataclass(frozen=True)
class Ray:
    """Ray actors.

    workers   how many; None: one per CPU that Ray has
    address   of a running cluster ("auto", "ray://host:10001"); None: Ray is started here, unless it runs already
    """

    workers: int | None = None
    address: str | None = None

    def start(self, task: Task) -> Session:
        """See `Executor`."""
        if not ray.is_initialized():
            ray.init(address=self.address, include_dashboard=False, log_to_driver=False, num_cpus=self._cpus)
        count = self.workers or int(ray.cluster_resources().get("CPU", 1))
        return RaySession(task.pickled(), max(1, count))

    @property
    def _cpus(self) -> int | None:
        """A local Ray has as many CPUs as workers are wanted; a cluster has its own."""
        return None if self.address or self.workers is None else max(self.workers, os.cpu_count() or 1)


class _Actor:
    """What runs in a Ray worker process."""

    def __init__(self, task: bytes):
        self._worker = pickle.loads(task).worker()

    def run(self, job: Any) -> Any:
        return self._worker.run(job)

    def pid(self) -> int:
        return os.getpid()


_REMOTE_ACTOR: Any = ray.remote(num_cpus=1)(_Actor)


class RaySession:
    """Actors that hold one task."""

    def __init__(self, task: bytes, workers: int):
        self._task = ray.put(task)
        self._actors: list[Any] = [_REMOTE_ACTOR.remote(self._task) for _ in range(workers)]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return ray.get([a.pid.remote() for a in self._actors])

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """See `Session`."""
        waiting, deaths = list(range(len(jobs)))[::-1], [0] * len(jobs)
        busy: dict[Any, tuple[int, int]] = {}
        for place in range(len(self._actors)):
            self._next(place, waiting, jobs, busy, deadline)
        while busy:
            ended, _ = ray.wait(list(busy), num_returns=1)
            place, index = busy.pop(ended[0])
            try:
                found = ray.get(ended[0])
            except RayActorError:
                deaths[index] += 1
                if deaths[index] >= MOST_DEATHS:
                    raise WorkerError(f"{MOST_DEATHS} workers died over one job", why=f"{jobs[index]}") from None
                waiting.append(index)
                self._actors[place] = _REMOTE_ACTOR.remote(self._task)
            except RayTaskError as error:
                raise error.cause from None
            else:
                yield index, found
            self._next(place, waiting, jobs, busy, deadline)

    def _next(self, place: int, waiting, jobs, busy, deadline) -> None:
        if waiting and time.monotonic() < deadline:
            index = waiting.pop()
            busy[self._actors[place].run.remote(jobs[index])] = (place, index)

    def close(self) -> None:
        """Ends the actors; Ray itself goes on, as others may use it."""
        for actor in self._actors:
            ray.kill(actor)
