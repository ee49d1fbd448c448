"""The unpartitioned program: a flat list of ops in program order, as arrays.

    %0 = argument "params/w"          ops      0         1          2
    %1 = argument "x"                 operands .         .          %1 %0
    %2 = dot_general %1 %0            results  %0        %1         %2

Ops and values are numbered; equal ops share an `OpSpec`. Control flow is flattened into the same list under scopes:

    while                  marks the loop; owns a "condition" scope and a "body" scope
    carry  init, next      one per loop-carried value: results are the value inside the loop and after it
      ... condition ops,   ending in  condition pred
      ... body ops
    case pred              marks the branches; owns one scope per branch
      ... branch ops
    join   v0, v1, ...     one per result: whichever branch ran

Values that a loop does not change are not carried at all: the body reads them from outside. An argument whose updated
value the program returns (a donated one) has that output as its operand, as if the program were the body of a loop.
An optimization barrier is one op per operand, next to each other, so that its operands tile apart. Constants, iotas and
broadcasts of scalars are cloned for each use, so that they never carry a decision between uses.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autopart.core.manual_regions import ManualAxes, manual_axes
from autopart.core.op import OpSpec, TensorType
from autopart.core.ragged import entries_by_number, rows_of
from autopart.core.value_places import ValuePlaces

ROOT = 0
"""The scope of the program itself."""


@dataclass(frozen=True)
class Scope:
    """A region of ops `[start, end)` inside `parent`, run `trips` times each time `parent` runs once.

    kind is "program", "condition", "body" or "branch"; `op` is the while or case that owns it.
    `trips_known` is False for a while loop whose length is not a constant; it then counts as one, or as often as the
    pass `ExpectedTrips` was told.
    """

    kind: str
    op: int
    parent: int
    start: int
    end: int
    trips: int = 1
    trips_known: bool = True


@dataclass
class Program:
    """A whole program as arrays; see the module's picture.

    specs            the distinct ops
    op_spec[o]       which of them op o is
    operands         flat; those of op o are `operands[operand_ptr[o]:operand_ptr[o+1]]` (value numbers)
    result_ptr[o]    first result of op o; results are numbered in op order
    op_scope[o]      scope of op o
    arguments        value numbers of the arguments, in order, named `argument_names`
    outputs          value numbers of the outputs, named `output_names`
    ties             output position -> argument position: the output is the argument's next value
    tags             name -> values carrying that tag
    owners           carry -> its while, join -> its case (op numbers)
    donated          positions of the arguments whose buffers the outputs may take
    barriers         the ops of each optimization barrier, in order
    keep_unused      arguments that nobody reads are passed to the devices all the same
    without_arrays   names of arguments and outputs, or of parts of them, that have no arrays
    """

    specs: list[OpSpec]
    op_spec: np.ndarray
    operand_ptr: np.ndarray
    operands: np.ndarray
    result_ptr: np.ndarray
    op_scope: np.ndarray
    scopes: list[Scope]
    arguments: list[int]
    argument_names: list[str]
    outputs: list[int]
    output_names: list[str]
    ties: dict[int, int]
    tags: dict[str, list[int]]
    owners: dict[int, int]
    donated: frozenset[int] = frozenset()
    barriers: list[range] = field(default_factory=list)
    keep_unused: bool = False
    without_arrays: tuple[str, ...] = ()
    source: Any = field(default=None, repr=False)
    """Where ops came from (MLIR op per spec, locations); absent after pickling."""

    @property
    def op_count(self) -> int:
        """Number of ops, structural ones included."""
        return len(self.op_spec)

    @property
    def value_count(self) -> int:
        """Number of values."""
        return int(self.result_ptr[-1])

    @cached_property
    def value_op(self) -> np.ndarray:
        """int32[values]: the op that defines each value."""
        return rows_of(self.result_ptr)

    @cached_property
    def use_op(self) -> np.ndarray:
        """int32[uses]: the op of each entry of `operands`."""
        return rows_of(self.operand_ptr)

    @cached_property
    def users(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR (pointer, use): the entries of `operands` that read each value, in program order."""
        return entries_by_number(self.operands, self.value_count)

    @cached_property
    def passed_arguments(self) -> list[int]:
        """Positions of the arguments that a device is given: those that something reads, unless all are kept."""
        pointer, _ = self.users
        read = np.diff(pointer) > 0
        read[self.outputs] = True
        return [i for i, value in enumerate(self.arguments) if self.keep_unused or read[value]]

    @cached_property
    def argument_place(self) -> dict[int, int]:
        """Argument -> its position among the arguments."""
        return {value: place for place, value in enumerate(self.arguments)}

    @cached_property
    def output_place(self) -> dict[int, int]:
        """Value that the program returns -> the first position among the outputs at which it does."""
        return {value: place for place, value in reversed([*enumerate(self.outputs)])}

    @cached_property
    def tags_of(self) -> dict[int, list[str]]:
        """Value that carries tags -> their names."""
        names: dict[int, list[str]] = {}
        for name, values in self.tags.items():
            for value in values:
                names.setdefault(value, []).append(name)
        return names

    @cached_property
    def value_shape(self) -> np.ndarray:
        """int64[values, rank]: shapes, padded with ones to the largest rank."""
        shapes = [r.shape for s in self.specs for r in s.results]
        rank = max((len(s) for s in shapes), default=0) or 1
        table = np.ones((len(shapes), rank), np.int64)
        for row, shape in zip(table, shapes, strict=True):
            row[: len(shape)] = shape
        return table[self.value_type_row]

    @cached_property
    def value_elements(self) -> np.ndarray:
        """float64[values]: elements."""
        return np.array([math.prod(r.shape) for s in self.specs for r in s.results], float)[self.value_type_row]

    @cached_property
    def value_rank(self) -> np.ndarray:
        """int8[values]: ranks."""
        return np.array([len(r.shape) for s in self.specs for r in s.results], np.int8)[self.value_type_row]

    @cached_property
    def element_bytes(self) -> np.ndarray:
        """float64[values]: bytes per element."""
        return np.array([r.element_bytes for s in self.specs for r in s.results], float)[self.value_type_row]

    @cached_property
    def value_type_row(self) -> np.ndarray:
        """int64[values]: the number of each value's type, counting the results of all specs in order."""
        first = np.concatenate([[0], np.cumsum([len(s.results) for s in self.specs])]).astype(np.int64)
        position = np.arange(self.value_count) - self.result_ptr[self.value_op]
        return first[self.op_spec[self.value_op]] + position

    @cached_property
    def value_type_id(self) -> np.ndarray:
        """int32[values]: equal for values of equal shape, element type, and axes along which they are cut by hand."""
        numbers: dict[TensorType, int] = {}
        rows = [numbers.setdefault(t, len(numbers)) for spec in self.specs for t in spec.results]
        of_type = np.array(rows, np.int32)[self.value_type_row]
        if not self.manual.names:
            return of_type
        return (of_type + len(numbers) * self.manual.of_op[self.value_op]).astype(np.int32)

    @cached_property
    def manual(self) -> ManualAxes:
        """The mesh axes along which ops are partitioned by hand already, in a `jax.shard_map`."""
        return manual_axes(self)

    @cached_property
    def scope_trips(self) -> np.ndarray:
        """int64[scopes]: how often each scope runs when the program runs once."""
        total = np.ones(len(self.scopes), np.int64)
        for index, scope in enumerate(self.scopes):
            total[index] = scope.trips * (total[scope.parent] if index else 1)
        return total

    @cached_property
    def inner_scopes(self) -> dict[int, list[int]]:
        """while -> [condition, body], case -> branches (op number to scope numbers)."""
        inner: dict[int, list[int]] = {}
        for index, scope in enumerate(self.scopes[1:], 1):
            inner.setdefault(scope.op, []).append(index)
        return inner

    @cached_property
    def use_scope(self) -> np.ndarray:
        """int32[uses]: the scope whose code reads each entry of `operands` (a carry's next value: the body)."""
        return self._use_places[0]

    @cached_property
    def use_position(self) -> np.ndarray:
        """int32[uses]: the op before which the entry is read (the end of a body, of a branch, of the program)."""
        return self._use_places[1]

    @cached_property
    def _use_places(self) -> tuple[np.ndarray, np.ndarray]:
        scope, position = self.op_scope[self.use_op].copy(), self.use_op.copy()
        inner = self.inner_scopes
        for op, owner in self.owners.items():
            first, last = self.operand_ptr[op], self.operand_ptr[op + 1]
            if self.spec(op).kind == "carry":
                body = inner[owner][1]
                position[first] = owner
                scope[first + 1], position[first + 1] = body, self.scopes[body].end
            else:
                for use, branch in zip(range(first, last), inner[owner], strict=True):
                    scope[use], position[use] = branch, self.scopes[branch].end
        for value in self.arguments:
            op = self.value_op[value]
            position[self.operand_ptr[op] : self.operand_ptr[op + 1]] = self.op_count
        return scope, position

    def spec(self, op: int) -> OpSpec:
        """Kind, attributes and types of op number `op`."""
        return self.specs[self.op_spec[op]]

    def operands_of(self, op: int) -> np.ndarray:
        """Value numbers that op number `op` reads."""
        return self.operands[self.operand_ptr[op] : self.operand_ptr[op + 1]]

    def results_of(self, op: int) -> range:
        """Value numbers that op number `op` defines."""
        return range(self.result_ptr[op], self.result_ptr[op + 1])

    def readers_of(self, value: int) -> list[int]:
        """Op numbers that read a value, in program order; an op that reads it twice stands there twice."""
        pointer, use = self.users
        return self.use_op[use[pointer[value] : pointer[value + 1]]].tolist()

    def type_of(self, value: int) -> TensorType:
        """Shape and element type of a value."""
        op = self.value_op[value]
        return self.spec(op).results[value - self.result_ptr[op]]

    def where(self, op: int) -> str:
        """Source line and scope of an op, as text; empty where the module carries no locations."""
        return self.source.where(op) if self.source is not None else ""

    def value_name(self, value: int) -> str:
        """What a reader calls a value: its argument path, else %number."""
        op = int(self.value_op[value])
        if self.spec(op).kind == "argument":
            return self.argument_names[self.argument_place[value]]
        return f"%{value}"

    def shown_name(self, value: int) -> str:
        """As `value_name`, but for a value without a path the place of its code, where the module tells it."""
        name = self.value_name(value)
        return self.value_places.name_of(value) or name if name == f"%{value}" else name

    @cached_property
    def value_places(self) -> ValuePlaces:
        """Names of values by where their code stands."""
        return ValuePlaces(self)

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of everything that decides how the program partitions."""
        digest = hashlib.sha256()
        for spec in self.specs:
            attributes = sorted((k, repr(v)) for k, v in spec.attributes.items())
            digest.update(repr((spec.kind, attributes, spec.operands, spec.results, spec.region)).encode())
        for array in (self.op_spec, self.operand_ptr, self.operands, self.result_ptr, self.op_scope):
            digest.update(np.ascontiguousarray(array, np.int64).tobytes())
        digest.update(repr((self.scopes, self.arguments, self.argument_names, self.outputs, self.ties)).encode())
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name != "value_places"} | {"source": None}
