"""Jobs in spawned processes of this machine; one that dies is replaced and its job done again.

    driver --job 3--> process 0 --result 3--> driver        each process takes its next job when it has done one
           --job 4--> process 1   (dies)
           --job 4--> process 2

The program goes to each process once, when it starts. As with everything that spawns, a script that uses it must guard
its top level with `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from autopart.core.errors import PartitionError
from autopart.search.executor import Session, Task

MOST_DEATHS = 3
"""Deaths over one job after which it, not the worker, is to blame."""


class WorkerError(PartitionError):
    """Workers keep dying over one job, or a job raised."""


@dataclass(frozen=True)
class Processes:
    """So many worker processes; None: one per CPU core."""

    workers: int | None = None

    def start(self, task: Task) -> Session:
        """See `Executor`."""
        return ProcessSession(task.pickled(), self.workers or os.cpu_count() or 1)


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, task: bytes):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.send_bytes(task)
        self.job = -1

    def give(self, index: int, job: Any) -> None:
        """Starts a job."""
        self.job = index
        self.pipe.send(job)

    def end(self) -> None:
        """Ends the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection) -> None:
    """The life of a worker: the task, then jobs until the pipe closes. Ctrl-C is for the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = pickle.loads(pipe.recv_bytes()).worker()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(worker.run(job))
        except Exception as error:
            pipe.send(error)


class ProcessSession:
    """Worker processes that hold one task."""

    def __init__(self, task: bytes, workers: int):
        self._task = task
        self._workers = [_Worker(task) for _ in range(workers)]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, for whoever wants to see or kill one."""
        return [w.process.pid or 0 for w in self._workers]

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """See `Session`."""
        waiting, deaths = list(range(len(jobs)))[::-1], [0] * len(jobs)
        busy: dict[Connection, _Worker] = {}
        for worker in self._workers:
            self._next(worker, waiting, jobs, busy, deadline)
        while busy:
            for pipe in multiprocessing.connection.wait(list(busy)):
                worker = busy.pop(pipe)  # type: ignore[arg-type]
                index = worker.job
                try:
                    found: Any = worker.pipe.recv()
                except (EOFError, OSError):
                    deaths[index] += 1
                    if deaths[index] >= MOST_DEATHS:
                        raise WorkerError(f"{MOST_DEATHS} workers died over one job", why=f"{jobs[index]}") from None
                    waiting.append(index)
                    worker = self._replace(worker)
                else:
                    if isinstance(found, Exception):
                        raise found
                    yield index, found
                self._next(worker, waiting, jobs, busy, deadline)

    def _next(self, worker: _Worker, waiting, jobs, busy, deadline) -> None:
        while waiting and time.monotonic() < deadline:
            index = waiting.pop()
            try:
                worker.give(index, jobs[index])
            except OSError:
                waiting.append(index)
                worker = self._replace(worker)
                continue
            busy[worker.pipe] = worker
            return

    def _replace(self, worker: _Worker) -> _Worker:
        place = self._workers.index(worker)
        worker.end()
        self._workers[place] = _Worker(self._task)
        return self._workers[place]

    def close(self) -> None:
        """See `Session`."""
        for worker in self._workers:
            worker.end()
