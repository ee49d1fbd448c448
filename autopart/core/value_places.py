"""Names of values that have no path: where their code stands.

    lm.py:52 jit(step)/jvp(LM)/blocks_3/attn/dot_general          LM/blocks_3/attn/dot_general@lm.py:52
    lm.py:52 jit(step)/transpose(jvp(LM))/blocks_3/.../reduce     transpose/LM/blocks_3/attn/reduce@lm.py:52
    lm.py:52 jit(step)/dot_general, which reads model/q/kernel    model/q/kernel/dot_general@lm.py:52
    two of that name                                              ...@lm.py:52#0 and ...@lm.py:52#1

A name is the scope, the op and the line; without a scope of modules, the path of the parameter that the op reads stands
for one. Names last as long as lines do, where `%31617` lasts as long as no op is added. Trailing parts of a scope name
a value too, behind `transpose/` where it is of the backward pass. A pattern names what it matches, and where it says no
op, `blocks_*/attn@lm.py:52`, all that it matches has to be one op's. What is not one value is refused, with candidates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from autopart.base.errors import CONTINUED, UnknownNameError, closest
from autopart.base.name_patterns import is_pattern, matches

if TYPE_CHECKING:
    from autopart.core.program import Program

HOPS = 4
"""Ops of one operand (a cast, a reshape) behind which a parameter is looked for."""

BACKWARD = "transpose/"
"""What names of the backward pass begin with, as jax says it."""

SHOWN = 6
"""Candidates that an error lists."""

_DIGITS = re.compile(r"\d+")


def is_place(key: str) -> bool:
    """True for what may name a value by where its code stands."""
    return "@" in key


class ValuePlaces:
    """The values of a program by where their code stands; looked at where somebody asks."""

    def __init__(self, program: Program):
        self._program = program
        self._of_kind: dict[str, dict[str, list[int]]] = {}

    def name_of(self, value: int) -> str:
        """The value's name, which is no other's; "" where the module says nothing of its place."""
        name = self.unnumbered(value)
        alike = self._named(self._program.spec(int(self._program.value_op[value])).kind).get(name, [])
        return name if len(alike) < 2 else f"{name}#{alike.index(value)}"

    def values_of(self, key: str) -> list[tuple[str, int]]:
        """(name, value) of what the key names. Raises `UnknownNameError` where it is nothing, or not one thing."""
        asked, marked, number = key.rpartition("#")
        if not marked or not (number == "*" or number.isdecimal()):
            asked, number = key, ""
        found = [entry for entry in self._candidates(asked) if number in ("", "*", entry[0].rpartition("#")[2])]
        if not found:
            path, _, place = asked.rpartition("@")
            near = self._candidates(f"{path}@*") or self._candidates(f"*@{place}")
            hint = closest(key, [name for name, _ in near]) if near else "ap.tag gives a value a name that edits keep"
            raise UnknownNameError(f'no value of the program is called "{key}"', hint=hint)
        one = {_DIGITS.sub("*", name.partition("#")[0]) for name, _ in found}
        if len(found) > 1 and (not (is_pattern(asked) or number == "*") or (len(one) > 1 and not self._says_op(asked))):
            names = [f'"{name}"' for name, _ in found]
            more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise UnknownNameError(
                f'"{key}" is the name of {len(found)} values',
                why=CONTINUED.join(names[:SHOWN]) + more,
                hint=f'one of these, or all with "{asked}#*"' if len(one) == 1 else "one of these",
            )
        return found

    def _says_op(self, key: str) -> bool:
        return key.rpartition("@")[0].rpartition("/")[2] in self._kinds

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset(spec.kind for spec in self._program.specs)

    def _candidates(self, key: str) -> list[tuple[str, int]]:
        """(name with its number, value) of all whose scope and op, or scope alone, the key matches, in order."""
        path, _, place = key.rpartition("@")
        kinds = [path.rpartition("/")[2]] if self._says_op(key) else sorted(self._kinds)
        found: list[tuple[str, int]] = []
        for name, values in (entry for kind in kinds for entry in self._named(kind).items()):
            own, _, line = name.rpartition("@")
            scope = own.rpartition("/")[0]
            if matches(line, place) and (_is_end(own, path) or (len(kinds) > 1 and _is_end(scope, path))):
                many = len(values) > 1
                found += [(f"{name}#{n}" if many else name, value) for n, value in enumerate(values)]
        exact = [entry for entry in found if entry[0].partition("#")[0] == key]
        return sorted(exact or found, key=lambda entry: entry[1])

    def _named(self, kind: str) -> dict[str, list[int]]:
        """Name without number -> values, of a kind of op."""
        if kind not in self._of_kind:
            found: dict[str, list[int]] = {}
            for op in self._ops(kind):
                for value in self._program.results_of(op):
                    if name := self.unnumbered(value):
                        found.setdefault(name, []).append(value)
            self._of_kind[kind] = found
        return self._of_kind[kind]

    def _ops(self, kind: str) -> Sequence[int]:
        specs = [number for number, spec in enumerate(self._program.specs) if spec.kind == kind]
        return np.flatnonzero(np.isin(self._program.op_spec, specs)).tolist()

    def unnumbered(self, value: int) -> str:
        """The value's name, which may be that of others too."""
        program, op = self._program, int(self._program.value_op[value])
        kind, where = program.spec(op).kind, program.where(op)
        if kind == "argument" or not where:
            return ""
        place, _, scope = where.partition(" ") if ".py:" in where.partition(" ")[0] else ("", "", where)
        parts, modules = _cleaned(scope)
        belongs = "" if modules else max(self._read_by(op), key=lambda name: name.count("/"), default="")
        return "/".join([*parts, *([belongs] if belongs else []), kind]) + f"@{place.rpartition('/')[2]}"

    def _read_by(self, op: int) -> Iterator[str]:
        """Paths of the arguments that an op reads, through ops of one operand."""
        program = self._program
        for value in program.operands_of(op).tolist():
            for _ in range(HOPS):
                maker = int(program.value_op[value])
                if program.spec(maker).kind == "argument":
                    yield program.argument_names[program.argument_place[value]]
                    break
                operands = program.operands_of(maker)
                if len(operands) != 1:
                    break
                value = int(operands[0])


def _is_end(path: str, wanted: str) -> bool:
    """True where the path, or the end of it from some part on, is what is wanted."""
    return any(end == wanted or matches(end, wanted) for end in _ends(path))


def _ends(path: str) -> Iterable[str]:
    backward = BACKWARD if path.startswith(BACKWARD) else ""
    rest = path.removeprefix(backward)
    while rest:
        yield backward + rest
        rest = rest.partition("/")[2]


def _cleaned(scope: str) -> tuple[list[str], bool]:
    """The parts of a scope without the function that was traced, `jvp` and the primitive; whether there are modules.

    jit(step)/jvp(LM/blocks_0)/dot -> LM, blocks_0      jit(step)/transpose(jvp())/dot -> transpose
    """
    first, _, rest = scope.partition("/")
    scope = rest if first.startswith("jit(") else scope
    scope = _unwrapped(_unwrapped(scope, "jvp", ""), "transpose", BACKWARD)
    parts = [part for part in scope.split("/")[:-1] if part]
    return parts, any(f"{part}/" != BACKWARD and not part.startswith("jit(") for part in parts)


def _unwrapped(scope: str, word: str, instead: str) -> str:
    """With `instead` and what stands in the brackets for each `word(...)`."""
    while (start := scope.find(f"{word}(")) >= 0:
        inner, depth = start + len(word) + 1, 1
        end = inner
        while depth and end < len(scope):
            depth += {"(": 1, ")": -1}.get(scope[end], 0)
            end += 1
        scope = scope[:start] + instead + scope[inner : end - (depth == 0)] + scope[end:]
    return scope
