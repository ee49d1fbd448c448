"""Repeated layers of a program: which ops play the same part in one layer after another.

    forward     a1 b1  a2 b2  a3 b3          chain "a" is a1, a2, a3; a3 belongs to layer 3
    backward    B3 A3  B2 A2  B1 A1          chain "A" is A3, A2, A1 in program order, its layers are 3, 2, 1
    update      u1 v1  u2 v2  u3 v3

Ops of one colour (`colours.py`, with all attributes, types and paths of arguments) are a chain if they stand in one
line with another chain: member i of one is beside, or reads, member i + c or c - i of the other, throughout. The second
makes them run the other way, as a backward pass does. Ops near the ends of the stack have other colours than those
inside it, and belong to no chain.

Chains that follow each other in the program are found along it, so that a layer's ops stand together: a *phase*. Two
phases may differ by one in what they call layer 1; what holds for all is that every step to the next layer is one step.

    update      u1 u10 u11 u2 u3 ...        layers by name, as in the dictionaries of flax

What stands in no line is a chain all the same if each of its members reads, or is read by, another layer's member of a
chain. Its layers come in an order of their own.

Numbers that are written into a program tell no layers apart: the seeds of dropout differ from layer to layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from autopart.core.colour_lines import Lines, Members, followed, lines_between
from autopart.core.colours import mixed, path_without_digits, refined, text_colour
from autopart.core.op import splat_value
from autopart.core.ops.rule import mappings_of
from autopart.core.phase_starts import later_starts, middles
from autopart.core.program import Program

LEAST = 6
"""Layers that are worth finding."""

ROUNDS = (4, 4, 8, 16)
"""Hops that tell ops apart: the second number for those that stay without a chain after the first, and so on."""

ENOUGH = 0.9
"""Share of a program's ops in chains at which nobody looks further."""

LEAST_SHARE = 0.3
"""Share of a program's ops that its layers have, where they are worth finding."""

NO_CHAIN = -1


@dataclass(frozen=True, eq=False)
class RepeatedLayers:
    """Chains of a program; make them with `repeated_layers`.

    chain[op]     int32; the chain that an op belongs to, or `NO_CHAIN`
    layer[op]     int32; its layer, where it has a chain
    first, last   layers in which every chain has an op
    """

    chain: np.ndarray = field(repr=False)
    layer: np.ndarray = field(repr=False)
    first: int
    last: int

    def table(self) -> np.ndarray:
        """int32[chains, layers]: the op of a chain in layer `low + column`, or -1; `low` is the least layer."""
        member = np.flatnonzero(self.chain >= 0)
        table = np.full((int(self.chain.max()) + 1, int(self.layer[member].max()) - self.low + 1), -1, np.int32)
        table[self.chain[member], self.layer[member] - self.low] = member
        return table

    def taken_together(self, count: int) -> RepeatedLayers:
        """So many layers as one, with as many times the chains.

        The first `count - 1` are in none of those that are whole: what begins in a layer may end before `count` more.
        """
        begin, has_chain = self.first + count - 1, self.chain >= 0
        return RepeatedLayers(
            np.where(has_chain, self.chain * count + (self.layer - begin) % count, NO_CHAIN).astype(np.int32),
            np.where(has_chain, (self.layer - begin) // count, 0).astype(np.int32),
            0, (self.last - begin + 1) // count - 1,
        )  # fmt: skip

    @property
    def low(self) -> int:
        """The least layer of any op."""
        return int(self.layer[self.chain >= 0].min())


def repeated_layers(program: Program) -> RepeatedLayers | None:
    """The layers of a program, or None where fewer than `LEAST` are alike."""
    names = np.zeros(program.op_count, np.uint64)
    for value, name in zip(program.arguments, program.argument_names, strict=True):
        names[program.value_op[value]] = text_colour(path_without_digits(name))
    colour = mixed(like_specs(program)[program.op_spec].astype(np.uint64), names)
    chain = layer = np.full(program.op_count, NO_CHAIN, np.int32)
    for stage, rounds in enumerate(ROUNDS):
        for _ in range(rounds):
            colour = np.where(chain < 0, _with_owners(program, refined(program, colour)), colour)
        alike = _Alike.of(program, colour)
        chain, layer = alike.chains()
        found = np.count_nonzero(chain >= 0) / max(program.op_count, 1)
        if found < LEAST_SHARE * (stage + 1) / len(ROUNDS):
            return None
        if stage + 1 == len(ROUNDS):
            chain, layer = alike.beyond_lines(program, chain, layer)
        elif stage + 2 == len(ROUNDS) and found > ENOUGH:
            break
    member = np.flatnonzero(chain >= 0)
    if not len(member):
        return None
    chains = int(chain.max()) + 1
    least, most = np.full(chains, np.iinfo(np.int32).max), np.full(chains, np.iinfo(np.int32).min)
    np.minimum.at(least, chain[member], layer[member])
    np.maximum.at(most, chain[member], layer[member])
    first, last = int(least.max()), int(most.min())
    return RepeatedLayers(chain, layer, first, last) if last - first + 1 >= LEAST else None


def like_specs(program: Program) -> np.ndarray:
    """int64[specs]: equal for specs that differ in nothing but the number that a constant has, or where a slice begins.

    Zeros and ones are told from others, since they change nothing in a sum or a product; slices that are tiled in
    different ways are told apart.
    """
    known: dict[object, int] = {}

    def key(place: int) -> object:
        spec = program.specs[place]
        number = splat_value(spec)
        if spec.kind == "slice":
            return spec.operands, spec.results, spec.attributes["strides"], mappings_of(spec)
        return place if number is None else (spec.results, bool(number == 0), bool(number == 1))

    return np.array([known.setdefault(key(place), len(known)) for place in range(len(program.specs))], np.int64)


def _with_owners(program: Program, colour: np.ndarray) -> np.ndarray:
    """uint64[ops]: colours once loops and branches know what is carried and joined, and that knows them."""
    if not program.owners:
        return colour
    parts, owners = np.array([*program.owners.items()], np.int64).T
    above = np.zeros_like(colour)
    np.add.at(above, owners, mixed(colour[parts], (parts - owners).astype(np.uint64)))
    told = mixed(colour, above)
    told[parts] = mixed(told[parts], told[owners])
    return told


@dataclass(frozen=True)
class _Alike:
    """Ops by colour.

    group[op], rank[op]   the number of the op's colour; how many ops of that colour stand before it
    sizes[g]              ops of a colour
    first[g]              the first of them
    is_argument[g]        they are arguments
    lines                 the lines between colours
    """

    group: np.ndarray
    rank: np.ndarray
    sizes: np.ndarray
    first: np.ndarray
    is_argument: np.ndarray
    lines: Lines

    @staticmethod
    def of(program: Program, colour: np.ndarray) -> _Alike:
        """Sorts the ops of a program."""
        by_colour = np.argsort(colour, kind="stable")
        begins = np.flatnonzero(np.diff(colour[by_colour], prepend=~colour[by_colour[:1]]))
        sizes = np.diff(np.append(begins, len(colour)))
        group, rank = np.empty((2, len(colour)), np.int64)
        group[by_colour] = np.repeat(np.arange(len(sizes)), sizes)
        rank[by_colour] = np.arange(len(colour)) - np.repeat(begins, sizes)
        is_argument = np.zeros(len(colour), np.bool_)
        is_argument[program.value_op[program.arguments]] = True
        first = by_colour[begins]
        lines = lines_between(program, Members(by_colour, np.append(begins, len(colour)), group, rank), LEAST)
        return _Alike(group, rank, sizes, first, is_argument[first], lines)

    def chains(self) -> tuple[np.ndarray, np.ndarray]:
        """(chain, layer) of every op; see `RepeatedLayers`."""
        many = np.flatnonzero((self.sizes >= LEAST) & ~self.is_argument)
        if not len(many):
            return np.full(len(self.group), NO_CHAIN, np.int32), np.zeros(len(self.group), np.int32)
        usual = int(np.bincount(self.sizes[many], weights=self.sizes[many]).argmax())
        alike = many[self.sizes[many] == usual]
        found = followed(self.lines, int(alike[self.first[alike].argmin()]))
        start, turn, sizes = found.start[found.order], found.turn[found.order], self.sizes[found.order]
        least = np.minimum(start, start + turn * (sizes - 1))
        off = middles(found.phase, least, sizes, usual)[found.phase]
        moved = later_starts(found.phase, turn, least - off, sizes, usual)
        found.start[found.order] += np.where(self.is_argument[found.order], moved, 0) - off
        chain = found.number[self.group]
        layer = found.start[self.group] + found.turn[self.group] * self.rank
        return chain, np.where(chain >= 0, layer, 0).astype(np.int32)

    def beyond_lines(self, program: Program, chain: np.ndarray, layer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(chain, layer) with the colours that stand in no line; see the module."""
        chain, layer, many = chain.copy(), layer.copy(), self.sizes[self.group] >= LEAST
        one, other = program.use_op, program.value_op[program.operands]
        place = np.arange(len(one)) - program.operand_ptr[one]
        some = many[one] & many[other]
        one, other, place = one[some], other[some], place[some]
        one, other, place = np.append(one, other), np.append(other, one), np.append(2 * place, 2 * place + 1)
        found = True
        while found:
            ways = np.flatnonzero((chain[one] >= 0) & (chain[other] < 0))
            found = False
            for ops, layers in self._one_to_one(one[ways], other[ways], place[ways], layer):
                if chain[ops[0]] < 0:
                    chain[ops], layer[ops], found = int(chain.max()) + 1, layers, True
        return chain, layer

    def _one_to_one(
        self, one: np.ndarray, other: np.ndarray, place: np.ndarray, layer: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(ops, layers) of the colours in `other` each of whose members meets one op in `one`, all of other layers."""
        a, b = self.group[one], self.group[other]
        order = np.lexsort((other, place, a, b))
        a, b, place, other, of = a[order], b[order], place[order], other[order], layer[one[order]]
        starts = np.flatnonzero(np.diff(b, prepend=-1) | np.diff(a, prepend=-1) | np.diff(place, prepend=-1)).tolist()
        for start, end in itertools.pairwise([*starts, len(b)]):
            ops, layers = other[start:end], of[start:end]
            whole = end - start == self.sizes[b[start]] and (np.diff(ops) > 0).all()
            if whole and len(np.unique(layers)) == len(layers):
                yield ops, layers
