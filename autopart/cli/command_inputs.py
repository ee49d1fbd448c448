"""What the command line is given, as values: programs, meshes, schedules, layouts.

model.mlir                       a StableHLO file
train:example, train.py:example  example() -> (fun, args) or (fun, args, options of ap.jit)
batch=16,model=2                 a mesh
plan.json                        a schedule: a plan
tactics.py, tactics.py:mine      a schedule: the list `schedule`, or `mine`, of a Python file
DP(batch)+Megatron(model)        a schedule: a named one
batch+model,_                    a layout: two axes tile dim 0, none tiles dim 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from autopart.api.jit import jit, known_options
from autopart.api.lowered import Lowered
from autopart.api.plan.plan import Plan
from autopart.api.schedule_named import named_object
from autopart.api.schedule_named import schedule_of as schedule_named
from autopart.api.tactic import Tactic
from autopart.api.trace import LoadedProgram, Traced, load
from autopart.cli.python_file import check_not_python
from autopart.core.arguments import is_sequence, shown
from autopart.core.errors import ArgumentError, MeshError
from autopart.core.mesh import Mesh


@dataclass(frozen=True)
class Given:
    """A program: what to partition, for which arguments, with which keywords of `ap.jit`."""

    fun: Callable[..., Any] | LoadedProgram
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def traced(self) -> Traced:
        """It, before any schedule, as it is lowered for the platform that is here."""
        return jit(self.fun, Mesh({"device": 1}), **self.options).traced(self.args, {})

    def lowered(self, mesh: Mesh, schedule: Sequence[Tactic], **options: Any) -> Lowered:
        """It, partitioned."""
        return jit(self.fun, mesh, schedule, **{**self.options, **options}).lower(*self.args)


def program_of(text: str) -> Given:
    """The program that PROGRAM names. Raises `PartitionError` where there is none."""
    if ":" not in text or Path(text).exists():
        check_not_python(text)
        return Given(load(text))
    made = _called(text)
    match made:
        case (fun, args) if callable(fun) and is_sequence(args):
            return Given(cast("Callable[..., Any]", fun), tuple(args))
        case (fun, args, Mapping() as options) if callable(fun) and is_sequence(args):
            return Given(cast("Callable[..., Any]", fun), tuple(args), known_options(f"{text}()", dict(options)))
        case _:
            raise ArgumentError(
                f"{text}() returned {shown(made)}", hint="(fun, args), or (fun, args, options of ap.jit)"
            )


def _called(text: str) -> Any:
    found = named_object(text)
    if not callable(found):
        raise ArgumentError(f"{text} is {shown(found)}", hint="a function without arguments that returns (fun, args)")
    return found()


def mesh_of(text: str, device: str | None) -> Mesh:
    """The mesh that `batch=16,model=2` means."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, is_set, size = part.partition("=")
        if not is_set or not size.strip().isdecimal():
            raise MeshError(f"{part!r} is no axis of a mesh", hint="name=size for each axis, as in batch=16,model=2")
        if name.strip() in axes:
            raise MeshError(f'the axis "{name.strip()}" is there twice')
        axes[name.strip()] = int(size)
    return Mesh(axes, device=device)


def schedule_of(texts: Sequence[str]) -> Sequence[Tactic]:
    """The schedule that `--schedule` says, once or several times in a row. A plan stands alone."""
    found = [schedule_named(text, text) for text in texts]
    plans = [schedule for schedule in found if isinstance(schedule, Plan)]
    if plans and len(found) > 1:
        raise ArgumentError("a plan is a whole schedule", hint="one --schedule, or ap.Replay in a Python file")
    return plans[0] if plans else [tactic for schedule in found for tactic in schedule]


def layout_of(text: str) -> tuple[tuple[str, ...] | None, ...]:
    """The axes that tile each dim, None where none does."""
    dims = [tuple(axis.strip() for axis in dim.split("+")) for dim in text.split(",")]
    return tuple(None if dim in (("_",), ("",)) else dim for dim in dims)


def numbers_of(text: str) -> tuple[int, ...]:
    """The sizes in `8,128`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise ArgumentError(f"{text!r} is no shape", hint="sizes with commas between them, as in 8,128")
    return tuple(map(int, parts))
