"""Makes a failing random program small.

    python -m tests.property.shrink 1234               program 1234, as it fails in its batch
    python -m tests.property.shrink 1234 --isolated    each attempt in a process of its own: for crashes

It repeats the actions that the batch took on this program alone, then leaves out whatever is not needed for the
failure: results, steps from the last to the first, actions. It prints what is left: seed, mesh, actions as code, steps,
and the StableHLO text.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=8"

import jax

import autopart as ap
from autopart.core.table.actions import Action, Atomic, Propagate, Tile
from tests.property.batches import PROGRAMS_PER_MODULE, Batch, run_batch
from tests.property.random_programs import RandomProgram
from tests.property.random_schedules import Replay, by_position, values_of


@dataclass(frozen=True)
class Case:
    """One program with the actions taken on it; their values are positions in `random_schedules.values_of`."""

    program: RandomProgram
    mesh: tuple[tuple[str, int], ...]
    actions: tuple[Action, ...]

    @property
    def batch(self) -> Batch:
        return Batch((self.program,), dict(self.mesh))

    def to_json(self) -> str:
        """The case in a line."""
        actions = [[type(a).__name__, *vars(a).values()] for a in self.actions]
        p = self.program
        return json.dumps([p.seed, p.count, sorted(p.without), p.only, self.mesh, bool(p.mesh), actions])

    @staticmethod
    def from_json(text: str) -> Case:
        """The case that `to_json` wrote."""
        seed, count, without, only, mesh, by_hand, actions = json.loads(text)
        kinds = {kind.__name__: kind for kind in (Tile, Atomic, Propagate)}
        sizes = tuple((axis, size) for axis, size in mesh)
        kept = None if only is None else tuple(only)
        program = RandomProgram(seed, count, frozenset(without), kept, sizes if by_hand else ())
        return Case(program, sizes, tuple(kinds[k](*fields) for k, *fields in actions))


Failure = Callable[[Case], str]
"""What goes wrong with a case, in a line; empty if nothing does."""


def failure_here(case: Case) -> str:
    """Runs the case in this process."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run_batch, case.batch, [Replay(case.program, case.actions)])
        error = done.exception()
    if error is not None:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "; ".join(f.message for f in done.result() if not f.excepted)


def failure_elsewhere(case: Case) -> str:
    """Runs the case in a process of its own, whose death is a failure too."""
    command = [sys.executable, "-m", "tests.property.shrink", "--try", case.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"the process ended with {done.returncode}"


def case_of(seed: int) -> Case:
    """Program number `seed` of its batch, with the actions that the batch's schedule took on it."""
    batch = Batch.numbered(seed // PROGRAMS_PER_MODULE, by_hand=True)
    program = batch.programs[seed % PROGRAMS_PER_MODULE]
    tactics = batch.schedule()
    lowered = ap.jit(batch.__call__, ap.Mesh(dict(batch.mesh)), tactics).lower(batch.inputs())
    taken = [action for tactic in tactics for action in tactic.actions]
    return Case(program, tuple(batch.mesh.items()), by_position(taken, lowered.program.program, program.name))


def shrink(case: Case, failure: Failure) -> Case:
    """The smallest case found that still fails, leaving out one thing after the other until nothing can go."""
    smaller = True
    while smaller:
        smaller = False
        for attempt in _attempts(case):
            if failure(attempt):
                case, smaller = attempt, True
                break
    return case


def _attempts(case: Case) -> Iterator[Case]:
    """Cases with one thing less, the largest savings first."""
    program, actions = case.program, case.actions
    yield from (
        replace(case, actions=part)
        for part in (actions[: len(actions) // 2], actions[len(actions) // 2 :])
        if part != actions
    )
    for step in reversed(range(len(program.steps()))):
        if step not in program.without:
            yield _renumbered(case, replace(program, without=program.without | {step}))
    if program.only is None or len(program.only) > 1:
        for result in range(len(program.roundings())):
            kept = program.only[result] if program.only else result
            yield _renumbered(case, replace(program, only=(kept,)))
    for i in range(len(actions)):
        yield replace(case, actions=actions[:i] + actions[i + 1 :])


def _renumbered(case: Case, program: RandomProgram) -> Case:
    """The case with a smaller program, its actions on the values that have the same type and order in both.

    Positions shift when ops go; a value is found again by counting from the end or the start those of its type.
    """
    before, after = _types(case.program, case), _types(program, case)
    actions: list[Action] = []
    for action in case.actions:
        if isinstance(action, Propagate):
            actions.append(action)
            continue
        kind = before[action.value]
        alike = [i for i, other in enumerate(after) if other == kind]
        rank = sum(other == kind for other in before[: action.value])
        if rank < len(alike):
            actions.append(replace(action, value=alike[rank]))
    return replace(case, program=program, actions=tuple(actions))


def _types(program: RandomProgram, case: Case) -> list[str]:
    """The kind of op and the type of each value the program reaches."""
    batch = Batch((program,), dict(case.mesh))
    whole = ap.jit(batch.__call__, ap.Mesh(dict(case.mesh)), []).lower(batch.inputs()).program.program
    return [f"{whole.spec(int(whole.value_op[v])).kind} {whole.type_of(v)}" for v in values_of(whole, program.name)]


def as_text(case: Case, failure: str) -> str:
    """The case for a reader."""
    batch = case.batch
    lowered = ap.jit(batch.__call__, ap.Mesh(dict(case.mesh)), [Replay(case.program, case.actions)]).lower(
        batch.inputs()
    )
    lines = [
        f"seed {case.program.seed} on {dict(case.mesh)}: {failure}",
        f"case     {case.to_json()}",
        f"steps    {' '.join(case.program.steps())}",
        lowered.metadata.as_schedule(),
        str(jax.jit(batch.__call__).lower(batch.inputs()).as_text()),
        lowered.as_text("hlo"),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.property.shrink")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--isolated", action="store_true", help="each attempt in a process of its own")
    parser.add_argument("--try", dest="case", help="run one case in JSON and print what goes wrong")
    options = parser.parse_args()
    if options.case:
        print(failure_here(Case.from_json(options.case)))
        return
    failure = failure_elsewhere if options.isolated else failure_here
    case = case_of(options.seed)
    found = failure(case)
    if not found:
        sys.exit(f"program {options.seed} does not fail alone: {case.to_json()}")
    case = shrink(case, failure)
    print(as_text(case, failure(case)))


if __name__ == "__main__":
    main()
