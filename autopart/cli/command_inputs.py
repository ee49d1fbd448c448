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

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from autopart.api.jitted.any_jit import any_jit
from autopart.api.jitted.jit import known_options
from autopart.api.jitted.lowered import Lowered
from autopart.api.jitted.method import Method
from autopart.api.plan.plan import Plan
from autopart.api.tactics.schedule_named import named_object
from autopart.api.tactics.schedule_named import schedule_of as schedule_named
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import LoadedProgram, Traced, load
from autopart.base.arguments import is_sequence, shown, takes
from autopart.base.errors import ArgumentError, MeshError
from autopart.cli.python_file import check_not_python
from autopart.core.mesh import Mesh


@dataclass(frozen=True)
class Given:
    """A program: what to partition, for which arguments, with which keywords of `ap.jit`."""

    fun: Callable[..., Any] | LoadedProgram
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def traced(self) -> Traced:
        """It, before any schedule, as it is lowered for the platform that is here."""
        return any_jit(self.fun, Mesh({"device": 1}), self.args, **self.options).traced(self.args, {})

    def lowered(self, mesh: Mesh, schedule: Sequence[Tactic], **options: Any) -> Lowered:
        """It, partitioned."""
        return any_jit(self.fun, mesh, self.args, schedule, **{**self.options, **options}).lower(*self.args)


def program_of(text: str, arguments: str | None = None) -> Given:
    """The program that PROGRAM names, for the arguments that a second function returns where one is named.

    Raises `PartitionError` where there is none.
    """
    if ":" not in text or Path(text).exists():
        check_not_python(text)
        given = Given(load(text))
    else:
        given = _given(text, _called(text, "(fun, args)"))
    if arguments is None:
        return given
    args = _called(arguments, "arguments")
    if not is_sequence(args):
        raise ArgumentError(f"{arguments}() returned {shown(args)}", hint="a tuple of the program's arguments")
    return dataclasses.replace(given, args=tuple(args))


def _given(text: str, made: Any) -> Given:
    match made:
        case (fun, args) if callable(fun) and is_sequence(args):
            options: Mapping[str, Any] = {}
        case (fun, args, Mapping() as options) if callable(fun) and is_sequence(args):
            known_options(f"{text}()", dict(options))
        case _:
            raise ArgumentError(
                f"{text}() returned {shown(made)}", hint="(fun, args), or (fun, args, options of ap.jit)"
            )
    if isinstance(fun, Method):
        raise ArgumentError(
            f"{text}() returned a function that is partitioned already",
            why="--mesh and --schedule say how it is partitioned",
            hint="the function itself, without ap.jit, ap.nnx.jit or ap.filter_jit around it",
        )
    return Given(cast("Callable[..., Any]", fun), tuple(args), options)


def _called(text: str, what: str) -> Any:
    found = named_object(text)
    if not callable(found):
        raise ArgumentError(f"{text} is {shown(found)}", hint=f"a function without arguments that returns {what}")
    if not takes(found, 0):
        raise ArgumentError(f"{text} takes arguments", hint=f"a function without arguments that returns {what}")
    return found()


def mesh_of(text: str, device: str | None) -> Mesh:
    """The mesh that `batch=16,model=2` means."""
    return Mesh(sizes_of(text), device=device)


def sizes_of(text: str, what: str = "axis", example: str = "batch=16,model=2") -> dict[str, int]:
    """The whole numbers in `batch=16,model=2`, by name."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, is_set, size = part.partition("=")
        if not is_set or not size.strip().isdecimal():
            raise MeshError(f"{part!r} is no {what} with its size", hint=f"name=size for each {what}, as in {example}")
        if name.strip() in sizes:
            raise MeshError(f'the {what} "{name.strip()}" is there twice')
        sizes[name.strip()] = int(size)
    return sizes


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


def prices_of(text: str) -> dict[str, float]:
    """The prices in `h100=2.5,tpu_v5p=4.2`, by name."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, figure = part.partition("=")
        try:
            found[name.strip()] = float(figure)
        except ValueError:
            raise ArgumentError(f"{part!r} is no price", hint="device=price, as in h100=2.5,tpu_v5p=4.2") from None
    return found


def numbers_of(text: str, said: str, hint: str) -> tuple[int, ...]:
    """The whole numbers in `8,128`; an error says what the text was said to be."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise ArgumentError(f"{text!r} is no {said}", hint=hint)
    return tuple(map(int, parts))
