"""Ops put into a program, and operands that read something else: collected first, numbered once.

    rewriting = Rewriting(program)
    [again] = rewriting.add(spec, [x], scope, before=12, like=3)      a number that no value of `program` has
    rewriting.read(use, again)
    rewriting.program()                                               ops, values and scopes numbered anew

Until then everything is said in the numbers of the program that is rewritten, which stays as it is. An op that is put
in stands in `scope`, before what op number `before` was, after what was put there earlier. Each change costs what it
says; `program` goes over the ops, uses and scopes of the program a fixed number of times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autopart.core.jax_internals import ir
from autopart.core.op import OpSpec, TensorType
from autopart.core.program import Program, Scope
from autopart.core.ragged import entries_of


class _New(NamedTuple):
    """An op that is put in; `like` is the op whose place in the source it has."""

    spec: int
    operands: tuple[int, ...]
    scope: int
    before: int
    like: int
    first_result: int


class Function(NamedTuple):
    """Ops to be put in together: (spec, what it reads) each, and what they return.

    Values are numbered: the operands of the function first, then the results of its ops.
    """

    ops: list[tuple[int, list[int]]]
    returned: list[int]


@dataclass
class Rewriting:
    """Changes to a program; see the module. `modules` hold the representatives of specs that the program lacks, and
    `functions` what was read from texts."""

    before: Program
    modules: list[ir.Module] = field(default_factory=list["ir.Module"])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    _new: list[_New] = field(default_factory=list[_New])
    _reads: dict[int, int] = field(default_factory=dict[int, int])
    _outputs: dict[int, int] = field(default_factory=dict[int, int])
    _replaced: dict[int, int] = field(default_factory=dict[int, int])
    _becomes: dict[int, int] = field(default_factory=dict[int, int])
    _specs: list[OpSpec] = field(default_factory=list[OpSpec])
    _representatives: list[ir.Operation | None] = field(default_factory=list["ir.Operation | None"])
    _tags: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _owners: dict[int, int] = field(default_factory=dict[int, int])
    _barriers: list[range] = field(default_factory=list[range])
    _types: list[TensorType] = field(default_factory=list[TensorType])

    @property
    def is_empty(self) -> bool:
        """Nothing was asked for."""
        return not (self._new or self._reads or self._becomes or self._outputs)

    def spec(self, spec: OpSpec, representative: ir.Operation | None = None) -> int:
        """The number of a spec: an equal one of the program, else a new one; `representative` as in its source."""
        alike = self._known.setdefault(_signature(spec), [])
        number = next((n for n in alike if self.spec_of(n) == spec), None)
        if number is None:
            number = len(self.before.specs) + len(self._specs)
            self._specs.append(spec)
            self._representatives.append(representative)
            alike.append(number)
        return number

    def spec_of(self, number: int) -> OpSpec:
        """The spec with this number."""
        old = len(self.before.specs)
        return self.before.specs[number] if number < old else self._specs[number - old]

    def add(self, spec: int, operands: Sequence[int], scope: int, before: int, like: int) -> list[int]:
        """Puts an op in; the numbers of its results."""
        first = self.before.value_count + len(self._types)
        self._new.append(_New(spec, tuple(operands), scope, before, like, first))
        self._types += self.spec_of(spec).results
        return list(range(first, self.before.value_count + len(self._types)))

    def again(self, op: int, operands: Sequence[int], scope: int, before: int) -> list[int]:
        """Puts in a copy of op number `op` with other operands; a tag's copy carries the tag too."""
        results = self.add(int(self.before.op_spec[op]), operands, scope, before, op)
        if self.before.spec(op).kind == "tag":
            [value] = self.before.results_of(op)
            for name in self.before.tags_of.get(value, ()):
                self._tags.setdefault(name, []).extend(results)
        return results

    def barrier(self, values: Sequence[int], scope: int, before: int, like: int) -> list[int]:
        """Puts in an optimization barrier; the values behind it."""
        first = len(self._new)
        behind: list[int] = []
        for value in values:
            type_ = self._type(value)
            behind += self.add(
                self.spec(OpSpec("optimization_barrier", {}, (type_,), (type_,))), [value], scope, before, like
            )
        self._barriers.append(range(first, len(self._new)))
        return behind

    def carry(self, loop: int, initial: int, like: int) -> tuple[int, int]:
        """Puts a carry into the while at `loop`: (its value inside, its value after); `carries` says what is next."""
        program = self.before
        type_, condition = self._type(initial), program.inner_scopes[loop][0]
        spec = self.spec(OpSpec("carry", {}, (type_, type_), (type_, type_)))
        self._owners[len(self._new)] = loop
        scope, place = int(program.op_scope[loop]), program.scopes[condition].start
        inside, after = self.add(spec, [initial, initial], scope, place, like)
        return inside, after

    def carries(self, inside: int, following: int) -> None:
        """Says what the next value of a new carry is."""
        number = self._made_by(inside)
        old = self._new[number]
        self._new[number] = old._replace(operands=(old.operands[0], following))

    def read(self, use: int, value: int) -> None:
        """An entry of `operands` reads another value from now on."""
        self._reads[use] = value

    def mark(self, value: int, attribute: str) -> None:
        """Gives the op that was put in and makes a value an attribute that no module knows."""
        number = self._made_by(value)
        old = self._new[number]
        spec, known = self.spec_of(old.spec), old.spec - len(self.before.specs)
        source = self._representatives[known] if known >= 0 else self.before.source.representatives[old.spec]
        marked = replace(spec, attributes={**spec.attributes, attribute: True})
        self._new[number] = old._replace(spec=self.spec(marked, source))

    def become(self, op: int, spec: int) -> None:
        """An op has another spec from now on, with as many operands and results."""
        self._becomes[op] = spec

    def returns(self, value: int, by: int) -> None:
        """Where the program returned a value, it returns another one from now on."""
        for position in self._positions.get(value, ()):
            self.returns_at(position, by)

    def returns_at(self, position: int, by: int) -> None:
        """The output at a position is another value from now on."""
        self._outputs[position] = by

    def replace(self, value: int, by: int) -> None:
        """All that reads a value of the program, or returns it, has another one from now on."""
        pointer, uses = self.before.users
        for use in uses[pointer[value] : pointer[value + 1]].tolist():
            self.read(use, by)
        self.returns(value, by)
        self._replaced[value] = by

    def now(self, value: int) -> int:
        """What stands for a value by now: itself, or what replaced it."""
        return self._replaced.get(value, value)

    def read_by(self, use: int) -> int:
        """What an entry of `operands` reads by now."""
        return self._reads.get(use, int(self.before.operands[use]))

    def _made_by(self, value: int) -> int:
        """Which of the ops that were put in makes a value that is its first result."""
        return bisect_right(self._new, value, key=lambda new: new.first_result) - 1

    @cached_property
    def _positions(self) -> dict[int, list[int]]:
        """Value that the program returns -> its positions among the outputs."""
        positions: dict[int, list[int]] = {}
        for position, output in enumerate(self.before.outputs):
            positions.setdefault(output, []).append(position)
        return positions

    @cached_property
    def _known(self) -> dict[tuple[object, ...], list[int]]:
        """The numbers of specs by what equal ones have in common."""
        known: dict[tuple[object, ...], list[int]] = {}
        for number, spec in enumerate(self.before.specs):
            known.setdefault(_signature(spec), []).append(number)
        return known

    def _type(self, value: int) -> TensorType:
        old = self.before.value_count
        return self.before.type_of(value) if value < old else self._types[value - old]

    # ---- the program

    def program(self) -> Program:
        """The rewritten program; the old one where nothing was asked for."""
        old, new = self.before, self._new
        if self.is_empty:
            return old
        old_operands = old.operands.copy()
        for use, value in self._reads.items():
            old_operands[use] = value
        order = self._order()
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        specs = [*old.specs, *self._specs]
        op_spec = old.op_spec.copy()
        op_spec[list(self._becomes)] = list(self._becomes.values())
        results = np.concatenate([np.diff(old.result_ptr), [len(specs[n.spec].results) for n in new]]).astype(np.int64)
        reads = np.concatenate([np.diff(old.operand_ptr), [len(n.operands) for n in new]]).astype(np.int64)
        operands = np.concatenate([old_operands, np.array([v for n in new for v in n.operands], np.int64)])
        value = _renumbered(results, order)
        op_scope = np.concatenate([old.op_scope, np.array([n.scope for n in new], np.int64)])[order]
        tags = {name: [*values, *self._tags.get(name, [])] for name, values in old.tags.items()}
        count = old.op_count
        barriers = [*old.barriers, *(range(b.start + count, b.stop + count) for b in self._barriers)]
        owners = {**old.owners, **{count + op: loop for op, loop in self._owners.items()}}
        return replace(
            old,
            specs=specs,
            op_spec=np.concatenate([op_spec, np.array([n.spec for n in new], np.int64)])[order].astype(np.int32),
            operand_ptr=_pointers(reads[order]),
            operands=value[operands[entries_of(_pointers(reads), order)]].astype(np.int32),
            result_ptr=_pointers(results[order]),
            op_scope=op_scope.astype(np.int32),
            scopes=self._scopes(place, op_scope),
            arguments=value[old.arguments].tolist(),
            outputs=value[[self._outputs.get(n, v) for n, v in enumerate(old.outputs)]].tolist(),
            tags={name: sorted(int(value[v]) for v in values) for name, values in tags.items()},
            owners={int(place[op]): int(place[owner]) for op, owner in owners.items()},
            barriers=sorted((range(int(place[b.start]), int(place[b.stop - 1]) + 1) for b in barriers), key=min),
            source=None
            if old.source is None
            else old.source.rewritten(*self._like(order), self._representatives, self.modules),
        )

    def _like(self, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64[ops] each: the op from whose line an op comes, and the spec whose representative it is made like, -1
        for that op itself."""
        old, likes = self.before, np.array([new.like for new in self._new], np.int64)
        specs = np.array([new.spec for new in self._new], np.int64)
        specs[specs == old.op_spec[likes]] = -1
        becomes = np.full(old.op_count, -1, np.int64)
        becomes[list(self._becomes)] = list(self._becomes.values())
        like = np.concatenate([np.arange(old.op_count), likes])
        return like[order], np.concatenate([becomes, specs])[order]

    def _order(self) -> np.ndarray:
        """int64[ops]: the ops in their new order; new ones are numbered after the old ones."""
        old = self.before.op_count
        keys = [(new.before, *self._depth(new.scope, new.before), n) for n, new in enumerate(self._new)]
        arranged = sorted(range(len(keys)), key=keys.__getitem__)
        before = np.array([self._new[n].before for n in arranged], np.int64)
        return np.insert(np.arange(old), before, old + np.array(arranged, np.int64))

    def _depth(self, scope: int, before: int) -> tuple[int, int]:
        """What comes first of ops put in at one place: those in scopes that end there, those in scopes that begin."""
        inside, depth = self.before.scopes[scope], 0
        at: int = scope
        while at > 0:
            at, depth = self.before.scopes[at].parent, depth + 1
        if scope and inside.end == before and inside.start < before:
            return -1, -depth
        return (1, depth) if scope and inside.start == before else (0, depth)

    def _scopes(self, place: np.ndarray, op_scope: np.ndarray) -> list[Scope]:
        """The scopes around the ops that stand in them; an empty one stays behind what comes before it."""
        old = self.before.scopes
        places = np.arange(len(op_scope))
        first, last = np.full(len(old), len(op_scope), np.int64), np.full(len(old), -1, np.int64)
        np.minimum.at(first, op_scope, places)
        np.maximum.at(last, op_scope, places)
        for number in range(len(old) - 1, 0, -1):
            parent = old[number].parent
            first[parent], last[parent] = min(first[parent], first[number]), max(last[parent], last[number])
        made = [replace(old[0], end=len(op_scope))]
        ends: dict[int, int] = {}
        for number, scope in enumerate(old[1:], 1):
            op = int(place[scope.op])
            if last[number] < 0:
                start = end = max(int(place[scope.start - 1]) + 1, ends.get(op, 0))
            else:
                start, end = int(first[number]), int(last[number]) + 1
            ends[op] = max(end, ends.get(op, 0))
            made.append(replace(scope, op=op, start=start, end=end))
        return made


def _signature(spec: OpSpec) -> tuple[object, ...]:
    """What equal specs have in common, and few others."""
    return spec.kind, spec.operands, spec.results, spec.region, repr(sorted(spec.attributes.items(), key=_name))


def _name(attribute: tuple[str, object]) -> str:
    return attribute[0]


def _pointers(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _renumbered(results: np.ndarray, order: np.ndarray) -> np.ndarray:
    """int64[values]: the new number of each value."""
    number = np.empty(int(results.sum()), np.int64)
    number[entries_of(_pointers(results), order)] = np.arange(len(number))
    return number
