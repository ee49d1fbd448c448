"""Runs passes one after the other, each verified and timed.

run_passes(program, [DeadCode(), Microbatches(4)])  ->  (program, reports)

DeadCode()           0.003 s    1204 -> 1180 ops
Microbatches(4)      0.011 s    1180 -> 1196 ops
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autopart.core.passes.program_pass import Pass, pass_of
from autopart.core.passes.program_verifier import InvalidProgramError, verify_program
from autopart.core.program import Program


@dataclass(frozen=True)
class PassReport:
    """What a pass took and did: its name, seconds (without the verification), and the ops before and after it.

    remarks   what it left undone, with source lines
    """

    name: str
    seconds: float
    ops_before: int
    ops_after: int
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        did = f"{self.name}  {self.seconds:.3g} s  {self.ops_before} -> {self.ops_after} ops"
        return "\n  ".join([did, *self.remarks])


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
        began = time.perf_counter()
        made = one.apply(program)
        seconds = time.perf_counter() - began
        try:
            _check_made(program, made)
        except InvalidProgramError as error:
            raise error.blamed_on(f"{one!r} (pass {number} of {len(todo)})") from None
        reports.append(PassReport(repr(one), seconds, program.op_count, made.op_count, one.remarks(program)))
        program = made
        after(one, program)
    return program, tuple(reports)


def _check_made(before: Program, after: Program) -> None:
    if after is before:
        return
    verify_program(after)
    for what, seen in _SEEN_BY_CALLERS.items():
        if seen(before) != seen(after):
            raise InvalidProgramError(
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
    "names of the tags": lambda p: set(p.tags),
}
