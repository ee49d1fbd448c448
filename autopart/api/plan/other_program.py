"""A program that a plan was not made for, and that is the same in structure: what of one is what of the other.

    plan                      here                          so
    x f32[64,512]             x f32[128,512]                other sizes: the same dims are tiled, where axes divide them
    state/params/up           s/params/up                   renamed: a tree of the same paths and types
    blocks/0/up, blocks/1/up  blocks/0/up, ..., blocks/2/up one layer more: blocks/2/up is decided as blocks/1/up is,
                                                            and blocks/2/mlp/0/w as blocks/1/mlp/0/w

Everything else is another program, and an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autopart.api.tracing.names import OUTPUTS
from autopart.base.errors import CONTINUED, PlanError
from autopart.core.program import Program
from autopart.core.repeats.colours import path_without_digits

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan, PlanArray

LISTED = 8
"""Differences that an error lists."""

_SIZES = re.compile(r"\d+(?=[,\]])")


@dataclass(frozen=True)
class OtherProgram:
    """How a program differs from the plan's; all empty where it does not.

    renamed   names of the plan's inputs and outputs -> names here, where they are others
    sizes     (name, type in the plan, type here) of what has other sizes
    like      new inputs -> the plan's input that each is decided as
    """

    renamed: Mapping[str, str]
    sizes: tuple[tuple[str, str, str], ...]
    like: Mapping[str, str]

    @property
    def is_same(self) -> bool:
        """True where every value has the name and the type that it had."""
        return not (self.renamed or self.sizes or self.like)

    @staticmethod
    def of(plan: Plan, program: Program) -> OtherProgram:
        """Raises `PlanError` where an input that the plan decides about has no counterpart."""
        if plan.program == program.fingerprint:
            return OtherProgram({}, (), {})
        here = _types(program.argument_names, program, program.arguments)
        there = {a.name: a.type for a in plan.inputs}
        renamed = _renamed(plan, plan.inputs, here)
        decided = _decided(plan)
        missing = [a.name for a in decided if renamed.get(a.name, a.name) not in here]
        now = {a.name: here[renamed.get(a.name, a.name)] for a in decided if a.name not in missing}
        other = [a for a in decided if a.name in now and without_sizes(now[a.name]) != without_sizes(a.type)]
        if missing or other:
            lines = [f"{name} is missing" for name in missing]
            lines += [f"{a.name} is {now[a.name]}, was {a.type}" for a in other]
            counts = [f"{len(missing)} of its {len(plan.inputs)} inputs missing"] if missing else []
            counts += [f"{len(other)} of another type"] if other else []
            raise PlanError(
                f"the plan is of another program: {', '.join(counts)}",
                why=listed(lines),
                hint="the program it was made for, or plan this one",
            )
        taken = {renamed.get(name, name) for name in there}
        sizes = tuple((a.name, a.type, now[a.name]) for a in decided if now[a.name] != a.type)
        outputs = _types([f"{OUTPUTS}/{n}".rstrip("/") for n in program.output_names], program, program.outputs)
        named = [_with_name(a, f"{OUTPUTS}/{a.name}".rstrip("/")) for a in plan.outputs]
        return OtherProgram(
            {**renamed, **_renamed(plan, named, outputs)}, sizes, dict(_like(decided, here, taken))
        )  # fmt: skip

    def lines(self) -> list[str]:
        """What differs, for readers."""
        found = [f"{name} is {now}, was {was}" for name, was, now in self.sizes]
        found += [f"{now} was {was}" for was, now in self.renamed.items()]
        return found + [f"{new} is new, and decided as {old}" for new, old in self.like.items()]


def listed(lines: Sequence[str]) -> str:
    """The first of some lines, and how many more there are."""
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return CONTINUED.join([*lines[:LISTED], *more])


def _types(names: Sequence[str], program: Program, values: Sequence[int]) -> dict[str, str]:
    return {name: str(program.type_of(value)) for name, value in zip(names, values, strict=True)}


def without_sizes(type_: str) -> str:
    """The text of a type without its sizes: f32[_,_]."""
    return _SIZES.sub("_", type_)


def _with_name(array: PlanArray, name: str) -> PlanArray:
    return type(array)(name, array.type, array.spec)


def _decided(plan: Plan) -> list[PlanArray]:
    """Inputs that are tiled in the end, or named by an action."""
    named = {name for step in plan.steps for row in step.actions for name in _argument(row)}
    return [a for a in plan.inputs if a.spec or a.name in named]


def _argument(row: Sequence[Any]) -> Iterator[str]:
    """The name of the argument that a row is about, if it is about one."""
    for key in row[1:2]:
        if isinstance(key, (list, tuple)) and len(key) > 1 and key[0] == "argument":
            yield str(key[1])


def _renamed(plan: Plan, arrays: Sequence[PlanArray], here: Mapping[str, str]) -> dict[str, str]:
    """Arrays of the plan that are not here -> those here that the plan has not: by trees, then by what is decided."""
    known = {array.name for array in arrays}
    gone = {array.name: array for array in arrays if array.name not in here}
    new = {name: type_ for name, type_ in here.items() if name not in known}
    found: dict[str, str] = {}
    trees = _trees(new)
    for head, leaves in _trees({name: array.type for name, array in gone.items()}).items():
        wanted = {below: without_sizes(type_) for below, type_ in leaves.items()}
        same = [h for h, others in trees.items() if {below: without_sizes(t) for below, t in others.items()} == wanted]
        if len(same) == 1 and wanted:
            found |= {_joined(head, below): _joined(same[0], below) for below in leaves}
            del trees[same[0]]
    left = {name: type_ for name, type_ in new.items() if name not in found.values()}
    by_type: dict[str, list[str]] = {}
    for name, array in gone.items():
        if name not in found:
            by_type.setdefault(array.type, []).append(name)
    for type_, names in by_type.items():
        others = [name for name, now in left.items() if now == type_]
        if len(others) == len(names) and len({_decision(plan, gone[name]) for name in names}) == 1:
            found |= dict(zip(names, others, strict=True))
    return found


def _trees(types: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """First part of a name -> the types below it."""
    trees: dict[str, dict[str, str]] = {}
    for name, type_ in types.items():
        head, _, below = name.removeprefix(f"{OUTPUTS}/").partition("/")
        trees.setdefault(head if not name.startswith(OUTPUTS) else f"{OUTPUTS}/{head}", {})[below] = type_
    return trees


def _joined(head: str, below: str) -> str:
    return f"{head}/{below}" if below else head


def _decision(plan: Plan, array: PlanArray) -> str:
    """All that the plan decides about an array."""
    rows = [
        (step.name, row[0], *row[2:]) for step in plan.steps for row in step.actions if array.name in _argument(row)
    ]
    return repr((array.spec, rows))


def _like(decided: Sequence[PlanArray], here: Mapping[str, str], taken: set[str]) -> Iterator[tuple[str, str]]:
    """New inputs that are called as decided ones are but for numbers: as few as can be, and then the last of those."""
    alike: dict[tuple[str, str], list[str]] = {}
    for array in reversed(decided):
        alike.setdefault((path_without_digits(array.name), without_sizes(array.type)), []).append(array.name)
    for name, type_ in here.items():
        known = alike.get((path_without_digits(name), without_sizes(type_)), ())
        if name not in taken and known:
            yield name, max(known, key=lambda old: _same_numbers(name, old))


def _same_numbers(one: str, other: str) -> int:
    """How many numbers of two names are the same.

    >>> _same_numbers("blocks/2/mlp/0/w", "blocks/1/mlp/0/w"), _same_numbers("blocks/2/mlp/0/w", "blocks/1/mlp/1/w")
    (1, 0)
    """
    return sum(a == b for a, b in zip(*(re.findall(r"\d+", name) for name in (one, other)), strict=True))
