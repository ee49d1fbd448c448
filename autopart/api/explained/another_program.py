"""`Lowered.what_if` of all that makes another program: a tactic, a schedule, a batch, a mesh, a device.

    print(lowered.what_if(ap.Recompute("blocks")))          what if ap.Recompute("blocks"), beside the schedule?
    print(lowered.what_if("FSDP(data)"))                    what if FSDP(data), in place of the schedule?
    print(lowered.what_if(batch=512))                       what if batch 512, by the same plan?
    print(lowered.what_if(device="tpu_v5p"))                what if device tpu_v5p, by the same plan?
    print(lowered.what_if(mesh=ap.Mesh({"data": 64})))      what if data=64, by the same schedule?

The function is lowered once more. What the schedule decided is taken from its plan, so that no search runs again, where
that applies: not on other axes, and not in every program that a tactic rewrites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import jax

from autopart.api.explained.what_if import WhatIf, both_counts, changed_layouts
from autopart.api.plan.plan_of import plan_of
from autopart.api.programs.rewritings import batch_dims
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.schedule_named import schedule_of
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import Traced
from autopart.base.errors import ArgumentError, PlanError
from autopart.core.mesh import Mesh


@dataclass(frozen=True)
class Remake:
    """How a program was made, from shapes: `again(schedule, mesh, args, kwargs)` lowers its function once more."""

    again: Callable[[Sequence[Tactic], Mesh, tuple[Any, ...], dict[str, Any]], Scheduled]
    schedule: Sequence[Tactic]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def with_batch(self, traced: Traced, batch: int) -> tuple[tuple[Any, ...], dict[str, Any], int]:
        """The arguments with another batch, and the size of the one there is."""
        program = traced.program
        dims = {program.argument_place[v] - len(traced.closed_over): dim for v, dim in batch_dims(program).items()}
        sizes = Counter(traced.in_avals[n + len(traced.closed_over)].shape[dim] for n, dim in dims.items())
        if not sizes:
            raise ArgumentError("what_if: no input was found that is data with a batch", hint="lower with other shapes")
        now, leaves = sizes.most_common(1)[0][0], self._leaves
        resized: dict[int, Any] = {}
        for n, dim in dims.items():
            aval = leaves[n]
            shape = list(aval.shape)
            if shape[dim] * batch % now:
                rows = f"an input of {shape[dim]} rows has a batch of {now}"
                raise ArgumentError(f"what_if: no whole number of rows for a batch of {batch}", why=rows)
            shape[dim] = shape[dim] * batch // now
            resized[id(aval)] = jax.ShapeDtypeStruct(tuple(shape), aval.dtype)
        args, kwargs = jax.tree.map(lambda x: resized.get(id(x), x), (self.args, self.kwargs))
        return args, kwargs, now

    @property
    def _leaves(self) -> list[Any]:
        """The shapes in the arguments, in the order of the program's own: static arguments have none."""
        return [x for x in jax.tree.leaves((self.args, self.kwargs)) if isinstance(x, jax.ShapeDtypeStruct)]


def what_if_made(
    traced: Traced, scheduled: Scheduled, remake: Remake | None, what: Any, batch: int | None, mesh: Mesh
) -> WhatIf:
    """Compares what is scheduled with what else would be; `mesh` is the one to lower for."""
    if remake is None:
        raise ArgumentError(
            "what_if: this program cannot be lowered again",
            why="it was not made by ap.jit(...).lower(...)",
            hint="ap.jit(fun, mesh, another schedule).lower(...) beside it",
        )
    own, said = scheduled.partitioning.mesh, list[str]()
    args, kwargs = remake.args, remake.kwargs
    if batch is not None:
        args, kwargs, now = remake.with_batch(traced, batch)
        said.append(f"batch {batch} in place of {now}")
    if mesh.shape != own.shape:
        said.append(str(mesh))
    elif mesh != own:
        said.append(f"device {mesh.device}")
    schedules: list[tuple[str, Sequence[Tactic]]]
    if what is None or isinstance(what, Tactic):
        added = [] if what is None else [what]
        said += map(_code_of, added)
        planned = [("by the same plan", [*plan_of(scheduled), *added])] if mesh.shape == own.shape else []
        schedules = [*planned, ("by the same schedule", [*remake.schedule, *added])]
    else:
        found = schedule_of("what_if", what)
        said.append(", ".join(tactic.name for tactic in found) or "nothing")
        schedules = [("in place of the schedule", found)]
    for n, (place, schedule) in enumerate(schedules):
        try:
            then = remake.again(schedule, mesh, args, kwargs)
        except PlanError:
            if n + 1 == len(schedules):
                raise
            continue
        return _compared(scheduled, then, said, place)
    raise AssertionError("the last schedule is taken or raises")


def _code_of(tactic: Tactic) -> str:
    """The tactic as it was written, without what it has by default."""
    if not is_dataclass(tactic):
        return tactic.name
    given = {f.name: getattr(tactic, f.name) for f in fields(tactic) if f.init and f.name != "name"}
    defaults = {f.name: f.default for f in fields(tactic)}
    said = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != defaults[name])
    return f"ap.{type(tactic).__name__}({said})"


def _compared(scheduled: Scheduled, then: Scheduled, said: Sequence[str], place: str) -> WhatIf:
    before, after = scheduled.device_local, then.device_local
    now, later = scheduled.estimate, then.estimate
    known = {text for report in scheduled.reports[-1:] for text in report.conflicts}
    fresh = Counter(text for report in then.reports[-1:] for text in report.conflicts if text not in known)
    return WhatIf(
        actions=tuple(said),
        before="",
        step_s=(now.step_s, later.step_s) if now and later else None,
        peak_bytes=(now.peak_bytes, later.peak_bytes) if now and later else None,
        collectives=both_counts(before, after),
        layouts=changed_layouts(before, after),
        fails=(),
        conflicts=tuple(f"{n} x {text}" if n > 1 else text for text, n in fresh.items()),
        given_up=(),
        place=place,
    )
