"""Jobs in spawned processes of this machine; one that dies is replaced and its jobs done again.

    driver --jobs 3, 4--> process 0 --results--> driver     each process takes its next jobs when it has done some
           --jobs 5, 6--> process 1   (dies)
           --job 5--> process 2

The program goes to each process once, when it has started; a search has its processes start while it makes the decision
space. As with everything that spawns, a script that uses it must guard
its top level with `if __name__ == "__main__":`. A process lives as long as the driver's end of its pipe.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from autopart.base.arguments import check_fields
from autopart.search.execution.crew import CrewSession, Event
from autopart.search.execution.executor import WORKERS, Task, WorkerError
from autopart.search.execution.job_queue import run_chunk, sendable

NAME = "autopart-worker"

NO_GUARD = 87
"""Exit code of a worker whose start ran the script from its top, to where the script starts a search."""

GONE_S = 5.0
"""Seconds to wait for a process that was killed."""

GUARD = 'in a script, guard what starts the search with `if __name__ == "__main__":`, or take executor="serial"'


@dataclass(frozen=True)
class Processes:
    """So many worker processes; None: one per CPU core."""

    workers: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, WorkerError, workers=WORKERS)

    def start(self, task: Task) -> CrewSession:
        """See `Executor`. Raises `WorkerError` where processes cannot be started from here."""
        session = self.begin().hold(task)
        with contextlib.ExitStack() as unless_ready:
            unless_ready.callback(session.close)
            session.await_first()
            unless_ready.pop_all()
        return session

    def begin(self) -> Begun:
        """Processes that begin to start and import, before there is a task; raises as `start` does."""
        _check_may_spawn()
        resource_tracker.ensure_running()
        return Begun(self.workers or os.cpu_count() or 1)


class Begun(CrewSession):
    """Processes that wait for their task; `close` ends them, with or without one."""

    def __init__(self, workers: int):
        self._task = Future[bytes]()
        super().__init__(lambda events: _Process(self._task, events), workers)

    def hold(self, task: Task) -> CrewSession:
        """Gives each its task, once it has started; who runs jobs waits until the first is ready."""
        with contextlib.ExitStack() as unless_sent:
            unless_sent.callback(self.close)
            self._task.set_result(task.pickled(pickle.dumps))
            unless_sent.pop_all()
        return self

    def close(self) -> None:
        """See `Session`."""
        self._task.cancel()
        super().close()


_serving = threading.Event()
"""Set in a worker once it is one: until then it runs the top of the script that started it."""


def _check_may_spawn() -> None:
    process = multiprocessing.current_process()
    if process.name == NAME and not _serving.is_set():
        raise SystemExit(NO_GUARD)
    if process.daemon:
        raise WorkerError(
            "a worker process cannot start workers of its own",
            why=f"{process.name} is a daemon of multiprocessing",
            hint='executor="serial" inside workers',
        )


class _Process:
    """A `Handle` of one process: a thread starts it, feeds it and buries it."""

    def __init__(self, task: Future[bytes], events: queue.SimpleQueue[Event]):
        self._task, self._events = task, events
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ticket, self._lock, self._ended, self.pid = 0, threading.Lock(), False, 0
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._theirs,), daemon=True, name=NAME)
        self._thread = threading.Thread(target=self._look_after, daemon=True, name=f"{NAME} handle")
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        """See `Handle`."""
        return _is_stopped(self.pid)

    def give(self, ticket: int, jobs: Sequence[Any], seconds: float, told: Sequence[bytes]) -> None:
        """See `Handle`."""
        self._ticket = ticket
        self._inbox.put(pickle.dumps((jobs, seconds, told)))

    def end(self) -> None:
        """See `Handle`."""
        self._inbox.put(None)
        with self._lock:
            self._ended = True
            if self.pid and self._process.is_alive():
                self._process.kill()

    def join(self) -> None:
        """See `Handle`."""
        self._thread.join(GONE_S)

    def _look_after(self) -> None:
        """The life of the process, seen from the driver."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the process inherits it: Ctrl-C is for the driver
        how = ""
        try:
            with self._lock:
                if self._ended:
                    return
                self._process.start()
                self.pid = self._process.pid or 0
            self._theirs.close()
            self._feed()
        except (EOFError, OSError, CancelledError) as error:
            how = str(error)
        finally:
            how = self._bury() or how
            self._events.put(Event(self, "died", how=how))

    def _feed(self) -> None:
        self._pipe.send_bytes(self._task.result())
        error = self._pipe.recv_bytes()
        self._events.put(Event(self, "failed" if error else "ready", error))
        while (jobs := self._inbox.get()) is not None:
            self._pipe.send_bytes(jobs)
            self._events.put(Event(self, "answer", self._pipe.recv_bytes(), self._ticket))

    def _bury(self) -> str:
        """Makes sure that the process is gone; how it went."""
        self._pipe.close()
        self._theirs.close()
        if not self.pid:
            return ""
        self._process.join(0.5)
        with self._lock:
            code = self._process.exitcode
            self._process.kill()
        self._process.join()
        return f"the process {_fate(code)}"


def _fate(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL): the system does so where memory runs out"
    if code == NO_GUARD:
        return f"ran the script that started it, up to where the script starts the search; {GUARD}"
    if code is None:
        return "does not answer"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}; {GUARD}"


def _is_stopped(pid: int) -> bool:
    """Whether a child of this process is stopped."""
    if not pid:
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _serve(pipe: Connection) -> None:
    """The life of a worker: the task, then jobs until the pipe closes. Ctrl-C is for the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serving.set()
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        data = pipe.recv_bytes()
        try:
            worker = pickle.loads(data).worker()
        except MemoryError:
            return
        except Exception as error:
            pipe.send_bytes(pickle.dumps(sendable(error)))
            return
        gc.freeze()
        pipe.send_bytes(b"")
        while True:
            pipe.send(run_chunk(worker, *pipe.recv()))


def _end_with_driver() -> None:
    """Also in the middle of a job."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(0)
