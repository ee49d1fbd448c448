"""The wave loop that all kinds of workers share: give jobs, take results, replace who dies, end who holds up.

    driver  --give-->  handle 0 .. handle n        each looks after one worker, in threads of its own
       ^---- ready, answer, died, failed ----'     one queue of events; only the driver's thread decides

Jobs are given when the first worker is ready; others join when they are. No thread but the handles' starts, feeds or
ends a process, so Ctrl-C, which only the main thread hears, cannot leave one half started.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from autopart.base.errors import PartitionWarning
from autopart.base.user_line import warn
from autopart.search.execution.executor import Lost, WorkerError
from autopart.search.execution.job_queue import Done, JobQueue, Throughput

START_S = 300.0
"""Seconds in which a worker must be ready; kernels that are not in Numba's cache compile for a minute."""

STOPPED_S = 5.0
"""Seconds after which a worker that is stopped (SIGSTOP) is ended and replaced."""

MOST_STARTS = 3
"""Times that a worker is started; one that dies each time before it is ready is given up."""

MOST_LOST = 3
"""Jobs in a row that are lost before the search gives up: the fault is not theirs."""

TICK_S = 0.5
"""Seconds between looks at the clock and at stopped workers."""


class WorkerWarning(PartitionWarning):
    """A search goes on with fewer workers than it was asked to."""


@dataclass(frozen=True)
class Event:
    """What a handle reports: `ready`; an `answer` (a pickled `Done`) to `ticket`; `died`, with how; `failed`: an error.

    A `failed` one's body is a pickled error: the task cannot be worked on, and no other worker could.
    """

    handle: Handle
    kind: Literal["ready", "answer", "died", "failed"]
    body: bytes = b""
    ticket: int = 0
    how: str = ""


class Handle(Protocol):
    """One worker, seen from the driver. No method waits for the worker."""

    @property
    def pid(self) -> int:
        """Its process id, 0 until it is known."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether its process is stopped, as by SIGSTOP."""
        ...

    def give(self, ticket: int, jobs: Sequence[Any], seconds: float, told: Sequence[bytes]) -> None:
        """Jobs to run, and pickled `Done`s of other workers; an `answer` or `died` follows."""
        ...

    def end(self) -> None:
        """Kills it."""
        ...

    def join(self) -> None:
        """Waits, not for long, until it is gone."""
        ...


@dataclass(eq=False)
class _Place:
    """A worker's place: whoever fills it now, the chunks it has, oldest first, and what it is told with the next."""

    handle: Handle
    starts: int = 1
    ready: bool = False
    chunks: dict[int, range] = field(default_factory=dict)
    told: list[bytes] = field(default_factory=list)
    stopped_since: float | None = None


Hire = Callable[["queue.SimpleQueue[Event]"], Handle]
"""Begins to start a worker that reports to a queue."""


class CrewSession:
    """Workers that hold one task; see `Session`. They have begun to start, and `await_first` waits for the first."""

    def __init__(self, hire: Hire, workers: int, in_flight: int = 1):
        self._hire, self._in_flight, self._pace, self._lost = hire, in_flight, Throughput(), 0
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._tickets, self._places, self._looked = itertools.count(), list[_Place](), 0.0
        self._leaving: list[Handle] = []
        self._was_ready = False
        with contextlib.ExitStack() as unless_hired:
            unless_hired.callback(self.close)
            for _ in range(workers):
                self._places.append(_Place(hire(self._events)))
            unless_hired.pop_all()

    def await_first(self) -> None:
        """Waits until a worker is ready; raises `WorkerError`, or what the task raised in a worker."""
        if not self._was_ready:
            self._await(lambda: any(place.ready for place in self._places))
            self._was_ready = True

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, for whoever wants to see or kill one; waits until all are ready."""
        self._await(lambda: all(place.ready for place in self._places))
        return [place.handle.pid for place in self._places]

    def _await(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + START_S
        while not condition():
            self._event()
            if time.monotonic() > until:
                raise WorkerError(f"no worker was ready within {START_S:.0f} s", hint='executor="serial"')

    def run(self, jobs: Sequence[Any], deadline: float) -> Iterator[tuple[int, Any]]:
        """See `Session`."""
        self.await_first()
        for place in self._places:
            if place.chunks:  # of a wave that was left before its end
                self._replace(place)
        waiting = JobQueue(jobs, self._in_flight * len(self._places), self._pace, deadline)
        while True:
            self._give(waiting, jobs)
            if waiting.ended or waiting.overdue:
                return
            for index, result in self._happened(waiting):
                self._count(result)
                yield index, result

    def _give(self, waiting: JobQueue, jobs: Sequence[Any]) -> None:
        """Jobs for every worker that can take some, one chunk each before anyone has two."""
        for load in range(self._in_flight):
            for place in self._places:
                if place.ready and len(place.chunks) <= load and (chunk := waiting.chunk()):
                    ticket = next(self._tickets)
                    place.chunks[ticket] = chunk
                    told, place.told = place.told, []
                    place.handle.give(ticket, jobs[chunk.start : chunk.stop], waiting.seconds_left, told)

    def _happened(self, waiting: JobQueue) -> Iterator[tuple[int, Any]]:
        """Results of the next event, if it brings any."""
        found = self._event()
        if found is None:
            return
        place, event = found
        if event.kind == "answer":
            done: Done = pickle.loads(event.body)
            chunk = place.chunks.pop(event.ticket)
            if isinstance(done.error, MemoryError):
                self._let_go(place, waiting)
            yield from waiting.done(chunk, done)
            self._tell_others(place, event.body)
        else:
            chunks = list(place.chunks.values())
            self._replace(place)
            for chunk in chunks[1:]:
                waiting.back(chunk)  # it was queued behind the chunk over which the worker died
            for chunk in chunks[:1]:
                yield from waiting.died(chunk, event.how)

    def _tell_others(self, place: _Place, answer: bytes) -> None:
        """What a worker found goes to the others with their next jobs."""
        others = [other for other in self._places if other is not place]
        if others and self._pace.worth_telling(len(others)):
            for other in others:
                other.told.append(answer)

    def _let_go(self, place: _Place, waiting: JobQueue) -> None:
        """Replaces a worker that is out of memory; what is queued there goes to others."""
        chunks = list(place.chunks.values())
        self._replace(place)
        for chunk in chunks:
            waiting.back(chunk)

    def _count(self, result: Any) -> None:
        self._lost = self._lost + 1 if isinstance(result, Lost) else 0
        if self._lost >= MOST_LOST:
            raise WorkerError(f"workers died over {self._lost} jobs in a row", why=result.why)

    def _event(self) -> tuple[_Place, Event] | None:
        """The next answer or death of a worker that was ready, if one comes soon; starting up is dealt with here."""
        self._look_for_stopped()
        try:
            event = self._events.get(timeout=TICK_S)
        except queue.Empty:
            return None
        place = next((p for p in self._places if p.handle is event.handle), None)
        if place is None:
            return None
        if event.kind == "failed":
            raise pickle.loads(event.body)
        if place.ready:
            return place, event
        if event.kind == "ready":
            place.ready = True
        else:
            self._start_again(place, event.how)
        return None

    def _start_again(self, place: _Place, how: str) -> None:
        starts = place.starts + 1
        if starts <= MOST_STARTS:
            self._replace(place)
            place.starts = starts
            return
        self._leaving.append(place.handle)
        self._places.remove(place)
        if not self._places:
            raise WorkerError("workers die before they are ready", why=how, hint='executor="serial"')
        left = len(self._places)
        text = f"the search goes on with {left} workers: one died {MOST_STARTS} times as it started ({how})"
        warn(text, WorkerWarning)

    def _replace(self, place: _Place) -> None:
        place.handle.end()
        self._leaving.append(place.handle)
        place.handle, place.ready, place.starts, place.stopped_since = self._hire(self._events), False, 1, None
        place.chunks.clear()

    def _look_for_stopped(self) -> None:
        """Ends workers that are stopped for `STOPPED_S`; their deaths are reported as any other."""
        now = time.monotonic()
        if now - self._looked < TICK_S:
            return
        self._looked = now
        for place in self._places:
            if not place.handle.is_stopped:
                place.stopped_since = None
            elif place.stopped_since is None:
                place.stopped_since = now
            elif now - place.stopped_since >= STOPPED_S:
                place.handle.end()

    def close(self) -> None:
        """See `Session`."""
        leaving, self._leaving = [*self._leaving, *(place.handle for place in self._places)], []
        for handle in leaving:
            handle.end()
        for handle in leaving:
            handle.join()
