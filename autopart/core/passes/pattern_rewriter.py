"""The one driver for rewriting: patterns over a program, until none of them applies.

    @register_pass("empty_arrays")
    @dataclass(frozen=True)
    class EmptyArrays(PatternPass):
        roots = ("concatenate", "pad")                     kinds of ops that may be replaced; () for any kind

        def wanted(self, spec): ...                        asked once for each distinct op: can this be the root?
        def rewrite(self, at, op): ...                     the condition, and what replaces it

A pattern looks at its root, at what makes its operands and at what reads its results, as they are by now, and puts ops
in before the root: `at` is a vocabulary whose values are the program's. What it returns stands for the results from
then on, None leaves the root as it is. There is one worklist: all roots in order; then what was put in and what reads
it, since either may be a root in its turn. Ops that nobody needs any more are dropped, and everything is numbered anew
once. Each op is looked at when it comes up, so the work is linear in the program and in what is put in, as long as a
pattern looks at a number of ops beside its root that is bounded, or that it replaces.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from autopart.core.attributes import encode
from autopart.core.doors.jax_internals import func, ir, numpy_dtype
from autopart.core.mlir_values import MlirValues, i64s, mlir_type
from autopart.core.op import MAX, MIN, MUL, SUM, OpSpec, TensorType, splat_value
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.rule import rule_of, traits_of
from autopart.core.passes.dead_code import DeadCode
from autopart.core.passes.program_pass import Pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program
from autopart.core.splats import spreads

COMBINED = {"add": (SUM, "add"), "mul": (MUL, "multiply"), "max": (MAX, "maximum"), "min": (MIN, "minimum")}
"""What regions that combine two elements do: the reduction, and its op."""

MOST_TURNS = 512
"""So often an op that was put in for another is replaced in its turn, at most."""


class PatternPass(Pass):
    """A pass that is a pattern; see the module."""

    roots: ClassVar[tuple[str, ...]] = ()
    again: ClassVar[bool] = True
    """Whether what was put in is looked at in its turn."""

    def wanted(self, spec: OpSpec) -> bool:
        """Whether an op of this spec can be the root; its kind is one of `roots`."""
        return True

    @abstractmethod
    def rewrite(self, at: PatternRewriter, op: int) -> int | Sequence[int] | None:
        """What stands for the results of `op` from now on; None, or nothing, where it stays."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        if program.source is None or not any(self._may_be(spec) for spec in program.specs):
            return program
        with PatternRewriter(program).begun() as at:
            self.run(at)
        return at.done()

    def _may_be(self, spec: OpSpec) -> bool:
        return (not self.roots or spec.kind in self.roots) and self.wanted(spec)

    def run(self, at: PatternRewriter) -> None:
        """Goes through the roots."""
        rewriting = at.rewriting
        known = [self._may_be(spec) for spec in rewriting.before.specs]
        left = deque((op, 0) for op in np.flatnonzero(np.array(known)[rewriting.before.op_spec]).tolist())
        while left:
            op, turn = left.popleft()
            if rewriting.is_erased(op) or not known[rewriting.spec_number(op)]:
                continue
            first = rewriting.op_count
            at.place = at.place_of(op)
            made = self.rewrite(at, op)
            values = [] if made is None else [made] if isinstance(made, int) else list(made)
            for old, new in zip(rewriting.results(op) if values else (), values, strict=True):
                if old != new:
                    rewriting.replace(old, new)
            known += [self._may_be(rewriting.spec_of(n)) for n in range(len(known), rewriting.spec_count)]
            if self.again and turn < MOST_TURNS:
                left.extend((o, turn + 1) for o in sorted(_beside(rewriting, range(first, rewriting.op_count), values)))


def _beside(rewriting: Rewriting, ops: range, values: Sequence[int]) -> set[int]:
    """New ops, what makes their operands, and what reads some values."""
    makers = {rewriting.maker(value) for op in ops for value in rewriting.operands(op)}
    return {*ops, *makers, *(reader for value in values for reader in rewriting.readers(value))}


class Place(NamedTuple):
    """Where ops are put in: a scope, before which op, and from whose line they come."""

    scope: int
    before: int
    like: int


class PatternRewriter(MlirValues):
    """What patterns look at and put in, at `place`: values are numbers of `rewriting`.

    known   what a pattern found out about dims of values, (value, dim)
    numbers what `known_numbers` found out about values; `rounded`: to the last bit but one
    shares  an op that was put in before, and stands before `place`, is not put in again
    """

    def __init__(self, program: Program):
        super().__init__()
        self.rewriting, self.place = Rewriting(program), Place(0, 0, 0)
        self._made: dict[tuple[object, ...], int] = {}
        self._once: dict[tuple[object, ...], int] = {}
        self._shared: dict[tuple[int, ...], list[int]] = {}
        self.known: dict[tuple[int, int], Any] = {}
        self.numbers: dict[int, np.ndarray | None] = {}
        self.rounded = False
        self.shares = False

    @contextmanager
    def begun(self) -> Generator[PatternRewriter]:
        """For a pass to put ops in."""
        with self.rewriting.before.source.module.context, ir.Location.unknown():
            yield self

    @contextmanager
    def at(self, place: Place) -> Generator[None]:
        """Puts in at another place."""
        was, self.place = self.place, place
        yield
        self.place = was

    def place_of(self, op: int) -> Place:
        """Before an op."""
        return Place(self.scope(op), op, op)

    def done(self) -> Program:
        """The rewritten program, without what nobody needs any more; the one before where nothing was asked for."""
        program = self.rewriting.program()
        return program if program is self.rewriting.before else DeadCode().apply(program)

    # ---- what is there

    def spec(self, op: int) -> OpSpec:
        """Kind, attributes and types of an op."""
        return self.rewriting.op_spec(op)

    def operands(self, op: int) -> list[int]:
        """What an op reads."""
        return self.rewriting.operands(op)

    def type_of(self, value: Any) -> TensorType:
        """Shape and element type of a value."""
        return self.rewriting.type_of(value)

    def maker(self, value: int) -> int:
        """The op that makes a value."""
        return self.rewriting.maker(value)

    def made_by(self, value: int, *kinds: str) -> OpSpec | None:
        """The spec of the op that makes a value, if it is of one of these kinds and stands in the root's scope."""
        op = self.maker(value)
        spec = self.spec(op)
        return spec if spec.kind in kinds and self.scope(op) == self.place.scope else None

    def scope(self, op: int) -> int:
        """The scope in which an op stands."""
        return self.rewriting.scope(op)

    def only_readers(self, value: int, *kinds: str, operand: int | None = 0) -> list[int]:
        """The ops that read a value, if all are of these kinds, read it as that operand, stand where it is made, and
        nothing else sees it; else none."""
        if self.rewriting.is_seen(value):
            return []
        scope, readers = self.scope(self.maker(value)), list(dict.fromkeys(self.rewriting.readers(value)))
        for reader in readers:
            if self.spec(reader).kind not in kinds or self.scope(reader) != scope:
                return []
            if operand is not None and [k for k, v in enumerate(self.operands(reader)) if v == value] != [operand]:
                return []
        return readers

    def splat(self, value: int) -> np.generic | None:
        """The one number of all elements of a value; None where there is no such number, or it is not known."""
        spec = self.spec(op := self.maker(value))
        while len(spec.operands) == 1 and (spreads(traits_of(spec)) or spec.kind == "convert"):
            dtypes = spec.operands[0].dtype, spec.results[0].dtype
            if dtypes[0] != dtypes[1]:
                known = self.splat(self.operands(op)[0])
                return None if known is None else known.astype(numpy_dtype(dtypes[1]))
            spec = self.spec(op := self.maker(self.operands(op)[0]))
        return splat_value(spec)

    # ---- what is put in

    def again(
        self, op: int, operands: Sequence[int], results: Sequence[TensorType] | None = None, **attributes: Any
    ) -> list[int]:
        """An op again, with other operands, results of other types, and some attributes replaced."""
        types = list(map(self.type_of, operands))
        made = self.spec(op).results if results is None else results
        return self._add(self.spelled(op, types, made, **attributes), operands)

    def spelled(self, op: int, types: Sequence[TensorType], results: Sequence[TensorType], **attributes: Any) -> int:
        """The number of the spec of an op with other types, and some attributes replaced."""
        number = self.rewriting.spec_number(op)
        key = "again", number, tuple(types), tuple(results), repr(attributes)
        if key not in self._made:
            self._made[key] = self._spelled(number, tuple(types), tuple(results), attributes)
        return self._made[key]

    def once(self, key: tuple[object, ...], make: Callable[[], int]) -> int:
        """What `make` puts in, for the first root that asks by this key; later ones read the same."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def same(self, a: int) -> int:
        """A value again, as one of its own: a reshape to its own shape."""
        return self._create("reshape", [a], self.type_of(a))

    def reverse(self, a: int, dims: Sequence[int]) -> int:
        """A value with some dims backwards."""
        return self._create("reverse", [a], self.type_of(a), dimensions=i64s(dims))

    def total(self, values: Sequence[int]) -> int:
        """The sum of some values, from the first on."""
        made = values[0]
        for value in values[1:]:
            made = self.binary("add", made, value)
        return made

    def combine(self, kind: str, a: int, start: int, dims: Sequence[int]) -> int:
        """A reduction of `a` over dims by an elementwise op of two operands."""
        kept = tuple(n for d, n in enumerate(self.type_of(a).shape) if d not in dims)
        made = TensorType(kept, self.type_of(a).dtype)
        return self._create("reduce", [a, start], made, by=kind, dimensions=i64s(dims))

    def mark(self, op: int, **attributes: Any) -> None:
        """Gives an op attributes that no module knows; ops that were equal and are marked alike share a spec."""
        number = self.rewriting.spec_number(op)
        spec = self.rewriting.spec_of(number)
        marked = replace(spec, attributes={**spec.attributes, **attributes})
        self.rewriting.become(op, self.rewriting.spec(marked, self.rewriting.representative(number)))

    def replace(self, op: int, made: int) -> None:
        """All that reads the one result of an op reads `made` from now on."""
        [old] = self.rewriting.results(op)
        if old != made:
            self.rewriting.replace(old, made)

    def box(self, shape: Sequence[int], ends: Sequence[tuple[int, int, int]]) -> int:
        """A mask: true from place `begin` to `end` of each (dim, begin, end)."""
        places = TensorType(tuple(shape), "i32")
        bounds = [(d, "GE", begin) for d, begin, _ in ends if begin]
        bounds += [(d, "LT", end) for d, _, end in ends if end != shape[d]]
        mask = None
        for dim, direction, bound in bounds:
            bound = self.broadcast(self.constant(bound, "i32"), shape)
            inside = self.compare(self.iota(places, dim), bound, direction)
            mask = inside if mask is None else self.binary("and", mask, inside)
        return self.constant(True, "i1", shape) if mask is None else mask

    def _add(self, spec: int, operands: Sequence[int]) -> list[int]:
        key = spec, self.place.scope, *operands
        if key in self._shared and self.rewriting.stands_before(self._shared[key][0], self.place.before):
            return self._shared[key]
        made = self.rewriting.add(spec, operands, *self.place)
        if self.shares and operands and not traits_of(self.rewriting.spec_of(spec)).cloned_per_use:
            self._shared[key] = made
        return made

    def create(
        self,
        name: str,
        operands: Sequence[int],
        results: Sequence[TensorType],
        by: str = "",
        marks: tuple[tuple[str, object], ...] = (),
        kind: str = "",
        **sides: ir.Attribute,
    ) -> list[int]:
        """An op by its full name, as MLIR has it; `by` is the op of two elements that its region returns, `marks` are
        attributes that no module knows, and so may the `kind` be that it has with them."""
        key = name, tuple(map(self.type_of, operands)), tuple(results), by, tuple(sides.items()), marks
        if key not in self._made:
            number, rewriting = self._new_spec(*key[:4], sides), self.rewriting
            spec = rewriting.spec_of(number)
            marked = replace(spec, kind=kind or spec.kind, attributes={**spec.attributes, **dict(marks)})
            self._made[key] = rewriting.spec(marked, rewriting.representative(number)) if marks else number
        return self._add(self._made[key], operands)

    def _create(self, kind: str, operands: Sequence[Any], result: TensorType, by: str = "", **sides: Any) -> int:
        return self.create(f"stablehlo.{kind}", operands, [result], by, **sides)[0]

    def _new_spec(
        self, name: str, types: Sequence[TensorType], results: Sequence[TensorType], by: str, sides: dict[str, Any]
    ) -> int:
        module, block = self._function(types)
        with ir.InsertionPoint.at_block_terminator(block):
            made = [mlir_type(t) for t in results]
            op = ir.Operation.create(name, made, list(block.arguments), sides, regions=1 if by else 0)
        if by:
            one = ir.RankedTensorType.get([], ir.Type.parse(results[0].dtype))
            body = op.regions[0].blocks.append(one, one)
            with ir.InsertionPoint(body):
                both = ir.Operation.create(f"stablehlo.{by}", [one], list(body.arguments))
                ir.Operation.create("stablehlo.return", [], list(both.results))
        self.rewriting.modules.append(module)
        return self.rewriting.spec(spec_of(op), op)

    def _spelled(
        self, number: int, types: tuple[TensorType, ...], results: tuple[TensorType, ...], attributes: dict[str, Any]
    ) -> int:
        """The number of a spec with other types and attributes; that of a clone, where a module has the op."""
        spec, source = self.rewriting.spec_of(number), self.rewriting.representative(number)
        rule = rule_of(spec)
        if rule is None or rule.structural or source is None or source.name.endswith("optimization_barrier"):
            changed = {**spec.attributes, **attributes}
            return self.rewriting.spec(replace(spec, attributes=changed, operands=types, results=results))
        module, block = self._function(types)
        op = source.clone(ip=ir.InsertionPoint.at_block_terminator(block)).operation
        for k, argument in enumerate(block.arguments):
            op.operands[k] = argument
        for result, type_ in zip(op.results, results, strict=True):
            result.set_type(mlir_type(type_))
        for name, value in attributes.items():
            if isinstance(value, ir.Attribute):
                op.attributes[name] = value
            elif name in op.attributes:
                op.attributes[name] = encode(value, op.attributes[name])
            else:
                op.attributes[name] = i64s(value) if np.ndim(value) == 1 else dense(value)
        if "value" in op.attributes and not types:
            splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(op.results[0].type, splat)
        self.rewriting.modules.append(module)
        made = spec_of(op)
        marks = {k: v for k, v in spec.attributes.items() if k not in made.attributes}
        return self.rewriting.spec(replace(made, attributes={**made.attributes, **marks}), op)

    def _function(self, types: Sequence[TensorType]) -> tuple[ir.Module, ir.Block]:
        """A module with a function of operands of some types, which returns nothing yet."""
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([mlir_type(t) for t in types], []))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([])
        return module, block


def dense(rows: Sequence[Sequence[int]]) -> ir.Attribute:
    """The attribute of rows of numbers."""
    return ir.DenseElementsAttr.get(cast(Any, np.array(rows, np.int64)))
