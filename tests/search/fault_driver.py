"""A search that says where it is, and waits there until the harness has done its worst; see `faults.py`.

at compile []                  some seconds after the start; nothing waits here
at start-up [worker pids]      as soon as there are workers; nothing waits here
at evaluation [worker pids]    the n-th result of a wave has come; waits for a line
at close [worker pids]         the workers are about to be ended; waits for a line
{"stopped": "interrupted", ...}
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopart.base.errors import PartitionError
from autopart.search.budget import Budget
from autopart.search.contract import run
from autopart.search.execution.executor import Executor, Serial
from autopart.search.execution.processes import Processes


def say(*words: Any) -> None:
    print(*words, flush=True)


@dataclass(frozen=True)
class Probed:
    """An executor that stops at a point of the search."""

    inner: Executor
    at: str
    number: int

    def start(self, task):
        if self.at == "start-up":
            threading.Thread(target=announce_start, daemon=True).start()
        return _ProbedSession(self.inner.start(task), self.at, self.number)


def announce_start() -> None:
    """Tells the harness once there is a worker."""
    while not any(parent_of(entry.name) == os.getpid() for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        time.sleep(0.01)
    time.sleep(0.2)
    say("at start-up", [])


def parent_of(pid: str) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


class _ProbedSession:
    def __init__(self, inner, at: str, number: int):
        self._inner, self._at, self._number, self._seen = inner, at, number, 0

    def run(self, jobs, deadline: float) -> Iterator[tuple[int, Any]]:
        for index, result in self._inner.run(jobs, deadline):
            self._seen += 1
            if self._at == "evaluation" and self._seen == self._number:
                self._wait()
            yield index, result

    def close(self) -> None:
        if self._at == "close":
            self._wait()
        self._inner.close()

    def _wait(self) -> None:
        say("at", self._at, json.dumps(getattr(self._inner, "pids", [])))
        sys.stdin.readline()


def executor_of(name: str) -> Executor:
    if name == "serial":
        return Serial()
    if name == "processes":
        return Processes(2)
    from autopart.search.execution.ray import Ray

    return Ray(2)


def main(name: str, at: str, number: str, evaluations: str, seconds: str) -> None:
    budget = Budget(int(evaluations) or None, float(seconds) or None)
    if at == "compile":
        threading.Timer(int(number), say, ["at compile", []]).start()
    found: dict[str, Any]
    try:
        result = run("mcts", budget, executor=Probed(executor_of(name), at, int(number)))
        found = {key: result.report[key] for key in ("stopped", "evaluations", "lost")}
        found |= {"actions": [str(a) for a in result.actions], "score": result.report["best"]["score"]}
    except KeyboardInterrupt:
        found = {"error": "KeyboardInterrupt"}
    except PartitionError as error:
        found = {"error": type(error).__name__, "text": str(error)}
    with contextlib.suppress(BrokenPipeError):
        say(json.dumps(found))


if __name__ == "__main__":
    # A shell that starts tests in the background has them ignore Ctrl-C, and this process would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(*sys.argv[1:])
