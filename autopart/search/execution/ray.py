"""Jobs on Ray: on this machine, or on a cluster that runs already.

    driver --pipe--> relay process --Ray--> an actor per worker     some jobs -> an idle actor -> results
                     (lost with its raylet: another takes its place, and its jobs are done again)

The relay is the process that Ray knows. Ray ends a process whose raylet dies; so that is the relay, never the driver. A
Ray that autopart starts listens on the loopback interface only, has Ray's token authentication, which is on by default,
and ends with the search. What a script defines goes along.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from autopart.base.arguments import NONE, Kind, check_fields
from autopart.search.execution.crew import CrewSession, Event
from autopart.search.execution.executor import WORKERS, Task, WorkerError
from autopart.search.execution.job_queue import run_chunk, sendable

IN_FLIGHT = 2
"""Chunks that an actor has at a time, so that the next is there when one is done."""

IMPORT_S = 120.0
"""Seconds in which the relay has imported Ray, and in which a Ray of our own has started."""

CONNECT_S = 9.0
"""Seconds in which a cluster must answer."""

GONE_S = 8.0
"""Seconds that Ray has for ending in good order."""

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes a Ray that is started listen on 127.0.0.1, as it does on Windows and macOS; an address given to it does not."""


_ADDRESS = Kind('"auto", "host:6379" or "ray://host:10001"', lambda v: isinstance(v, str) and v != "")


@dataclass(frozen=True)
class Ray:
    """Ray actors.

    workers   how many; None: one per CPU that Ray has
    address   of a running cluster ("auto", "ray://host:10001"); None: the one this process is connected to, else Ray is
              started here and ended with the search
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, WorkerError, workers=WORKERS, address=_ADDRESS | NONE)

    def start(self, task: Task) -> CrewSession:
        """See `Executor`. Raises `WorkerError` where no Ray answers."""
        crew = _Crew(task.pickled(ray.cloudpickle.dumps), self._settings())  # pyright: ignore
        with contextlib.ExitStack() as unless_started:
            unless_started.callback(crew.close)
            session = _RaySession(crew, self.workers or crew.cpus())
            session.await_first()
            unless_started.pop_all()
            return session

    def _settings(self) -> dict[str, Any]:
        """Arguments of `ray.init` in the relay."""
        address = self.address
        if address is None and ray.is_initialized():
            address = ray.get_runtime_context().gcs_address
        if address is not None:
            return {"address": address}
        cpus = None if self.workers is None else max(self.workers, os.cpu_count() or 1)
        return {"num_cpus": cpus, "include_dashboard": False}


class _RaySession(CrewSession):
    """Actors that hold one task."""

    def __init__(self, crew: _Crew, workers: int):
        self._crew = crew
        super().__init__(crew.hire, workers, IN_FLIGHT)

    def close(self) -> None:
        """See `Session`."""
        super().close()
        self._crew.close()


class _Crew:
    """Hires actors through a relay; where that is gone, through another."""

    def __init__(self, task: bytes, settings: dict[str, Any]):
        self._task, self._settings = task, settings
        self._relay = _Relay(task, settings)

    def cpus(self) -> int:
        """CPUs that Ray has; waits until it is up, and raises `WorkerError` if it is not."""
        return self._relay.cpus()

    def hire(self, events: queue.SimpleQueue[Event]) -> _Actor:
        """See `crew.Hire`."""
        if self._relay.is_gone:
            self._relay.close()
            self._relay = _Relay(self._task, self._settings)
        return _Actor(self._relay, events)

    def close(self) -> None:
        """Ends the relay, and Ray if it is our own."""
        self._relay.close()


class _Actor:
    """A `Handle` of one actor."""

    def __init__(self, relay: _Relay, events: queue.SimpleQueue[Event]):
        self._relay, self._events, self.pid = relay, events, 0
        self._number = relay.add(self._report)

    @property
    def is_stopped(self) -> bool:
        """See `Handle`; only known of this machine's processes, where the system shows them as files."""
        return self._relay.is_local and any(_is_stopped(pid) for pid in (self.pid, self._relay.pid))

    def give(self, ticket: int, jobs: Sequence[Any], seconds: float, told: Sequence[bytes]) -> None:
        """See `Handle`."""
        self._relay.send("give", self._number, ticket, pickle.dumps((jobs, seconds, told)))

    def end(self) -> None:
        """See `Handle`."""
        if _is_stopped(self._relay.pid):
            self._relay.kill()
        if self._relay.is_local and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._relay.send("end", self._number)

    def join(self) -> None:
        """See `Handle`; it ends with the relay at the latest."""

    def _report(self, kind: Any, value: Any = None, body: bytes = b"") -> None:
        if kind == "ready":
            self.pid = value
        ticket, how = (value, "") if kind == "answer" else (0, str(value))
        self._events.put(Event(self, kind, body, ticket, how))


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


class _Relay:
    """The relay process, seen from the driver: a thread starts it and listens to it, another one talks to it."""

    def __init__(self, task: bytes, settings: dict[str, Any]):
        self.is_local, self.is_gone, self.pid = "address" not in settings, False, 0
        self._settings, self._reports = settings, dict[int, Callable[..., None]]()
        self._numbers, self._lock, self._up = itertools.count(), threading.Lock(), threading.Event()
        self._cpus: int = 0
        self._outbox: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._failure: WorkerError | None = None
        self._ours, self._theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._closed, self._process = False, None
        self.send("start", task, settings)
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._look_after, self._talk)]
        for thread in self._threads:
            thread.start()

    def cpus(self) -> int:
        """CPUs of Ray, once it is up."""
        self._up.wait()
        if self._failure is not None:
            raise self._failure
        return self._cpus

    def add(self, report: Callable[..., None]) -> int:
        """Hires an actor whose events go to `report`; its number."""
        number = next(self._numbers)
        with self._lock:
            self._reports[number] = report
            gone = self.is_gone
        if gone:
            report("died", "Ray is gone")
        self.send("hire", number)
        return number

    def send(self, *message: Any) -> None:
        """Sends soon."""
        self._outbox.put(message)

    def kill(self) -> None:
        """Kills the relay, and its own Ray with it."""
        with self._lock:
            if self._process is not None and self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Asks it to end, and kills it if it does not."""
        with self._lock:
            self._closed = True
        self._outbox.put(None)
        if not self._up.is_set() or _is_stopped(self.pid):
            self.kill()
        self._threads[0].join(GONE_S)
        self.kill()
        self._threads[0].join(GONE_S)

    def _talk(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._ours.send(message)
            self._ours.send(("close",))

    def _look_after(self) -> None:
        """The life of the relay."""
        why = ""
        try:
            if self._start():
                self._listen()
        except (EOFError, OSError) as error:
            why = str(error)
        finally:
            why = self._bury() or why
            with self._lock:
                self.is_gone = True
                reports = list(self._reports.values())
            if self._failure is None:
                self._failure = WorkerError("Ray ended before it was ready", why=why)
            failed = b"" if self._cpus else pickle.dumps(self._failure)
            for report in reports:
                report("failed" if failed else "died", f"Ray is gone: {why}", failed)
            self._up.set()

    def _start(self) -> bool:
        """Whether the relay is up; in a session of its own, so that Ctrl-C in a terminal is for the driver."""
        code = f"from autopart.search.execution.ray import serve; serve({self._theirs.fileno()}, {sys.argv[:1]!r})"
        paths = os.pathsep.join(p for p in [*sys.path, os.getcwd()] if p)
        with self._lock:
            if self._closed:
                return False
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[self._theirs.fileno()], stdin=subprocess.DEVNULL,
                stdout=self._log, stderr=self._log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths, **(LOOPBACK if self.is_local else {})},
            )  # fmt: skip
            self.pid = self._process.pid
        self._theirs.close()
        return self._comes("imported", IMPORT_S) and self._comes("up", IMPORT_S if self.is_local else CONNECT_S)

    def _comes(self, expected: str, seconds: float) -> bool:
        what = "Ray does not start" if self.is_local else f"no Ray answers at {self._settings['address']}"
        kind, value = self._ours.recv() if self._ours.poll(seconds) else ("late", f"no answer in {seconds:.0f} s")
        if kind != expected:
            self._failure = WorkerError(what, why=value, hint="Ray(address=...) of a running cluster, or Ray() without")
            self.kill()
        elif kind == "up":
            self._cpus = max(1, int(value))
            self._up.set()
        return kind == expected

    def _listen(self) -> None:
        while True:
            number, *event = self._ours.recv()
            with self._lock:
                report = self._reports[number]
            report(*event)

    def _bury(self) -> str:
        """Makes sure that relay and own Ray are gone; the last that Ray said."""
        self._theirs.close()
        if self._process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_S if self._closed else 2.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # whoever of its group is left
        code = self._process.wait()
        self._ours.close()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self._log.close()
        return f"the process that Ray knew ended with code {code}; its last words: {lines[-1][:300] if lines else ''}"


class _Worker:
    """What runs in a Ray worker process."""

    def __init__(self, task: bytes):
        self._error = b""
        try:
            self._worker = pickle.loads(task).worker()
        except MemoryError:
            raise
        except Exception as error:
            self._error = pickle.dumps(sendable(error))
        gc.freeze()

    def hired(self) -> tuple[int, bytes]:
        """Its process id, and what kept it from being ready."""
        return os.getpid(), self._error

    def run(self, work: bytes) -> bytes:
        """Some jobs; a pickled `Done`."""
        return pickle.dumps(run_chunk(self._worker, *pickle.loads(work)))


def serve(pipe_number: int, argv: list[str]) -> None:
    """The life of a relay: connects to Ray, and passes on until the driver's end of the pipe closes."""
    sys.argv[:] = argv  # Ray's workers look for modules where the script is
    pipe = Connection(pipe_number)
    with contextlib.suppress(EOFError, OSError):
        _Serving(pipe).serve()
    ray.shutdown()


class _Serving:
    """Actors, and what they are asked for."""

    def __init__(self, pipe: Connection):
        self._pipe, self._lock, self._actors = pipe, threading.Lock(), dict[int, Any]()

    def serve(self) -> None:
        """Until the pipe closes, or it is told to close."""
        _, task, settings = self._pipe.recv()
        self._pipe.send(("imported", ""))
        try:
            ray.init(log_to_driver=False, configure_logging=False, **settings)
            cpus = int(ray.cluster_resources().get("CPU", 1))
        except (RayError, OSError, ValueError, RuntimeError) as error:
            self._pipe.send(("failed", str(error)))
            return
        self._task, self._remote = ray.put(task), ray.remote(num_cpus=1)(_Worker)
        self._pipe.send(("up", cpus))
        while (message := self._pipe.recv())[0] != "close":
            getattr(self, message[0])(*message[1:])

    def hire(self, number: int) -> None:
        """Starts an actor."""
        self._actors[number] = self._remote.remote(self._task)
        self._then(number, self._actors[number].hired.remote(), self._hired)

    def give(self, number: int, ticket: int, work: bytes) -> None:
        """Jobs for an actor."""
        if number in self._actors:
            self._then(number, self._actors[number].run.remote(work), lambda body: ("answer", ticket, body))

    def end(self, number: int) -> None:
        """Kills an actor."""
        if number in self._actors:
            ray.kill(self._actors.pop(number))

    @staticmethod
    def _hired(found: tuple[int, bytes]) -> tuple[Any, ...]:
        pid, error = found
        return ("failed", "", error) if error else ("ready", pid)

    def _then(self, number: int, given: Any, report: Callable[[Any], tuple[Any, ...]]) -> None:
        """Reports on a task when it ends; called from Ray's threads."""

        def ended(future: Any) -> None:
            error = future.exception()
            event = report(future.result()) if error is None else ("died", str(error))
            with self._lock, contextlib.suppress(OSError):
                self._pipe.send((number, *event))

        given.future().add_done_callback(ended)
