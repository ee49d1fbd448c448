"""Keys of values that outlive a program's numbering.

    ["argument", "params/w"]                                        an argument leaf, by its path
    ["output", "outputs/loss"]                                      an output leaf
    ["tag", "scores", "5f0c...", 0, 2, ...]                         the first of two that carry the tag and look alike
    ["op", "block/dot", "dot_general", "f32[8,4]", 0, "9e...", 1, 3, ...]  result 0 of the second of three in this scope

`%2514` is another value as soon as a line is added above it. What a value *looks* like, its op with what that reads a
few ops far, changes only with what stands near it; so a key is found again after edits elsewhere, and is missed, with
an error that says which op, after edits where it stands. The last three parts of a key say the same of what it looks
like whatever sizes and names there are: which of how many play that role. They count for a program of other sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from autopart.api.plan.other_program import without_sizes
from autopart.api.tracing.names import OUTPUTS
from autopart.base.errors import PlanError, closest
from autopart.core.program import Program

LOOK_DEPTH = 3
"""Ops that are looked at above a value. One layer of a network apart, values look alike, and are counted."""

Key = list[Any]


class ValueKeys:
    """Keys of one program's values, and its values by their keys."""

    def __init__(self, program: Program):
        self._program = program
        self._looks: dict[tuple[int, int], str] = {}
        self._roles: dict[tuple[int, int], str] = {}
        self._alike: dict[tuple[str, str, str, int], list[int]] = {}

    # ---- value to key

    def key_of(self, value: int) -> Key:
        """The key of a value: of an argument its path, else its first tag, else its output, else its scope and role."""
        program = self._program
        if value in self._argument_name:
            return ["argument", self._argument_name[value]]
        if value in program.tags_of:
            tag = min(program.tags_of[value])
            return ["tag", tag, *self._occurrence(value, program.tags[tag])]
        if value in program.output_place:
            return ["output", self._output_names[program.output_place[value]]]
        kind = self.kind_of(value)
        return ["op", *kind, *self._occurrence(value, self.alike(*kind))]

    def kind_of(self, value: int) -> tuple[str, str, str, int]:
        """(scope, kind of op, type, number of the result) of a value."""
        program, op = self._program, int(self._program.value_op[value])
        result = value - int(program.result_ptr[op])
        return scope_of(program.where(op)), program.spec(op).kind, str(program.type_of(value)), result

    def _occurrence(self, value: int, among: Sequence[int]) -> list[Any]:
        """[look, n, count, role, n, count]: the value is the n-th of `count` that look so, and that play its role."""
        look, role = self.look(value), self.role(value)
        same = [v for v in among if self.look(v) == look]
        alike = [v for v in self._of_any_size(value, among) if self.role(v) == role]
        return [look, same.index(value), len(same), role, alike.index(value), len(alike)]

    def _of_any_size(self, value: int, among: Sequence[int]) -> Sequence[int]:
        """The values among which one is found by its role."""
        if value in self._program.tags_of:
            return among
        scope, kind, type_, result = self.kind_of(value)
        return self.alike(scope, kind, type_, result, any_size=True)

    # ---- key to value

    def value_of(self, key: object) -> int:
        """The value that `key_of` wrote the key of; raises `PlanError` where the program has none, or more or fewer."""
        match key:
            case ["argument", str(name)]:
                return _named(name, self._program.argument_names, self._program.arguments, "argument")
            case ["output", str(name)]:
                return _named(name, self._output_names, self._program.outputs, "output")
            case ["tag", str(tag), str(look), int(n), int(count), *_]:
                known = self._program.tags
                if tag not in known:
                    raise PlanError(f'the plan decides about the tag "{tag}", which no value carries',
                                    hint=closest(tag, known))  # fmt: skip
                return self._found(f'values with the tag "{tag}"', known[tag], look, n, count)
            case ["op", str(scope), str(kind), str(type_), int(result), str(look), int(n), int(count), *_]:
                what = f'{kind} of {type_} in "{scope}"'
                return self._found(what, self.alike(scope, kind, type_, result), look, n, count)
            case _:
                raise PlanError(f"{key!r:.80} is no key of a value", why="the plan file is damaged")

    def by_role(self, key: object) -> Sequence[int]:
        """The values, in order, that play the role of the key's value, whatever sizes and names there are."""
        match key:
            case ["tag", str(tag), _, _, _, str(role), _, _]:
                among: Sequence[int] = self._program.tags.get(tag, ())
            case ["op", str(scope), str(kind), str(type_), int(result), _, _, _, str(role), _, _]:
                among = self.alike(scope, kind, type_, result, any_size=True)
            case _:
                return ()
        return [value for value in among if self.role(value) == role]

    def _found(self, what: str, among: Sequence[int], look: str, n: int, count: int) -> int:
        same = [v for v in among if self.look(v) == look]
        if len(same) != count or not 0 <= n < count:
            raise PlanError(
                f"the plan decides about {what}, and the program was edited there",
                why=f"{count} of them looked so when the plan was made; of {len(among)} that the program has, "
                f"{len(same)} do",
                hint="plan the program anew, or give the value a name with ap.tag and decide about that",
            )
        return same[n]

    # ---- what is looked at

    def look(self, value: int, depth: int = LOOK_DEPTH) -> str:
        """A digest of a value's op, its types and attributes, and of what it reads, `depth` ops far."""
        found = self._looks.get((value, depth))
        if found is None:
            text = self._text(value, depth)
            found = self._looks[value, depth] = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return found

    def _text(self, value: int, depth: int) -> str:
        program = self._program
        op = int(program.value_op[value])
        if value in self._argument_name:
            return f"argument {self._argument_name[value]} {program.type_of(value)}"
        spec = program.spec(op)
        attributes = sorted((name, repr(given)) for name, given in spec.attributes.items())
        reads = [self.look(int(v), depth - 1) for v in program.operands_of(op)] if depth else []
        types = [str(type_) for type_ in (*spec.operands, *spec.results)]
        return repr((spec.kind, attributes, types, spec.region, value - int(program.result_ptr[op]), reads))

    def role(self, value: int, depth: int = LOOK_DEPTH) -> str:
        """As `look`, without sizes, numbers and names of arguments."""
        found = self._roles.get((value, depth))
        if found is None:
            program = self._program
            spec = program.spec(int(program.value_op[value]))
            kept = [
                (n, repr(given)) for n, given in sorted(spec.attributes.items()) if "dim" in n or n == "permutation"
            ]
            is_argument = value in self._argument_name or not depth
            reads = () if is_argument else program.operands_of(int(program.value_op[value])).tolist()
            types = [without_sizes(str(type_)) for type_ in (*spec.operands, *spec.results)]
            text = repr((spec.kind, kept, types, spec.region, [self.role(int(v), depth - 1) for v in reads]))
            found = self._roles[value, depth] = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return found

    def alike(self, scope: str, kind: str, type_: str, result: int, any_size: bool = False) -> list[int]:
        """Values of a kind of op and a type in a scope, in program order; `any_size`: of any type of as many dims."""
        shown = without_sizes if any_size else str
        asked = scope, kind, shown(type_), result
        if asked not in self._alike:
            self._alike[asked] = self._found_alike(scope, kind, type_, result, shown)
        return self._alike[asked]

    def _found_alike(self, scope: str, kind: str, type_: str, result: int, shown: Callable[[str], str]) -> list[int]:
        program = self._program
        specs = [
            i
            for i, spec in enumerate(program.specs)
            if spec.kind == kind
            and 0 <= result < len(spec.results)
            and shown(str(spec.results[result])) == shown(type_)
        ]
        ops = np.flatnonzero(np.isin(program.op_spec, specs))
        return [int(program.result_ptr[op]) + result for op in ops if scope_of(program.where(int(op))) == scope]

    @cached_property
    def _argument_name(self) -> dict[int, str]:
        return dict(zip(self._program.arguments, self._program.argument_names, strict=True))

    @cached_property
    def _output_names(self) -> list[str]:
        return [f"{OUTPUTS}/{name}".rstrip("/") for name in self._program.output_names]


def scope_of(where: str) -> str:
    """The named scope in a source location, without file, line and the name of the whole function.

    >>> scope_of("train.py:12 jit(step)/jvp(block)/dot_general")
    'jvp(block)/dot_general'
    """
    scope = where.partition(" ")[2] if ".py:" in where.partition(" ")[0] else where
    first, _, rest = scope.partition("/")
    return rest if first.startswith("jit(") else scope


def _named(name: str, names: Sequence[str], values: Sequence[int], what: str) -> int:
    if name not in names:
        raise PlanError(f'the plan decides about the {what} "{name}", which the program has not',
                        hint=closest(name, names))  # fmt: skip
    return values[names.index(name)]
