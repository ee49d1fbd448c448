"""Jobs in spawned processes of this machine; one that dies is replaced and its jobs done again.

    driver --jobs 3, 4--> process 0 --results--> driver     each process takes its next jobs when it has done some
           --jobs 5, 6--> process 1   (dies)
           --job 5--> process 2

The program goes to each process once, when it starts. As with everything that spawns, a script that uses it must guard
its top level with `if __name__ == "__main__":`.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from autopart.core.arguments import NONE, check_fields, whole
from autopart.search.execution.executor import Task
from autopart.search.execution.job_queue import JobQueue, Throughput, run_chunk, sendable


@dataclass(frozen=True)
class Processes:
    """So many worker processes; None: one per CPU core."""

    workers: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, workers=whole(1, 4096) | NONE)

    def start(self, task: Task) -> ProcessSession:
        """See `Executor`."""
        return ProcessSession(task.pickled(pickle.dumps), self.workers or os.cpu_count() or 1)


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, task: bytes):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.send_bytes(task)
        self.chunk = range(0)

    def wait(self) -> None:
        """Until it is ready; raises what kept it from that. One that dies before is found out by its first jobs."""
        with contextlib.suppress(EOFError, OSError):
            error = self.pipe.recv()
            if error is not None:
                raise error

    def end(self) -> None:
        """Ends the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection) -> None:
    """The life of a worker: the task, then jobs until the pipe closes. Ctrl-C is for the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        worker = pickle.loads(pipe.recv_bytes()).worker()
    except Exception as error:
        pipe.send(sendable(error))
        return
    gc.freeze()
    pipe.send(None)
    while True:
        try:
            jobs, seconds = pipe.recv()
        except EOFError:
            return
        pipe.send(run_chunk(worker, jobs, seconds))


class ProcessSession:
    """Worker processes that hold one task."""

    def __init__(self, task: bytes, workers: int):
        self._task, self._pace = task, Throughput()
        self._workers = [_Worker(task) for _ in range(workers)]
        try:
            for worker in self._workers:
                worker.wait()
        except Exception:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, for whoever wants to see or kill one."""
        return [w.process.pid or 0 for w in self._workers]

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """See `Session`."""
        waiting = JobQueue(jobs, len(self._workers), self._pace, deadline)
        busy: dict[Connection, _Worker] = {}
        for worker in self._workers:
            self._next(worker, waiting, jobs, busy)
        while busy:
            for pipe in multiprocessing.connection.wait(list(busy)):
                worker = busy.pop(pipe)  # type: ignore[arg-type]
                chunk, done = worker.chunk, None
                try:
                    done = worker.pipe.recv()
                except (EOFError, OSError):
                    waiting.died(chunk)
                    worker = self._replace(worker)
                self._next(worker, waiting, jobs, busy)
                if done is not None:
                    yield from waiting.done(chunk, done)

    def _next(self, worker: _Worker, waiting: JobQueue, jobs: Sequence[Any], busy: dict[Connection, _Worker]) -> None:
        chunk = waiting.chunk()
        if not chunk:
            return
        try:
            worker.pipe.send((jobs[chunk.start : chunk.stop], waiting.seconds_left))
        except OSError:
            waiting.died(chunk)
            self._next(self._replace(worker), waiting, jobs, busy)
            return
        worker.chunk = chunk
        busy[worker.pipe] = worker

    def _replace(self, worker: _Worker) -> _Worker:
        place = self._workers.index(worker)
        worker.end()
        self._workers[place] = _Worker(self._task)
        self._workers[place].wait()
        return self._workers[place]

    def close(self) -> None:
        """See `Session`."""
        for worker in self._workers:
            worker.end()
