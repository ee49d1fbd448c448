"""Executors: where the jobs of a wave run. The wave's width is the optimizer's; the workers are only how fast it goes.

    "serial"        in this process (default)
    "processes"   in spawned processes                       process_executor.py
    "ray"         on Ray, local or a cluster                 ray_executor.py

An executor is a frozen description; `start` gives a `Session` that is bound to a task and must be closed. A task says
how to make what runs its jobs (`worker`), and can be pickled; a search's jobs cost states, a sweep's search meshes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autopart.core.arguments import NONE, STRING, check, having, whole
from autopart.core.errors import PartitionError, UnknownNameError, closest


class WorkerError(PartitionError):
    """Workers that cannot be started, keep dying, or cannot be asked for."""


@dataclass(frozen=True)
class Lost:
    """Stands for the result of a job that killed its worker, or ran out of memory, also when it ran alone."""

    why: str


class Worker(Protocol):
    """What runs the jobs of one task."""

    def run(self, job: Any) -> Any:
        """The result of a job, which depends on the job alone."""
        ...


class Task(Protocol):
    """What workers are made from."""

    def worker(self) -> Worker:
        """A worker in this process."""
        ...

    def pickled(self, dumps: Callable[[Any], bytes]) -> bytes:
        """The task as `dumps`, such as `pickle.dumps`, writes it: for other processes."""
        ...


class Session(Protocol):
    """Workers that hold one task."""

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """(index, result) of the jobs as they end, in any order; jobs not begun by `deadline` are left out.

        A result is `Lost` where the job cannot be done. What a job raises is raised here.
        """
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...


class Executor(Protocol):
    """Something that can start a session."""

    def start(self, task: Task) -> Session:
        """Workers that hold `task`."""
        ...


@dataclass(frozen=True)
class Serial:
    """Runs jobs one after the other in this process."""

    def start(self, task: Task) -> Session:
        """See `Executor`."""
        return _SerialSession(task)


class _SerialSession:
    def __init__(self, task: Task):
        self._task: Task = task
        self._worker: Worker | None = task.worker()

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        for index, job in enumerate(jobs):
            if time.monotonic() >= deadline:
                return
            yield index, self._done(job)

    def _done(self, job: Any) -> Any:
        """The job's result; where memory runs out, that of a second try by a new worker, which remembers nothing."""
        why = ""
        for _ in range(2):
            try:
                self._worker = self._worker or self._task.worker()
                return self._worker.run(job)
            except MemoryError as error:
                self._worker, why = None, repr(error)
            gc.collect()
        return Lost(f"out of memory, twice, over the job {job}: {why}")

    def close(self) -> None:
        pass


EXECUTOR = STRING | having("an object with start(task), such as ap.Processes(4)", "start")

WORKERS = whole(1, 4096) | NONE
"""What a number of workers may be given as; None: one per CPU core."""


def executor_of(executor: str | Executor) -> Executor:
    """The executor a user means by a name; raises `UnknownNameError` listing the known ones."""
    if not isinstance(executor, str):
        check("executor", executor=(executor, EXECUTOR))
        return executor
    if executor not in _BY_NAME:
        raise UnknownNameError(f'no executor is called "{executor}"', hint=closest(executor, _BY_NAME))
    return _BY_NAME[executor]()


def _processes() -> Executor:
    from autopart.search.execution.processes import Processes

    return Processes()


def _ray() -> Executor:
    from autopart.search.execution.ray import Ray

    return Ray()


_BY_NAME: dict[str, Callable[[], Executor]] = {"serial": Serial, "processes": _processes, "ray": _ray}
