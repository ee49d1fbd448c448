"""A line that shows how a search is doing: rewritten on a terminal, now and then a new one in a log.

search batch, model  [#########-----------]  640/1000   81/s   best 2.04 s  21.2 GB (1.23 x memory)
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from autopart.search.evaluation.jobs import State
    from autopart.search.problem import Problem

BAR = 20
SECONDS_BETWEEN = 0.2
SECONDS_BETWEEN_LOGGED = 10.0
"""Where the stream is no terminal."""


class ProgressLine:
    """An observer of a problem that shows one line, a few times a second on a terminal."""

    def __init__(self, title: str, stream: TextIO | None = None):
        self._title, self._stream = one_line(title), stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._shown = 0.0 if self._rewrites else time.monotonic()

    def __call__(self, problem: Problem, state: State, is_best: bool) -> None:
        """Called for every evaluation."""
        now = time.monotonic()
        if now - self._shown >= (SECONDS_BETWEEN if self._rewrites else SECONDS_BETWEEN_LOGGED):
            self._shown = now
            self._write(problem, last=False)

    def close(self, problem: Problem) -> None:
        """Leaves the last line standing."""
        self._write(problem, last=True)

    def _write(self, problem: Problem, last: bool) -> None:
        start, end = ("\r", "\n" if last else "") if self._rewrites else ("", "\n")
        self._stream.write(start + self.line(problem) + end)
        self._stream.flush()

    def line(self, problem: Problem) -> str:
        """The line as it would be written now."""
        done, left, cost = problem.evaluations, problem.evaluations_left, problem.best.cost
        total = done + left
        share = done / total if 0 < total < float("inf") else 0.0
        bar = "#" * round(BAR * share) + "-" * (BAR - round(BAR * share))
        count = f"{done}/{total:.0f}" if total < float("inf") else f"{done}"
        memory = bytes_text(cost.peak_bytes) + ("" if cost.fits else f" ({1 + cost.excess:.2f} x memory)")
        rate = problem.evaluations_per_s
        return (
            f"search {self._title}  [{bar}]  {count}  {rate:.0f}/s  best {seconds_text(cost.step_s)}  {memory}"
            + "   " * self._rewrites
        )


class RefereeLine:
    """Says which finalist the referee looks at, and what it thinks of the last one; a line each.

    referee XlaCompile(topology='v5e:2x4')  2/7  found 2, estimated 56 ms ... 95.6 ms
    """

    def __init__(self, referee: str, total: int, stream: TextIO | None = None):
        self._title, self._total, self._stream = one_line(referee), total, stream or sys.stderr

    def begin(self, number: int, label: str, estimated_s: float) -> None:
        """Before finalist `number`, from 0."""
        what = f"{one_line(label)}, estimated {seconds_text(estimated_s)}"
        self._stream.write(f"referee {self._title}  {number + 1}/{self._total}  {what} ... ")
        self._stream.flush()

    def end(self, seconds: float | None, error: str) -> None:
        """After it: its seconds, or what the referee raised."""
        self._stream.write((seconds_text(seconds) if seconds is not None else one_line(error)) + "\n")
        self._stream.flush()
