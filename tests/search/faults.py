"""A fault at a known point of a search: does it end in time, with what was promised, and leave no process behind?

    Fault("processes", at="evaluation", number=20, send=SIGKILL, to="workers")    -> the answer of a search without
    Fault("processes", at="start-up", send=SIGINT, to="driver")                   -> KeyboardInterrupt

The search runs in a process of its own (`fault_driver.py`). Whatever it starts inherits a mark in the environment;
after its end no process may bear the mark.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopart.search.budget import Budget
from autopart.search.contract import run

MARK = "AUTOPART_FAULT_MARK"
ROOT = Path(__file__).parents[2]

START_LIMIT_S = 300.0
"""For reaching the point: a loaded machine takes its time."""

LIMIT_S = 300.0
"""For ending after the fault; a search that hangs takes for ever."""


@dataclass(frozen=True)
class Fault:
    """`send` a signal `to` "driver", "worker", "workers" or processes of a name, `at` a point."""

    executor: str
    at: str
    send: signal.Signals
    to: str
    promise: str
    number: int = 1
    evaluations: int = 80
    seconds: float = 0.0
    limit_s: float = LIMIT_S

    def __str__(self) -> str:
        return f"{self.executor}: {self.send.name} to {self.to} at {self.at} {self.number}"


@dataclass(frozen=True)
class Outcome:
    """`result` as the driver printed it; `seconds` from the fault to the end; `left` processes that bear the mark."""

    code: int
    result: dict[str, Any]
    seconds: float
    left: tuple[str, ...]
    log: str


def inject(fault: Fault, folder: Path, **environment: str) -> Outcome:
    """Runs a search with the fault."""
    mark = uuid.uuid4().hex
    arguments = [fault.executor, fault.at, fault.number, fault.evaluations, fault.seconds]
    environment = {**os.environ, **environment, MARK: mark, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    with (
        (folder / f"{mark}.log").open("w+") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tests.search.fault_driver", *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment,
        ) as driver,
    ):  # fmt: skip
        try:
            return _ended(fault, driver, mark, log)
        finally:
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _ended(fault: Fault, driver: subprocess.Popen[str], mark: str, log: Any) -> Outcome:
    where = _line(driver, START_LIMIT_S)
    assert where.startswith(f"at {fault.at}"), f"the search did not come to {fault.at}: {where!r}\n{_text(log)}"
    for pid in _victims(fault, driver.pid, mark, json.loads(where[where.index("[") :])):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, fault.send)
    began = time.monotonic()
    assert driver.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        driver.stdin.write("go on\n")
        driver.stdin.flush()
    line = _line(driver, fault.limit_s)
    code = driver.wait(timeout=fault.limit_s)
    seconds = time.monotonic() - began
    return Outcome(code, json.loads(line or "{}"), seconds, _left(mark), _text(log))


def _text(log: Any) -> str:
    log.seek(0)
    return log.read()


def _line(driver: subprocess.Popen[str], limit_s: float) -> str:
    assert driver.stdout is not None
    ready, _, _ = select.select([driver.stdout], [], [], limit_s)
    assert ready, f"no word from the search in {limit_s} s"
    return driver.stdout.readline()


def _victims(fault: Fault, driver: int, mark: str, workers: list[int]) -> list[int]:
    if fault.to == "driver":
        return [driver]
    if fault.to in ("worker", "workers"):
        known = workers or [pid for pid in marked(mark) if "spawn_main" in command(pid)]
        return known[:1] if fault.to == "worker" else known
    found = [pid for pid in marked(mark) if fault.to in command(pid)]
    assert found, f"there is no {fault.to}"
    return found


def marked(mark: str) -> list[int]:
    """Processes that bear the mark and live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def command(pid: int) -> str:
    """The command line of a process, or its last words."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _left(mark: str, patience_s: float = 15.0) -> tuple[str, ...]:
    """Processes that are still there after a while."""
    until = time.monotonic() + patience_s
    while (found := marked(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    return tuple(f"{pid}: {command(pid)}" for pid in found)


@functools.cache
def without_fault(evaluations: int) -> tuple[list[str], int]:
    """Actions and evaluations of the search that nothing happens to."""
    found = run("mcts", Budget(evaluations))
    return [str(a) for a in found.actions], found.report["evaluations"]


def check(fault: Fault, outcome: Outcome) -> None:
    """Asserts that the promise was kept."""
    story = f"{fault}\n{outcome}"
    assert not outcome.left, story
    assert outcome.code == 0, story
    result = outcome.result
    match fault.promise:
        case "same answer":
            assert "error" not in result, story
            assert (result["actions"], result["evaluations"]) == without_fault(fault.evaluations), story
        case "best so far":
            assert result.get("stopped") in ("interrupted", "budget"), story
            assert result["evaluations"] > 0, story
        case "KeyboardInterrupt":
            assert result == {"error": "KeyboardInterrupt"}, story
        case other:
            raise ValueError(other)
