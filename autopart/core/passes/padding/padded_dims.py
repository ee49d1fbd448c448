"""Which values of a program get longer when a dim does, and which ops work on the longer ones.

    table f32[50257,64] to 50304      logits = h . table^T        f32[8,50304]     it joins: its mapping goes through
                                      exp(logits - max)           f32[8,50304]     joins
                                      sum over the vocabulary     f32[8]           joins, what was added is masked

What goes through an op is what its tile mappings say: a factor of the op that slices can be taken of is one that can be
made longer, its new end staying apart from what was there before. An op joins with all its operands: one that is not
longer yet is made so where it is made, back to constants, or padded there where that cannot be. Of all that could join,
`cheapest_cut.py` keeps what is worth it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autopart.core.op import ANY, REDUCTION_NAMES, WHOLE, OpSpec, TileMapping, splat_value
from autopart.core.ops.rule import mappings_of, rule_of, traits_of
from autopart.core.ops.traits import (
    Constant,
    Convolution,
    Elementwise,
    Matmul,
    Reduction,
    Slicing,
    Structural,
    Update,
    View,
)
from autopart.core.passes.padding.cheapest_cut import cheapest_cut, is_cut
from autopart.core.passes.padding.joined import Joined
from autopart.core.program import Program


@dataclass
class PaddedDims:
    """Grows from what `ask` names.

    sizes   value -> dim -> new size, of every value that an op makes longer
    joined  op -> its longer factors
    seeds   value -> dim -> new size, of the values that were asked for: a pad makes them longer, where no op does
    """

    program: Program
    sizes: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    joined: dict[int, list[Joined]] = field(default_factory=dict[int, list[Joined]])
    seeds: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    _plain: dict[int, tuple[TileMapping, ...]] = field(default_factory=dict[int, tuple[TileMapping, ...]])

    def ask(self, wanted: Mapping[tuple[int, int], int]) -> None:
        """Makes dims of values, (value, dim) -> new size, longer, and what follows from them."""
        for (value, dim), size in wanted.items():
            self.seeds.setdefault(value, {})[dim] = size
        arrived = deque((value, dim, size) for (value, dim), size in wanted.items())
        for (value, dim), size in wanted.items():
            source = self._maker(value, dim, size)
            arrived.extend(self._settled(source) if source is not None else ())
        while arrived:
            value, dim, size = arrived.popleft()
            for op, operand in self._readers(value):
                arrived.extend(self._join(op, operand, dim, size))
        joined = [one for _, ones in sorted(self.joined.items()) for one in ones]
        self.joined, self.sizes = {}, {}
        for one in cheapest_cut(self.program, joined):
            self.joined.setdefault(one.op, []).append(one)
            for value, dim, size in one.results(self.program):
                self.sizes.setdefault(value, {})[dim] = size

    def size(self, value: int, dim: int) -> int:
        """The size of a dim where an op that joined reads it."""
        for sizes in (self.sizes, self.seeds):
            if dim in sizes.get(value, {}):
                return sizes[value][dim]
        return self.program.type_of(value).shape[dim]

    def is_cut(self, value: int, dim: int) -> bool:
        """True if a use of a value that is longer needs it as it was."""
        joined = {
            op for op, k in self._readers(value) if any(j.mapping.operands[k] == dim for j in self.joined.get(op, ()))
        }
        return is_cut(self.program, value, dim, self.sizes[value][dim], joined)

    # ---- one op

    def _readers(self, value: int) -> Iterator[tuple[int, int]]:
        """(op, operand) of the uses of a value."""
        pointer, uses = self.program.users
        for use in uses[pointer[value] : pointer[value + 1]].tolist():
            op = int(self.program.use_op[use])
            yield op, use - int(self.program.operand_ptr[op])

    def _join(self, op: int, operand: int, dim: int, size: int) -> list[tuple[int, int, int]]:
        """Lets an op, one of whose operands is longer, join with all it reads; what became longer, or nothing."""
        spec = self.program.spec(op)
        if operand == 0 and is_gather(spec) and self._is_stored(int(self.program.operands_of(op)[0])):
            return []
        old = spec.operands[operand].shape[dim]
        for mapping in self._mappings(op):
            if mapping.operands[operand] == dim and size * mapping.extent % old == 0:
                return self._settled(Joined(op, mapping, size * mapping.extent // old))
        return []

    def _is_stored(self, value: int) -> bool:
        """True for an argument, which is stored whole: rows of it are read there, those of tiles are sums over them."""
        return self.program.spec(int(self.program.value_op[value])).kind == "argument"

    def _settled(self, first: Joined) -> list[tuple[int, int, int]]:
        """All that must join for `first` to join, or nothing where something cannot."""
        known = self.joined.get(first.op, [])
        if any(j.mapping == first.mapping for j in known):
            return []
        new: dict[tuple[int, TileMapping], Joined] = {}
        grown: dict[tuple[int, int], int] = {}
        todo = [first]
        while todo:
            one = todo.pop()
            new[one.op, one.mapping] = one
            for value, dim, size in one.results(self.program):
                grown[value, dim] = size
            for value, dim, size in one.operands(self.program):
                has, old = grown.get((value, dim)) or self.size(value, dim), self.program.type_of(value).shape[dim]
                if has == size:
                    continue
                if has != old:
                    return []
                source = self._maker(value, dim, size)
                if source is not None and (source.op, source.mapping) not in new:
                    todo.append(source)
        for one in new.values():
            self.joined.setdefault(one.op, []).append(one)
        for (value, dim), size in grown.items():
            self.sizes.setdefault(value, {})[dim] = size
        return [(value, dim, size) for (value, dim), size in grown.items()]

    def _mappings(self, op: int) -> tuple[TileMapping, ...]:
        """The mappings of an op whose factor may be longer."""
        number = int(self.program.op_spec[op])
        if number not in self._plain:
            self._plain[number] = tuple(_plain(self.program.specs[number]))
        return self._plain[number]

    def _maker(self, value: int, dim: int, size: int) -> Joined | None:
        """How the op that makes a value would make it longer; None where the value is padded at its use instead."""
        op = int(self.program.value_op[value])
        spec, result = self.program.spec(op), value - int(self.program.result_ptr[op])
        old = spec.results[result].shape[dim]
        for mapping in self._mappings(op):
            if mapping.results[result] == dim and size * mapping.extent % old == 0:
                return Joined(op, mapping, size * mapping.extent // old)
        return None


def _plain(spec: OpSpec) -> Iterator[TileMapping]:
    """The mappings whose factor may be longer: what was there before does not depend on what is added."""
    if not _may_join(spec):
        return
    for mapping in mappings_of(spec) or ():
        moves = mapping.is_only_drawn or (mapping.drawn_by and not isinstance(traits_of(spec), View | Matmul))
        if mapping.after is None and not moves and _keeps_apart(spec, mapping):
            yield mapping


def _may_join(spec: OpSpec) -> bool:
    traits, rule = traits_of(spec), rule_of(spec)
    if rule is None or (rule.structural and spec.attributes) or spec.kind == "argument":
        return False
    if isinstance(traits, Constant):
        return splat_value(spec) is not None and "complex" not in spec.results[0].dtype
    if isinstance(traits, Convolution):
        return spec.attributes["feature_group_count"] == spec.attributes["batch_group_count"] == 1
    return isinstance(traits, Structural | View | Elementwise | Slicing | Reduction | Matmul | Update)


def _keeps_apart(spec: OpSpec, mapping: TileMapping) -> bool:
    """True if the op's attributes allow a longer factor, and a reduction over it can be masked, an index held back."""
    traits, reduced = traits_of(spec), is_reduced(mapping)
    promised = any(spec.attributes.get(name) for name in ("indices_are_sorted", "unique_indices"))
    if ANY in mapping.results or "broadcast_sizes" in spec.attributes or promised:
        return False
    if isinstance(traits, Slicing):
        return _reads_whole(spec, mapping) and (not reduced or is_gather(spec))
    if isinstance(traits, Update):
        if spec.kind == "scatter":
            return not reduced or spec.region == "add"
        return not reduced and WHOLE not in mapping.operands[:2]
    if "edge_padding_low" in spec.attributes:
        dim, sides = mapping.operands[0], ("edge_padding_low", "edge_padding_high", "interior_padding")
        return all(spec.attributes[side][dim] == 0 for side in sides)
    return not reduced or isinstance(traits, Matmul | Convolution) or "dimensions" in spec.attributes


def _reads_whole(spec: OpSpec, mapping: TileMapping) -> bool:
    """True unless it is a slice that leaves out a part of the dim."""
    dim = mapping.operands[0]
    if dim == WHOLE or "limit_indices" not in spec.attributes:
        return True
    return spec.operands[0].shape[dim] == spec.results[0].shape[dim]


def is_gather(spec: OpSpec) -> bool:
    """An index chooses what is read: one past the end reads the last."""
    return spec.kind == "gather"


def is_reduced(mapping: TileMapping) -> bool:
    """The factor is summed over, or chosen from by an index."""
    return any(entry in REDUCTION_NAMES for entry in mapping.results)
