"""The pass `Padding`: dims that an axis does not divide are longer inside the program, and as they were outside.

    %logits = dot_general(%h, %table)         f32[8,50257]     ->     %t = pad(%table)                   f32[50304,64]
    %total = reduce(%logits) by add                                    %logits = dot_general(%h, %t)      f32[8,50304]
                                                                       %m = select(iota < 50257, %logits, 0)
                                                                       %total = reduce(%m) by add

What is longer is a whole number of tiles, so everything after this pass treats it as any other dim. `padded_dims.py`
says which ops join. What lies behind the old end is never read by anything that counts: a reduction over the dim masks
it, an index is held back to the old last place, and an op that does not join is given a slice. Arguments and outputs
keep their sizes: they are padded where they enter and sliced where they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.doors.jax_internals import numpy_dtype
from autopart.core.op import REDUCTION_NAMES, WHOLE, OpSpec, TensorType
from autopart.core.ops.rule import rule_of, traits_of
from autopart.core.ops.rules.reduce import identity
from autopart.core.ops.traits import Reduction
from autopart.core.passes.padding.joined import Joined
from autopart.core.passes.padding.padded_dims import PaddedDims, is_gather, is_reduced
from autopart.core.passes.padding.twins import MARK
from autopart.core.passes.pattern_rewriter import PatternRewriter, Place
from autopart.core.passes.program_pass import Pass
from autopart.core.program import Program

Sizes = dict[int, int]
"""dim -> new size."""


@dataclass(frozen=True)
class Padding(Pass):
    """Makes dims of arguments, or of tagged values, longer: ((value, dim, new size), ...)."""

    wanted: tuple[tuple[int, int, int], ...]

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        if not self.wanted or program.source is None:
            return program
        dims = PaddedDims(program)
        dims.ask({(value, dim): size for value, dim, size in self.wanted})
        return written_longer(program, dims)


def written_longer(program: Program, dims: PaddedDims) -> Program:
    """The program with those of its dims longer that `dims` was asked for."""
    writer = _Writer(program, dims)
    with writer.at.begun():
        return writer.written()


class _Writer:
    def __init__(self, program: Program, dims: PaddedDims):
        self._program, self._dims = program, dims
        self.at = PatternRewriter(program)
        self._rewriting = self.at.rewriting
        self._twins: dict[int, int] = {}
        self._sliced: dict[tuple[int, int, tuple[tuple[int, int], ...]], tuple[int, int]] = {}
        self._barrier = {op: barrier for barrier in program.barriers for op in barrier}
        self._masks: dict[tuple[int, int, int, float], int] = {}
        self._is_masked: dict[int, int] = {}
        self._places: dict[int, Place] = {}

    def written(self) -> Program:
        """The program with what joined longer."""
        for op, joined in self._dims.joined.items():
            self._rewriting.become(op, self._longer_spec(op, joined))
        for value, sizes in self._dims.seeds.items():
            op = int(self._program.value_op[value])
            place = Place(int(self._program.op_scope[op]), max(op + 1, len(self._program.arguments)), op)
            if sizes.items() <= self._dims.sizes.get(value, {}).items():
                continue
            if self._program.spec(op).kind == "slice":
                self._twins[value] = self._sliced_longer(op, sizes, place)
                continue
            made = self._dims.sizes.get(value, {})
            self._twins[value] = self._padded(value, value, {**made, **sizes}, place)
            self._rewriting.mark(self._twins[value], MARK)
        for op in range(self._program.op_count):
            self._reads(op, self._dims.joined.get(op, []))
        self._mask_for_all()
        self._outputs()
        return self._rewriting.program()

    def _sliced_longer(self, op: int, sizes: Sizes, place: Place) -> int:
        """A slice that goes on behind its end, to what follows there, then to zeros."""
        spec, value = self._program.spec(op), int(self._program.operands_of(op)[0])
        by, _ = self._converted(value, value, self._dims.sizes.get(value, {}), {}, place)
        type_, made = spec.operands[0], self._longer_type(spec.results[0], sizes)
        low = [-n for n in spec.attributes["start_indices"]]
        return by if type_ == made and not any(low) else self._pad(by, made, place, low)

    # ---- ops that join

    def _longer_spec(self, op: int, joined: list[Joined]) -> int:
        """The number of an op's spec with its longer factors."""
        spec = self._program.spec(op)
        operands = [self._longer_type(t, _sizes_at(joined, spec, k, False)) for k, t in enumerate(spec.operands)]
        results = [self._longer_type(t, _sizes_at(joined, spec, k, True)) for k, t in enumerate(spec.results)]
        changed = _attributes(spec, _sizes_at(joined, spec, 0, False)) if operands else {}
        return self.at.spelled(op, operands, results, **changed)

    def _longer_type(self, type_: TensorType, sizes: Sizes) -> TensorType:
        return TensorType(tuple(sizes.get(d, n) for d, n in enumerate(type_.shape)), type_.dtype)

    # ---- what an op reads

    def _reads(self, op: int, joined: list[Joined]) -> None:
        program = self._program
        spec = program.spec(op)
        for number, value in enumerate(program.operands_of(op).tolist()):
            place = self._place(op, number)
            wanted = _sizes_at(joined, spec, number, False)
            has, by = self._has(value, bool(wanted))
            if spec.kind == "argument":
                continue
            if has != wanted:
                by, has = self._converted(value, by, has, wanted, place)
            for one in joined:
                dim = one.mapping.operands[number]
                if is_reduced(one.mapping) and dim != WHOLE and not is_gather(spec):
                    by = self._masked(by, spec, number, dim, wanted, one, place)
            if is_gather(spec) and number == 1:
                by = self._held_back(by, spec, joined, wanted, place)
            if by != value:
                self._rewriting.read(int(program.operand_ptr[op]) + number, by)

    def _place(self, op: int, number: int) -> Place:
        """Where an operand of an op is made longer or shorter: before it, or where the loop or branch hands it over."""
        program, scope = self._program, int(self._program.op_scope[op])
        owner = program.owners.get(op)
        if owner is None:
            return Place(scope, self._barrier[op].start if op in self._barrier else op, op)
        if program.spec(owner).kind == "while" and number == 0:
            return Place(int(program.op_scope[owner]), owner, op)
        inner = program.inner_scopes[owner][number]
        return Place(inner, program.scopes[inner].end, op)

    def _has(self, value: int, longer: bool) -> tuple[Sizes, int]:
        """The longer dims of a value where it is made, and the value that has them."""
        if longer and value in self._twins:
            return {**self._dims.sizes.get(value, {}), **self._dims.seeds[value]}, self._twins[value]
        return self._dims.sizes.get(value, {}), value

    def _converted(self, value: int, by: int, has: Sizes, wanted: Sizes, place: Place) -> tuple[int, Sizes]:
        """A value with other longer dims than it has: sliced, then padded."""
        kept = {d: n for d, n in has.items() if wanted.get(d) == n}
        if kept != has:
            key = (by, place.scope, tuple(sorted(kept.items())))
            if key not in self._sliced or self._sliced[key][0] > place.before:
                self._sliced[key] = place.before, self._cut(value, by, kept, place)
            by = self._sliced[key][1]
        return (by if kept == wanted else self._padded(value, by, wanted, place)), wanted

    def _cut(self, value: int, by: int, kept: Sizes, place: Place) -> int:
        shape = self._longer_type(self._program.type_of(value), kept).shape
        with self.at.at(place):
            return self.at.slice(by, [0] * len(shape), shape)

    def _padded(self, value: int, by: int, wanted: Sizes, place: Place) -> int:
        return self._pad(by, self._longer_type(self._program.type_of(value), wanted), place)

    def _pad(self, by: int, made: TensorType, place: Place, low: Sequence[int] = ()) -> int:
        """Zeros at the ends of the dims that are longer; `low` of them before, or fewer elements there."""
        shape, before = self.at.type_of(by).shape, low or [0] * len(made.shape)
        after = [n - m - k for n, m, k in zip(made.shape, shape, before, strict=True)]
        with self.at.at(place):
            return self.at.pad(by, self.at.constant(0, made.dtype), before, after)

    def _masked(self, by: int, spec: OpSpec, number: int, dim: int, wanted: Sizes, one: Joined, place: Place) -> int:
        """The operand with what a reduction leaves as it is behind the old end of a dim."""
        old = spec.operands[number]
        code = one.mapping.results[min(number, len(spec.results) - 1)]
        least = identity(code, old.dtype) if isinstance(traits_of(spec), Reduction) else 0
        maker = self._place_behind(by)
        if maker is None:
            return self._mask(by, dim, old.shape[dim], least, place)
        key = by, dim, old.shape[dim], float(np.real(least))
        if key not in self._masks:
            self._masks[key] = self._mask(by, dim, old.shape[dim], least, maker)
            self._places[self._masks[key]] = maker
            self._is_masked.setdefault(by, self._masks[key])
        return self._masks[key]

    def _mask(self, by: int, dim: int, size: int, value: float | np.generic, place: Place) -> int:
        """`value` from place `size` of a dim on."""
        at, type_ = self.at, self.at.type_of(by)
        with at.at(place):
            other = at.broadcast(at.constant(value, type_.dtype), type_.shape)
            return at.select(at.box(type_.shape, [(dim, 0, size)]), by, other)

    def _place_behind(self, value: int) -> Place | None:
        """Behind the op that makes a value; None where nothing stands directly behind."""
        if value >= self._program.value_count:
            return self._places.get(value)
        op = int(self._program.value_op[value])
        rule = rule_of(self._program.spec(op))
        if value in self._twins or (rule is not None and rule.structural) or op in self._barrier:
            return None
        return Place(int(self._program.op_scope[op]), op + 1, op)

    def _mask_for_all(self) -> None:
        """All that reads a longer value reads it as it is masked for one reader: one array, made in one go."""
        program = self._program
        pointer, uses = program.users
        for value, masked in self._is_masked.items():
            for use in uses[pointer[value] : pointer[value + 1]].tolist() if value < program.value_count else ():
                if self._rewriting.read_by(use) == value and self._dims.joined.get(int(program.use_op[use])):
                    self._rewriting.read(use, masked)

    def _held_back(self, by: int, spec: OpSpec, joined: list[Joined], wanted: Sizes, place: Place) -> int:
        """The indices, none past the old end of a dim that is longer."""
        numbers, (table, old) = spec.attributes["dimension_numbers"], spec.operands
        chosen = {one.mapping.operands[0] for one in joined if is_reduced(one.mapping)}
        most = int(np.iinfo(numpy_dtype(old.dtype)).max)
        last = {d: min(most, table.shape[d] - spec.attributes["slice_sizes"][d]) for d in chosen}
        bounds = [last.get(d, most) for d in numbers["start_index_map"]]
        if all(bound == most for bound in bounds):
            return by
        dim, shape = numbers["index_vector_dim"], self._longer_type(old, wanted).shape
        with self.at.at(place):
            of = (bounds, [len(bounds)], [dim]) if dim < len(shape) else (bounds[0], [], [])
            held = self.at.broadcast(self.at.constant(of[0], old.dtype, of[1]), shape, of[2])
            return self.at.binary("minimum", by, held)

    def _outputs(self) -> None:
        """What the program returns, as long as it was; an argument's next value is what is returned."""
        program = self._program
        for value in dict.fromkeys(program.outputs):
            sizes = self._dims.sizes.get(value, {})
            if sizes:
                op = int(program.value_op[value])
                by = self._cut(value, value, {}, Place(0, program.op_count, op))
                self._rewriting.returns(value, by)
                for position in (p for p, v in enumerate(program.outputs) if v == value and p in program.ties):
                    argument = int(program.value_op[program.arguments[program.ties[position]]])
                    self._rewriting.read(int(program.operand_ptr[argument]), by)


def _sizes_at(joined: list[Joined], spec: OpSpec, number: int, of_result: bool) -> Sizes:
    """The new sizes of an operand's, or a result's, dims."""
    found: Sizes = {}
    for one in joined:
        entry = (one.mapping.results if of_result else one.mapping.operands)[number]
        if entry != WHOLE and entry not in REDUCTION_NAMES:
            old = (spec.results if of_result else spec.operands)[number].shape[entry]
            found[entry] = old * one.length // one.mapping.extent
    return found


def _attributes(spec: OpSpec, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Attributes that hold the sizes of the first operand's dims, where those are taken whole."""
    changed: dict[str, tuple[int, ...]] = {}
    for name in ("limit_indices", "slice_sizes"):
        if name in spec.attributes:
            old = spec.operands[0].shape
            has: tuple[int, ...] = tuple(spec.attributes[name])
            now = tuple(sizes.get(d, n) if n == old[d] else n for d, n in enumerate(has))
            if now != has:
                changed[name] = now
    return changed
