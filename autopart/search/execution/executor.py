"""Executors: where the jobs of a wave run. The wave's width is the optimizer's; the workers are only how fast it goes.

    "serial"        in this process (default)
    "processes"   in spawned processes                       process_executor.py
    "ray"         on Ray, local or a cluster                 ray_executor.py

An executor is a frozen description; `start` gives a `Session` that is bound to a task and must be closed. A task says
how to make what runs its jobs (`worker`), and can be pickled; a search's jobs cost states, a sweep's search meshes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autopart.core.arguments import STRING, check, having
from autopart.core.errors import UnknownNameError, closest


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
        """(index, result) of the jobs as they end, in any order; jobs not begun by `deadline` are left out."""
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
        return _SerialSession(task.worker())


class _SerialSession:
    def __init__(self, worker: Worker):
        self._worker = worker

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        for index, job in enumerate(jobs):
            if time.monotonic() >= deadline:
                return
            yield index, self._worker.run(job)

    def close(self) -> None:
        pass


EXECUTOR = STRING | having("an object with start(task), such as ap.Processes(4)", "start")


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
