"""Handing the jobs of a wave to workers: in chunks, so that a short job is not drowned by its message.

    16 jobs, 2 workers    4 -> worker 0    3 -> worker 1    3    2    1    1    1    1      the last ones are small
    a chunk whose worker died     comes back as chunks of one: the job that kills again is found out

Jobs that take longer than `CHUNK_S` go one by one.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.core.errors import PartitionError
from autopart.search.execution.executor import Worker

CHUNK_S = 0.3
"""Seconds that a chunk of several jobs should take at most."""

MAX_DEATHS = 3
"""Deaths over one job after which it, not the worker, is to blame."""


class WorkerError(PartitionError):
    """Workers keep dying over one job, or what a job raised cannot be sent."""


@dataclass(frozen=True)
class Done:
    """What a worker made of a chunk: results of its first jobs, what the next one raised, and how long it took."""

    results: tuple[Any, ...]
    error: Exception | None
    seconds: float


def run_chunk(worker: Worker, jobs: Sequence[Any], seconds: float) -> Done:
    """Runs jobs in order; those not begun within `seconds` are left out. What a job raises is returned."""
    results: list[Any] = []
    start, error = time.monotonic(), None
    for job in jobs:
        if time.monotonic() - start >= seconds:
            break
        try:
            results.append(worker.run(job))
        except Exception as raised:
            error = sendable(raised)
            break
    return Done(tuple(results), error, time.monotonic() - start)


def sendable(error: Exception) -> Exception:
    """The error, or where that cannot be pickled one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"a job raised {type(error).__name__}", why=str(error))
    return error


class Throughput:
    """How long jobs of a session take, from those done so far: 0 seconds each until one is."""

    def __init__(self) -> None:
        self._seconds, self._jobs = 0.0, 0

    def note(self, done: Done) -> None:
        """Learns from a chunk; what is long ago counts less."""
        self._seconds, self._jobs = 0.9 * self._seconds + done.seconds, 0.9 * self._jobs + len(done.results)

    @property
    def max_jobs(self) -> int:
        """Jobs that a chunk should have at most; one where nothing is known yet."""
        return max(1, int(CHUNK_S * self._jobs / self._seconds)) if self._jobs >= 1 and self._seconds > 0 else 1


class JobQueue:
    """The jobs of one wave that no worker has yet."""

    def __init__(self, jobs: Sequence[Any], workers: int, pace: Throughput, deadline: float):
        self._jobs, self._workers, self._pace, self._deadline = jobs, workers, pace, deadline
        self._fresh, self._again = 0, list[int]()
        self._deaths = [0] * len(jobs)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def chunk(self) -> range:
        """Indices of the next jobs for a worker that is idle; none after the deadline, or where all are given out."""
        if self.seconds_left <= 0:
            return range(0)
        if self._again:
            index = self._again.pop()
            return range(index, index + 1)
        fair = -(-(len(self._jobs) - self._fresh) // (2 * self._workers))
        first, self._fresh = self._fresh, self._fresh + min(fair, self._pace.max_jobs)
        return range(first, self._fresh)

    def done(self, chunk: range, done: Done) -> Iterator[tuple[int, Any]]:
        """(index, result) of what a worker did of a chunk; raises what a job raised."""
        self._pace.note(done)
        yield from zip(chunk, done.results, strict=False)
        if done.error is not None:
            raise done.error

    def back(self, chunk: range) -> None:
        """Takes back a chunk that was not begun."""
        self._again += chunk

    def died(self, chunk: range, how: str = "") -> None:
        """Takes back a chunk over which a worker died.

        Raises `WorkerError` where one job has killed `MAX_DEATHS` workers on its own.
        """
        self.back(chunk)
        if len(chunk) == 1:
            self._deaths[chunk[0]] += 1
            if self._deaths[chunk[0]] >= MAX_DEATHS:
                raise WorkerError(f"{MAX_DEATHS} workers died over one job", why=how or f"{self._jobs[chunk[0]]}")
