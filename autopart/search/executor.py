"""Executors: where the jobs of a wave run. The wave's width is the optimizer's; the workers are only how fast it goes.

    "here"        in this process (default)
    "processes"   in spawned processes                       process_executor.py
    "ray"         on Ray, local or a cluster                 ray_executor.py

An executor is a frozen description; `start` gives a `Session` that is bound to a task and must be closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from autopart.core.errors import UnknownNameError, closest
from autopart.search.evaluator import Evaluator, Task
from autopart.search.jobs import Job, Result


class Session(Protocol):
    """Workers that hold one task."""

    def run(self, jobs: Sequence[Job], deadline: float) -> Iterator[tuple[int, Result]]:
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
class Here:
    """Runs jobs one after the other in this process."""

    def start(self, task: Task) -> Session:
        """See `Executor`."""
        return _HereSession(Evaluator(task))


class _HereSession:
    def __init__(self, evaluator: Evaluator):
        self._evaluator = evaluator

    def run(self, jobs: Sequence[Job], deadline: float) -> Iterator[tuple[int, Result]]:
        for index, job in enumerate(jobs):
            if time.monotonic() >= deadline:
                return
            yield index, self._evaluator.run(job)

    def close(self) -> None:
        pass


def executor_of(executor: str | Executor) -> Executor:
    """The executor a user means by a name; raises `UnknownNameError` listing the known ones."""
    if not isinstance(executor, str):
        return executor
    if executor not in _BY_NAME:
        raise UnknownNameError(f'no executor is called "{executor}"', hint=closest(executor, _BY_NAME))
    return _BY_NAME[executor]()


def _processes() -> Executor:
    from autopart.search.process_executor import Processes

    return Processes()


def _ray() -> Executor:
    from autopart.search.ray_executor import Ray

    return Ray()


_BY_NAME: dict[str, Callable[[], Executor]] = {"here": Here, "processes": _processes, "ray": _ray}
