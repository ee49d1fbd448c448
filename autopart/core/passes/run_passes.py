"""Runs passes one after the other, each verified and timed.

run_passes(program, [DeadCode(), Microbatches(4)])  ->  (program, reports)

DeadCode()           0.003 s    1204 -> 1180 ops
Microbatches(4)      0.011 s    1180 -> 1196 ops

run_optional_passes(program, IMPORT_PASSES)  leaves out what fails, and says so

LayerOrder()         left out: ValueError: could not broadcast ... (layer_order.py:71)
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autopart.base.errors import PartitionWarning
from autopart.base.user_line import warn
from autopart.core.passes.program_pass import Pass, pass_of
from autopart.core.passes.program_verifier import InvalidProgramError, verify_program
from autopart.core.program import Program


@dataclass(frozen=True)
class PassReport:
    """What a pass took and did: its name, seconds (without the verification), and the ops before and after it.

    remarks   what it left undone, with source lines
    left_out  why an optional pass did nothing where it should have: what it raised and where, or what was wrong with
              the program it made; else empty
    """

    name: str
    seconds: float
    ops_before: int
    ops_after: int
    remarks: tuple[str, ...] = ()
    left_out: str = ""

    def __str__(self) -> str:
        if self.left_out:
            return f"{self.name}  left out: {self.left_out}"
        did = f"{self.name}  {self.seconds:.3g} s  {self.ops_before} -> {self.ops_after} ops"
        return "\n  ".join([did, *self.remarks])


class PassWarning(PartitionWarning):
    """A pass that would have made the program faster was left out, since it failed: a mistake of autopart's."""


def _nothing(made: Pass, program: Program) -> None:
    """Looks at no program."""


def run_passes(
    program: Program, passes: Iterable[str | Pass], after: Callable[[Pass, Program], None] = _nothing
) -> tuple[Program, tuple[PassReport, ...]]:
    """The program after all passes, and a report for each. `after` sees the program after each pass, to print it.

    Raises `UnknownNameError` for a pass that nobody registered, and `InvalidProgramError` where the program is broken
    before the first pass or after one, or where one changed what a caller sees; the error names the pass.
    """
    todo = [pass_of(given) for given in passes]
    if todo:
        verify_program(program)
    reports: list[PassReport] = []
    for number, one in enumerate(todo, 1):
        try:
            program, report = _applied(one, program)
        except InvalidProgramError as error:
            raise error.blamed_on(f"{one!r} (pass {number} of {len(todo)})") from None
        reports.append(report)
        after(one, program)
    return program, tuple(reports)


def run_optional_passes(program: Program, passes: Iterable[Pass]) -> tuple[Program, tuple[PassReport, ...]]:
    """The same for passes that nobody asked for: they make a program faster or plainer, and it is right without them.

    A pass that raises, or makes a program that `run_passes` would refuse, is left out. Its report says so, and one
    `PassWarning` for all of them names the lines, so that a mistake is reported and ends nobody's work.
    Raises `InvalidProgramError` where the program is broken before the first pass.
    """
    verify_program(program)
    reports: list[PassReport] = []
    for one in passes:
        try:
            program, report = _applied(one, program)
        except Exception as error:  # whatever went wrong in optional work, the program before it is right
            report = PassReport(repr(one), 0.0, program.op_count, program.op_count, left_out=_told(error))
        reports.append(report)
    left_out = {report.name: report.left_out for report in reports if report.left_out}
    if left_out:
        text = "passes of autopart failed and were left out; the program is right without them, perhaps slower"
        lines = [f"{name}: {why}" for name, why in left_out.items()]
        warn("\n  ".join([f"{text}. Please report", *lines]), PassWarning)
    return program, tuple(reports)


def _applied(one: Pass, program: Program) -> tuple[Program, PassReport]:
    began = time.perf_counter()
    made = one.apply(program)
    seconds = time.perf_counter() - began
    _check_made(program, made)
    return made, PassReport(repr(one), seconds, program.op_count, made.op_count, one.remarks(program, made))


def _told(error: Exception) -> str:
    """An error in a line, with the innermost line of Python that it came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(frame.filename).name}:{frame.lineno})"


def _check_made(before: Program, after: Program) -> None:
    if after is before:
        return
    verify_program(after)
    for what, seen in _SEEN_BY_CALLERS.items():
        if seen(before) != seen(after):
            raise _others(what)
    if not before.tags.keys() <= after.tags.keys():
        raise _others("names of the tags")


def _others(what: str) -> InvalidProgramError:
    return InvalidProgramError(
        f"the {what} are others than before the pass",
        why="callers, tactics and donated buffers refer to them",
        hint="a pass rewrites what is between the arguments and the outputs",
    )


_SEEN_BY_CALLERS: dict[str, Callable[[Program], object]] = {
    "names of the arguments": lambda p: p.argument_names,
    "types of the arguments": lambda p: [p.type_of(v) for v in p.arguments],
    "names of the outputs": lambda p: p.output_names,
    "types of the outputs": lambda p: [p.type_of(v) for v in p.outputs],
    "ties": lambda p: p.ties,
    "donated arguments": lambda p: p.donated,
}
