"""Ops put into a program, and operands that read something else: collected first, numbered once.

    rewriting = Rewriting(program)
    [again] = rewriting.add(spec, [x], scope, before=12, like=3)      a number that no value of `program` has
    rewriting.read(use, again)
    rewriting.program()                                               ops, values and scopes numbered anew

Until then everything is said in the numbers of the program that is rewritten, which stays as it is; ops, values and
uses that are put in have the numbers behind those. An op that is put in stands in `scope`, before op number `before`,
after what was put there earlier. `op_spec`, `operands`, `maker` and `uses` say what the program is by now, new ops
included. Each change and each question costs what it says; `program` goes over the ops, uses and scopes of the program
a fixed number of times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autopart.core.doors.jax_internals import ir
from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import has_effect, rule_of
from autopart.core.program import Program, Scope
from autopart.core.ragged import entries_of, pointers


class _New(NamedTuple):
    """An op that is put in; `like` is the op whose place in the source it has, `order` its place among new ones."""

    spec: int
    operands: tuple[int, ...]
    scope: int
    before: int
    like: int
    first_result: int
    first_use: int
    order: tuple[float, ...]


@dataclass
class Rewriting:
    """Changes to a program; see the module. `modules` hold the representatives of specs that the program lacks."""

    before: Program
    modules: list[ir.Module] = field(default_factory=list["ir.Module"])
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
    _makers: list[int] = field(default_factory=list[int])
    _users: list[int] = field(default_factory=list[int])
    _more_uses: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    _more_readers: Counter[int] = field(default_factory=Counter[int])
    _erased: set[int] = field(default_factory=set[int])

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

    @property
    def _first_new(self) -> int:
        """The number of the first new op; the one before it stands for the program's end."""
        return self.before.op_count + 1

    @property
    def spec_count(self) -> int:
        """Specs of the program and specs that were put in."""
        return len(self.before.specs) + len(self._specs)

    def spec_of(self, number: int) -> OpSpec:
        """The spec with this number."""
        old = len(self.before.specs)
        return self.before.specs[number] if number < old else self._specs[number - old]

    def representative(self, number: int) -> ir.Operation | None:
        """The MLIR op that a spec stands for; None for what no module has."""
        old = len(self.before.specs)
        return self.before.source.representatives[number] if number < old else self._representatives[number - old]

    def add(self, spec: int, operands: Sequence[int], scope: int, before: int, like: int) -> list[int]:
        """Puts an op in, before one of the program or one that was put in; the numbers of its results."""
        number, count, results = len(self._new), self._first_new, self.spec_of(spec).results
        order: tuple[float, ...] = (number, math.inf)
        if before >= count:
            before, order = self._new[before - count].before, (*self._new[before - count].order[:-1], *order)
        if like >= count:
            like = self._new[like - count].like
        first, use = self.before.value_count + len(self._types), len(self.before.operands) + len(self._users)
        self._new.append(_New(spec, tuple(operands), scope, before, like, first, use, order))
        self._types += results
        self._makers += [count + number] * len(results)
        self._users += [count + number] * len(operands)
        for k, value in enumerate(operands):
            self._more_uses.setdefault(value, []).append(use + k)
            self._more_readers[value] += 1
        return list(range(first, first + len(results)))

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
            type_ = self.type_of(value)
            behind += self.add(
                self.spec(OpSpec("optimization_barrier", {}, (type_,), (type_,))), [value], scope, before, like
            )
        self._barriers.append(range(first, len(self._new)))
        return behind

    def carry(self, loop: int, initial: int, like: int) -> tuple[int, int]:
        """Puts a carry into the while at `loop`: (its value inside, its value after); `carries` says what is next."""
        program = self.before
        type_, condition = self.type_of(initial), program.inner_scopes[loop][0]
        spec = self.spec(OpSpec("carry", {}, (type_, type_), (type_, type_)))
        self._owners[len(self._new)] = loop
        scope, place = int(program.op_scope[loop]), program.scopes[condition].start
        inside, after = self.add(spec, [initial, initial], scope, place, like)
        return inside, after

    def carries(self, inside: int, following: int) -> None:
        """Says what the next value of a new carry is."""
        self.read(self._new[self.maker(inside) - self._first_new].first_use + 1, following)

    def read(self, use: int, value: int) -> None:
        """An entry of `operands` reads another value from now on."""
        self._more_readers[self.read_by(use)] -= 1
        self._more_readers[value] += 1
        self._reads[use] = value
        self._more_uses.setdefault(value, []).append(use)

    def mark(self, value: int, attribute: str, to: object = True) -> None:
        """Gives the op that was put in and makes a value an attribute that no module knows."""
        op = self.maker(value)
        spec, old = self.op_spec(op), self._new[op - self._first_new]
        marked = replace(spec, attributes={**spec.attributes, attribute: to})
        made = self.spec(marked, self.representative(old.spec))
        self._new[op - self._first_new] = old._replace(spec=made)

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
        self._positions.setdefault(by, []).append(position)

    def replace(self, value: int, by: int) -> None:
        """All that reads a value, or returns it, has another one from now on; `by` is not made of `value`.

        An op that nobody needs any more is no longer a reader of what it reads.
        """
        for use in self.uses(value):
            self.read(use, by)
        for position in self._returned(value):
            self.returns_at(position, by)
        self._replaced[value] = by
        self._erase(self.maker(value))

    def _erase(self, op: int) -> None:
        """Forgets an op without readers that only computes, and what only such ops read."""
        left = [op]
        while left:
            op = left.pop()
            rule = rule_of(self.op_spec(op))
            if op in self._erased or rule is None or rule.structural or has_effect(self.op_spec(op)):
                continue
            if any(self.reader_count(value) or self.is_seen(value) for value in self.results(op)):
                continue
            self._erased.add(op)
            self._more_readers.subtract(self.operands(op))
            left += [self.maker(value) for value in self.operands(op)]

    # ---- what the program is by now

    def is_erased(self, op: int) -> bool:
        """Nobody needs the op any more."""
        return op in self._erased

    @property
    def op_count(self) -> int:
        """The number of the next op that is put in."""
        return self._first_new + len(self._new)

    def spec_number(self, op: int) -> int:
        """The number of an op's spec."""
        old = self._first_new
        return self._becomes.get(op, int(self.before.op_spec[op])) if op < old else self._new[op - old].spec

    def op_spec(self, op: int) -> OpSpec:
        """Kind, attributes and types of an op."""
        return self.spec_of(self.spec_number(op))

    def operands(self, op: int) -> list[int]:
        """What an op reads."""
        old, reads = self._first_new, self._reads
        if op < old:
            first, end = self.before.operand_ptr[op : op + 2].tolist()
            read = self.before.operands[first:end].tolist()
        else:
            first, read = self._new[op - old].first_use, list(self._new[op - old].operands)
        return [reads.get(first + k, value) for k, value in enumerate(read)] if reads else read

    def results(self, op: int) -> range:
        """What an op makes."""
        old = self._first_new
        if op < old:
            return self.before.results_of(op)
        first = self._new[op - old].first_result
        return range(first, first + len(self.op_spec(op).results))

    def scope(self, op: int) -> int:
        """Where an op stands."""
        old = self._first_new
        return int(self.before.op_scope[op]) if op < old else self._new[op - old].scope

    def maker(self, value: int) -> int:
        """The op that makes a value."""
        old = self.before.value_count
        return int(self.before.value_op[value]) if value < old else self._makers[value - old]

    def stands_before(self, value: int, op: int) -> bool:
        """Whether what makes a value that was put in comes before an op of its scope, and is still there."""
        maker = self.maker(value)
        if maker in self._erased:
            return False
        made = self._new[maker - self._first_new]
        if op < self._first_new:
            return made.before <= op
        other = self._new[op - self._first_new]
        return (made.before, made.order) < (other.before, other.order)

    def type_of(self, value: int) -> TensorType:
        """Shape and element type of a value."""
        old = self.before.value_count
        if value >= old:
            return self._types[value - old]
        op = int(self.before.value_op[value])
        return self.op_spec(op).results[value - int(self.before.result_ptr[op])]

    def uses(self, value: int) -> list[int]:
        """The uses by which ops read a value."""
        found = list(self._more_uses.get(value, ()))
        if value < self.before.value_count:
            pointer, uses = self.before.users
            found = [*uses[pointer[value] : pointer[value + 1]].tolist(), *found]
        return [
            use for use in dict.fromkeys(found) if self.read_by(use) == value and self.user(use) not in self._erased
        ]

    def user(self, use: int) -> int:
        """The op of a use."""
        old = len(self.before.operands)
        return int(self.before.use_op[use]) if use < old else self._users[use - old]

    def reader_count(self, value: int) -> int:
        """How many uses read a value."""
        pointer = self.before.users[0]
        old = int(pointer[value + 1] - pointer[value]) if value < self.before.value_count else 0
        return old + self._more_readers[value]

    def readers(self, value: int) -> list[int]:
        """The ops that read a value, each as often as it does."""
        return [self.user(use) for use in self.uses(value)]

    def is_seen(self, value: int) -> bool:
        """The program returns the value, or a tag names it."""
        return value in self.before.tags_of or self.is_returned(value)

    def is_returned(self, value: int) -> bool:
        """The program returns the value."""
        return bool(self._returned(value))

    def now(self, value: int) -> int:
        """What stands for a value by now: itself, or what replaced it."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def read_by(self, use: int) -> int:
        """What a use reads."""
        if use in self._reads:
            return self._reads[use]
        old = len(self.before.operands)
        if use < old:
            return int(self.before.operands[use])
        new = self._new[self._users[use - old] - self._first_new]
        return new.operands[use - new.first_use]

    def _returned(self, value: int) -> list[int]:
        """The positions at which the program returns a value."""
        found = dict.fromkeys(self._positions.get(value, ()))
        return [p for p in found if self._outputs.get(p, self.before.outputs[p]) == value]

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

    # ---- the program

    def program(self) -> Program:
        """The rewritten program; the old one where nothing was asked for."""
        old, new = self.before, self._new
        if self.is_empty:
            return old
        order = self._order()
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        specs = [*old.specs, *self._specs]
        op_spec = old.op_spec.copy()
        op_spec[list(self._becomes)] = list(self._becomes.values())
        results = np.concatenate([np.diff(old.result_ptr), [len(specs[n.spec].results) for n in new]]).astype(np.int64)
        reads = np.concatenate([np.diff(old.operand_ptr), [len(n.operands) for n in new]]).astype(np.int64)
        operands = np.concatenate([old.operands, np.array([v for n in new for v in n.operands], np.int64)])
        operands[list(self._reads)] = list(self._reads.values())
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
            operand_ptr=pointers(reads[order]),
            operands=value[operands[entries_of(pointers(reads), order)]].astype(np.int32),
            result_ptr=pointers(results[order]),
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
        keys = [(new.before, *self._depth(new.scope, new.before), *new.order) for new in self._new]
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


def _renumbered(results: np.ndarray, order: np.ndarray) -> np.ndarray:
    """int64[values]: the new number of each value."""
    number = np.empty(int(results.sum()), np.int64)
    number[entries_of(pointers(results), order)] = np.arange(len(number))
    return number
