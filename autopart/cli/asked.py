"""What a command is asked about: a program over a mesh, by a schedule, rewritten or not.

autopart estimate train.py:example --mesh data=8 --schedule "FSDP(data)" --microbatch 4 --recompute blocks

    program, mesh     what is partitioned, over what
    schedule          tactics, by file or name
    microbatch        one number: the step in a loop over so many parts of its batch; a search chooses among several
    recompute         what is kept for late uses; a search chooses among several
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autopart.api.jitted.lowered import Lowered
from autopart.api.plan.plan import Plan
from autopart.api.programs.rewritings import batch_inputs
from autopart.api.tactics.microbatch import Microbatch
from autopart.api.tactics.recompute import Recompute
from autopart.api.tactics.tactic import Tactic
from autopart.base.errors import ArgumentError, MeshError
from autopart.cli.command_inputs import Given, mesh_of, numbers_of, program_of, schedule_of
from autopart.core.mesh import Mesh
from autopart.costmodel.hardware.devices import devices


@dataclass(frozen=True)
class Asked:
    """The words of a command line; what they name is loaded when it is asked for, the mesh without the program."""

    program: str
    over: str
    device: str | None = None
    schedules: Sequence[str] = ()
    microbatches: str | None = None
    recompute: Sequence[str] = ()
    arguments: str | None = None

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The mesh."""
        return mesh_of(self.over, self.device)

    @functools.cached_property
    def given(self) -> Given:
        """The program with its arguments."""
        return program_of(self.program, self.arguments)

    @functools.cached_property
    def schedule(self) -> Sequence[Tactic]:
        """The tactics, without those that rewrite the program."""
        return schedule_of(self.schedules)

    @functools.cached_property
    def microbatch(self) -> tuple[int, ...]:
        """Numbers of microbatches."""
        hint = "4, or numbers of which a search chooses, as in 1,2,4"
        steps = numbers_of(self.microbatches, "number of microbatches", hint) if self.microbatches else ()
        if 0 in steps:
            raise ArgumentError(f"--microbatch {self.microbatches}: 0 microbatches", hint="1 is the whole batch")
        return steps

    def check_device(self, why: str) -> None:
        """Raises `MeshError` where the mesh names no device."""
        if self.mesh.device is None:
            raise MeshError(why, hint=f"--device, one of {', '.join(sorted(devices()))}")

    def by(self, schedules: Sequence[str]) -> Asked:
        """The same program and mesh by another schedule alone."""
        return dataclasses.replace(self, schedules=tuple(schedules), microbatches=None, recompute=())

    def words(self, uneven: str = "", stages: str = "", **changed: Any) -> list[str]:
        """The words again, with some changed, for a shell."""
        new = dataclasses.replace(self, **changed)
        given = {"--mesh": new.over, "--device": new.device, "--args": new.arguments, "--microbatch": new.microbatches}
        words = [
            new.program,
            *(
                w
                for name, text in {**given, "--uneven": uneven, "--stages": stages}.items()
                if text
                for w in (name, text)
            ),
        ]
        words += [word for schedule in new.schedules for word in ("--schedule", schedule)]
        return words + [word for policy in new.recompute for word in ("--recompute", policy)]

    def lowered(self, **options: Any) -> Lowered:
        """The program, rewritten and partitioned; `options` are those of `ap.jit`."""
        return self.given.lowered(self.mesh, self.tactics(), **options)

    def searched(self, search: Tactic, **options: Any) -> Lowered:
        """The same with a search behind the schedule, which then chooses how the program is rewritten."""
        return self.given.lowered(self.mesh, [*self.schedule, search], **options)

    def tactics(self) -> Sequence[Tactic]:
        """The schedule, with the tactics that rewrite the program before it."""
        rewriting: list[Tactic] = []
        if len(self.microbatch) > 1:
            raise ArgumentError(
                f"--microbatch has {len(self.microbatch)} numbers",
                why="the step is in one loop over microbatches",
                hint="one number; autopart search chooses among several",
            )
        if self.microbatch and self.microbatch != (1,):
            rewriting.append(Microbatch(self._batch(), self.microbatch[0]))
        if self.recompute:
            rewriting.append(Recompute(self.recompute[0] if len(self.recompute) == 1 else list(self.recompute)))
        if rewriting and isinstance(self.schedule, Plan):
            raise ArgumentError(
                "a plan is a whole schedule", why="it says how the program is rewritten", hint="the plan alone"
            )
        return [*rewriting, *self.schedule] if rewriting else self.schedule

    def _batch(self) -> dict[str, Any]:
        """The inputs with a batch, with its dim, as a search finds them."""
        found = batch_inputs(self.given.traced().program, self.microbatch)
        if not found:
            raise ArgumentError(
                "the program has no batch that could be cut into microbatches",
                why="no input has a dim that data parallelism would tile",
                hint="ap.Microbatch({...}, steps) in a Python file, as --schedule FILE.py",
            )
        return dict(found)
