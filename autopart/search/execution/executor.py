"""Executors: where the jobs of a wave run. The wave's width is the optimizer's; the workers are only how fast it goes.

    "serial"      in this process (default)
    "processes"   in spawned processes                       processes.py
    "ray"         on Ray, local or a cluster                 ray.py

An executor is a frozen description; `start` gives a `Session` that is bound to a task and must be closed. A task says
how to make what runs its jobs (`worker`), and can be pickled; a search's jobs cost states, a sweep's search meshes.

    @register_executor("slurm")                              executor="slurm" then means Slurm()
    @dataclass(frozen=True)
    class Slurm:
        def start(self, task: Task) -> Session: ...

Packages can also register one by the entry point group "autopart.executors". The files of processes and of Ray are
imported when somebody first asks for one.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from autopart.base.arguments import NONE, STRING, check, having, maker, whole
from autopart.base.errors import PartitionError
from autopart.base.registry import Registry


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


@runtime_checkable
class Learns(Protocol):
    """A worker that is told what others found, so that it need not find it again; its results are the same without."""

    def learn(self, result: Any) -> None:
        """Takes note of the result of a job that another worker has run."""
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


class Waiting(Protocol):
    """Workers that have begun to start, before there is a task."""

    def hold(self, task: Task) -> Session:
        """A session of these workers, which then hold `task`."""
        ...

    def close(self) -> None:
        """Ends them; more than once does no harm."""
        ...


@runtime_checkable
class BeginsEarly(Protocol):
    """An executor whose workers can begin to start before there is a task: `begun` asks for it."""

    def begin(self) -> Waiting:
        """Begins to start them."""
        ...


@contextlib.contextmanager
def begun(executor: Executor) -> Generator[Callable[[Task], Session]]:
    """What starts a session; where the executor can, its workers begin to start at once, while the task is made.

    with begun(executor) as start:
        space = ...                      seconds, in which processes import what they need
        session = start(task)
    """
    if not isinstance(executor, BeginsEarly):
        yield executor.start
        return
    waiting = executor.begin()
    try:
        yield waiting.hold
    finally:
        waiting.close()


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


EXECUTORS: Registry[Callable[[], Executor]] = Registry(
    "executor", accepts=maker("start(task)", "start"), entry_points="autopart.executors"
)
"""What makes an executor with default settings, by name."""

T = TypeVar("T", bound=Callable[[], Any])


def register_executor(name: str) -> Callable[[T], T]:
    """Class decorator: `executor="name"` then means an instance with default fields. A name can be taken once."""
    return EXECUTORS.register(name)


def executor_of(executor: str | Executor) -> Executor:
    """The executor a user means by a name; raises `UnknownNameError` listing the known ones."""
    if isinstance(executor, str):
        return EXECUTORS.named(executor)()
    check("executor", executor=(executor, EXECUTOR))
    return executor


@register_executor("processes")
def _processes() -> Executor:
    from autopart.search.execution.processes import Processes

    return Processes()


@register_executor("ray")
def _ray() -> Executor:
    from autopart.search.execution.ray import Ray

    return Ray()


register_executor("serial")(Serial)
