"""An executor: one worker in this process that does its jobs last to first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.search.execution import Session, Task, Worker, register_executor

ENDED: list[int] = []
"""Jobs that each session has done."""


@register_executor("acme_backwards")
@dataclass(frozen=True)
class Backwards:
    """See `autopart.search.execution.Executor`."""

    def start(self, task: Task) -> Session:
        """One worker."""
        return BackwardsSession(task.worker())


class BackwardsSession:
    """A worker, and how many jobs it has done."""

    def __init__(self, worker: Worker):
        self._worker, self._done = worker, 0

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """The last job first."""
        for index in reversed(range(len(jobs))):
            self._done += 1
            yield index, self._worker.run(jobs[index])

    def close(self) -> None:
        """Notes how much was done."""
        ENDED.append(self._done)
