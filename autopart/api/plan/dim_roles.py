"""What the dims of inputs are, by what the program does with them, in the words of MaxText and flax.

    tokens [B,S], embedding [V,D], query [D,H,K], up [D,F], scale [D]
      ->  (batch, length), (vocab, embed), (embed, heads, kv), (embed, mlp), (embed,)

Dims that some op slices together, or sums over together, are one dim: a class of places (value, dim) of one length.
Which is which is told by structure: data's first dim is the batch, what integers index is the vocabulary, and so on. A
dim of parameters that is none of these is `mlp` where two parameters meet along it, and is else without a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from autopart.api.programs.rewritings import batch_dims
from autopart.base.disjoint_sets import DisjointSets
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Matmul, Slicing
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning


def dim_roles(partitioning: Partitioning) -> dict[int, tuple[str, ...]]:
    """Argument -> the role of each dim; "" where none is known."""
    classes = _Classes(partitioning)
    program, named = partitioning.program, dict[int, str]()
    for role, place in _found(classes, batch_dims(program)):
        named.setdefault(classes.of(*place), role)
    return {
        value: tuple(named.get(classes.of(value, dim), "") for dim in range(len(program.type_of(value).shape)))
        for value in program.arguments
    }


class _Classes:
    """Places (value, dim) that are one dim."""

    def __init__(self, partitioning: Partitioning):
        self.program: Program = partitioning.program
        self.rank = int(self.program.value_rank.max(initial=1))
        self._sets = DisjointSets(self.program.value_count * self.rank)
        for op in range(self.program.op_count):
            values = [*self.program.operands_of(op).tolist(), *self.program.results_of(op)]
            for mapping in partitioning.table.of[self.program.op_spec[op]]:
                if not mapping.is_only_drawn:
                    self._join(values, (*mapping.operands, *mapping.results), mapping.extent)

    def _join(self, values: list[int], dims: tuple[int, ...], extent: int) -> None:
        places = [
            value * self.rank + dim
            for value, dim in zip(values, dims, strict=True)
            if self.program.type_of(value).shape[dim : dim + 1] == (extent,) and dim >= 0
        ]
        for place in places[1:]:
            self._sets.join(place, places[0])

    def of(self, value: int, dim: int) -> int:
        """The number of its class."""
        return self._sets.of(value * self.rank + dim)


def _found(classes: _Classes, data: Mapping[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(role, place) of what is found, in the order of `ROLES`: who comes first names a class."""
    program = classes.program
    yield from (("batch", place) for place in data.items())
    tables = list(_tables(program))
    yield from (("vocab", (table, 0)) for table in tables)
    yield from (("embed", (table, 1)) for table in tables)
    params = [v for v in program.arguments if v not in data and len(program.type_of(v).shape) > 1]
    if not tables and params:
        met = Counter(classes.of(v, d) for v in params for d in range(len(program.type_of(v).shape)))
        common = met.most_common(1)[0][0]
        yield from (("embed", (v, d)) for v in params for d in (0, 1) if classes.of(v, d) == common)
    for value, dim in data.items():
        shape = program.type_of(value).shape
        if len(shape) == 2 and program.type_of(value).dtype.startswith(("i", "ui")):
            yield "length", (value, 1 - dim)
    batch = {classes.of(*place) for place in data.items()}
    attention = list(_attention(classes, batch))
    yield from attention
    heads = {classes.of(*place) for role, place in attention if role == "heads"}
    yield from (("heads", place) for place in _merged(classes, heads))
    weights = [(v, d) for v in params for d in range(len(program.type_of(v).shape))]
    kinds = {(classes.of(v, d), program.type_of(v).shape, d) for v, d in weights}
    met = Counter(kind for kind, _, _ in kinds)
    yield from (("mlp", place) for place in weights if met[classes.of(*place)] > 1)
    rows = {program.type_of(table).shape[0] for table in tables}
    yield from (("vocab", (v, d)) for v, d in weights if program.type_of(v).shape[d] in rows)


def _merged(classes: _Classes, heads: set[int]) -> Iterator[tuple[int, int]]:
    """Last dims that are split into heads and what each of them has, or merged from these."""
    program = classes.program
    for op in range(program.op_count):
        if program.spec(op).kind == "reshape":
            values = int(program.operands_of(op)[0]), program.results_of(op)[0]
            short, long = sorted(values, key=lambda v: len(program.type_of(v).shape))
            one, two = program.type_of(short).shape, program.type_of(long).shape
            if len(two) == len(one) + 1 > 1 and one[:-1] == two[:-2] and classes.of(long, len(two) - 2) in heads:
                yield short, len(one) - 1


def _tables(program: Program) -> Iterator[int]:
    """Arguments of two dims whose rows are looked up."""
    for op in range(program.op_count):
        traits = traits_of(program.spec(op))
        if isinstance(traits, Slicing) and traits.indexed:
            value = int(program.operands_of(op)[0])
            while value not in program.argument_place and len(program.operands_of(int(program.value_op[value]))) == 1:
                value = int(program.operands_of(int(program.value_op[value]))[0])
            if value in program.argument_place and len(program.type_of(value).shape) == 2:
                yield value


def _attention(classes: _Classes, batch: set[int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Heads: a dim besides the batch along which a product is many; and what it sums over in each."""
    program = classes.program
    for op in range(program.op_count):
        if isinstance(traits_of(program.spec(op)), Matmul) and len(program.operands_of(op)) == 2:
            numbers = program.spec(op).attributes.get("dot_dimension_numbers", {})
            left, many = int(program.operands_of(op)[0]), numbers.get("lhs_batching_dimensions", ())
            if len(many) > 1:
                yield from (("heads", (left, d)) for d in many if classes.of(left, d) not in batch)
                yield from (("kv", (left, d)) for d in numbers.get("lhs_contracting_dimensions", ()))
