"""Handing the jobs of a wave to workers: in chunks, so that a short job is not drowned by its message.

    16 jobs, 2 workers    4 -> worker 0    3 -> worker 1    3    2    1    1    1    1      the last ones are small
    a chunk whose worker died     its jobs run again one by one, which shows the job that kills its worker
    a job whose worker died       runs once more, last and alone; if that worker dies too, the job is lost

Jobs that take longer than `CHUNK_S` go one by one. With a chunk go answers of other workers, as they came, where jobs
are long: what a worker is told it need not find again.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.search.execution.executor import Learns, Lost, Worker, WorkerError

CHUNK_S = 0.3
"""Seconds that a chunk of several jobs should take at most."""

TOLD_S = 0.01
"""Seconds that a job takes for each other worker, from which on these are told what it found. To be told of a state
takes 0.2 ms, and of 20 states about one is asked for again, by another worker."""

MAX_DEATHS = 2
"""Deaths over one job after which it, not the worker, is to blame: the last of them when it ran alone."""

GRACE_S = 1.0
"""Seconds after the deadline for which jobs that were begun before it are waited for, if jobs take no time."""


@dataclass(frozen=True)
class Done:
    """What a worker made of a chunk: results of its first jobs, what the next one raised, and how long it took."""

    results: tuple[Any, ...]
    error: Exception | None
    seconds: float


def run_chunk(worker: Worker, jobs: Sequence[Any], seconds: float, told: Sequence[bytes] = ()) -> Done:
    """Runs jobs in order; those not begun within `seconds` are left out. What a job raises is returned.

    `told` are pickled `Done`s of other workers.
    """
    results: list[Any] = []
    start, error = time.monotonic(), None
    try:
        if isinstance(worker, Learns):
            for result in itertools.chain.from_iterable(pickle.loads(answer).results for answer in told):
                worker.learn(result)
        for job in jobs:
            if time.monotonic() - start >= seconds:
                break
            results.append(worker.run(job))
    except Exception as raised:
        error = sendable(raised)
    return Done(tuple(results), error, time.monotonic() - start)


def sendable(error: Exception) -> Exception:
    """The error, or where that cannot be pickled one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"a job raised {type(error).__name__}", why=str(error))
    return error


class Throughput:
    """How long one job of a session takes: the mean of those done so far, and 0 seconds before the first is done."""

    def __init__(self) -> None:
        self._seconds, self._jobs = 0.0, 0

    def note(self, done: Done) -> None:
        """Learns from a chunk; what is long ago counts less."""
        self._seconds, self._jobs = 0.9 * self._seconds + done.seconds, 0.9 * self._jobs + len(done.results)

    @property
    def grace_s(self) -> float:
        """Seconds that a job which is running at the deadline gets beyond it: twice what jobs take."""
        return GRACE_S + 2 * self._seconds / max(1.0, self._jobs)

    def worth_telling(self, others: int) -> bool:
        """Whether so many other workers are to be told what a job found."""
        return self._seconds > TOLD_S * others * self._jobs

    @property
    def max_jobs(self) -> int:
        """Jobs that a chunk should have at most; one where nothing is known yet."""
        return max(1, int(CHUNK_S * self._jobs / self._seconds)) if self._jobs >= 1 and self._seconds > 0 else 1


class JobQueue:
    """The jobs of one wave that no worker has yet."""

    def __init__(self, jobs: Sequence[Any], workers: int, pace: Throughput, deadline: float):
        self._jobs, self._workers, self._pace, self._deadline = jobs, workers, pace, deadline
        self._fresh, self._again, self._alone = 0, list[int](), list[int]()
        self._deaths, self._out = [0] * len(jobs), 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    @property
    def ended(self) -> bool:
        """True if no worker has a chunk, and none will get one."""
        left = self._fresh < len(self._jobs) or self._again or self._alone
        return self._out == 0 and (not left or self.seconds_left <= 0)

    @property
    def overdue(self) -> bool:
        """True if what workers still have is not to be waited for."""
        return self.seconds_left < -self._pace.grace_s

    def chunk(self) -> range:
        """Indices of the next jobs for a worker that is idle; none after the deadline, or where all are given out."""
        chunk = self._next() if self.seconds_left > 0 else range(0)
        self._out += bool(chunk)
        return chunk

    def _next(self) -> range:
        if self._again:
            index = self._again.pop()
            return range(index, index + 1)
        if self._fresh < len(self._jobs):
            fair = -(-(len(self._jobs) - self._fresh) // (2 * self._workers))
            first, self._fresh = self._fresh, self._fresh + min(fair, self._pace.max_jobs)
            return range(first, self._fresh)
        if self._alone and self._out == 0:
            index = self._alone.pop()
            return range(index, index + 1)
        return range(0)

    def done(self, chunk: range, done: Done) -> Iterator[tuple[int, Any]]:
        """(index, result) of what a worker did of a chunk; raises what a job raised."""
        self._out -= 1
        self._pace.note(done)
        yield from zip(chunk, done.results, strict=False)
        if isinstance(done.error, MemoryError):
            ended = chunk.start + len(done.results)
            self._again += range(ended + 1, chunk.stop)
            yield from self._blamed(ended, repr(done.error))
        elif done.error is not None:
            raise done.error

    def back(self, chunk: range) -> None:
        """Takes back a chunk that was not begun."""
        self._out -= 1
        self._again += chunk

    def died(self, chunk: range, how: str = "") -> Iterator[tuple[int, Lost]]:
        """Takes back a chunk over which a worker died; (index, `Lost`) of a job that has killed `MAX_DEATHS`."""
        self._out -= 1
        if len(chunk) == 1:
            yield from self._blamed(chunk.start, how)
        else:
            self._again += chunk

    def _blamed(self, index: int, how: str) -> Iterator[tuple[int, Lost]]:
        self._deaths[index] += 1
        if self._deaths[index] >= MAX_DEATHS:
            yield index, Lost(f"{MAX_DEATHS} workers died over the job {self._jobs[index]}: {how}")
        else:
            self._alone.append(index)
