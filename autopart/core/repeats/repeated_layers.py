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

from dataclasses import dataclass, field

import numpy as np

from autopart.core.op import splat_value
from autopart.core.ops.rule import mappings_of
from autopart.core.program import Program
from autopart.core.ragged import entries_of
from autopart.core.repeats.colour_lines import Members, followed, lines_between
from autopart.core.repeats.colours import mixed, path_without_digits, refined, text_colour
from autopart.core.repeats.phase_starts import later_starts, middles

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


def repeated_layers(program: Program, most_alike: int | None = None) -> RepeatedLayers | None:
    """The layers of a program, or None where fewer than `LEAST` are alike, or most ops like over `most_alike`."""
    names = np.zeros(program.op_count, np.uint64)
    for value, name in zip(program.arguments, program.argument_names, strict=True):
        names[program.value_op[value]] = text_colour(path_without_digits(name))
    colour = mixed(like_specs(program)[program.op_spec].astype(np.uint64), names)
    chain = layer = np.full(program.op_count, NO_CHAIN, np.int32)
    for stage, rounds in enumerate(ROUNDS):
        for _ in range(rounds):
            colour = _refined(program, colour, chain < 0)
        alike = _Alike.of(program, colour)
        if most_alike is not None and alike.usual > most_alike:
            return None
        chain, layer = alike.chains(program)
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


def _refined(program: Program, colour: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """uint64[ops]: colours after a round, of the ops that change."""
    if not program.owners:
        return refined(program, colour, changes)
    return np.where(changes, _with_owners(program, refined(program, colour)), colour)


def _with_owners(program: Program, colour: np.ndarray) -> np.ndarray:
    """uint64[ops]: colours once loops and branches know what is carried and joined, and that knows them."""
    parts, owners = np.array([*program.owners.items()], np.int64).T
    above = np.zeros_like(colour)
    np.add.at(above, owners, mixed(colour[parts], (parts - owners).astype(np.uint64)))
    told = mixed(colour, above)
    told[parts] = mixed(told[parts], told[owners])
    return told


@dataclass(frozen=True)
class _Alike:
    """Ops by colour.

    members               the ops of each, with its number and their places among them
    sizes[g]              ops of a colour
    first[g]              the first of them
    is_argument[g]        they are arguments
    usual                 the size of most that are large enough, by ops; 0 where none is
    """

    members: Members
    sizes: np.ndarray
    first: np.ndarray
    is_argument: np.ndarray
    usual: int

    @property
    def group(self) -> np.ndarray:
        """int64[ops]: the number of an op's colour."""
        return self.members.group

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
        many = sizes[(sizes >= LEAST) & ~is_argument[first]]
        usual = int(np.bincount(many, weights=many).argmax()) if len(many) else 0
        members = Members(by_colour, np.append(begins, len(colour)), group, rank)
        return _Alike(members, sizes, first, is_argument[first], usual)

    def chains(self, program: Program) -> tuple[np.ndarray, np.ndarray]:
        """(chain, layer) of every op; see `RepeatedLayers`."""
        usual = self.usual
        if not usual:
            return np.full(len(self.group), NO_CHAIN, np.int32), np.zeros(len(self.group), np.int32)
        alike = np.flatnonzero((self.sizes == usual) & ~self.is_argument)
        found = followed(lines_between(program, self.members, LEAST), int(alike[self.first[alike].argmin()]))
        start, turn, sizes = found.start[found.order], found.turn[found.order], self.sizes[found.order]
        least = np.minimum(start, start + turn * (sizes - 1))
        off = middles(found.phase, least, sizes, usual)[found.phase]
        moved = later_starts(found.phase, turn, least - off, sizes, usual)
        found.start[found.order] += np.where(self.is_argument[found.order], moved, 0) - off
        chain = found.number[self.group]
        layer = found.start[self.group] + found.turn[self.group] * self.members.rank
        return chain, np.where(chain >= 0, layer, 0).astype(np.int32)

    def beyond_lines(self, program: Program, chain: np.ndarray, layer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(chain, layer) with the colours that stand in no line; see the module."""
        chain, layer, many = chain.copy(), layer.copy(), self.sizes[self.group] >= LEAST
        known, ops = int(chain.max()) + 1, np.flatnonzero((chain >= 0) & many)
        while len(ops):
            one, other, place = _ways(program, ops)
            further = many[other] & (chain[other] < 0)
            ops, layers = self._one_to_one(one[further], other[further], place[further], layer)
            begins = np.diff(self.group[ops], prepend=-1) != 0
            chain[ops], layer[ops] = known + np.cumsum(begins) - 1, layers
            known += np.count_nonzero(begins)
        return chain, layer

    def _one_to_one(
        self, one: np.ndarray, other: np.ndarray, place: np.ndarray, layer: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(ops, layers) of the colours in `other` each of whose members meets one op in `one`, all of other layers.

        Ops come by colour. Of the colours and places at which one meets such ops the first counts.
        """
        a, b = self.group[one], self.group[other]
        order = np.lexsort((other, place, a, b))
        a, b, place, other, of = a[order], b[order], place[order], other[order], layer[one[order]]
        begins = (np.diff(b, prepend=-1) != 0) | (np.diff(a, prepend=-1) != 0) | (np.diff(place, prepend=-1) != 0)
        row, starts = np.cumsum(begins) - 1, np.flatnonzero(begins)
        whole = np.diff(np.append(starts, len(b))) == self.sizes[b[starts]]
        whole[row[(np.diff(other, prepend=-1) == 0) & ~begins]] = False
        left = np.flatnonzero(whole[row])
        by_layer = left[np.lexsort((of[left], row[left]))]
        same = (np.diff(of[by_layer]) == 0) & (np.diff(row[by_layer]) == 0)
        whole[row[by_layer[1:][same]]] = False
        rows = np.flatnonzero(whole)
        chosen = np.zeros(len(starts), np.bool_)
        chosen[rows[np.diff(b[starts[rows]], prepend=-1) != 0]] = True
        return other[chosen[row]], of[chosen[row]]


def _ways(program: Program, ops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(one, other, place): what some ops read and what reads them, and a number for where."""
    (pointer, by_value), values = program.users, entries_of(program.result_ptr, ops)
    read, read_by = entries_of(program.operand_ptr, ops), by_value[entries_of(pointer, values)]
    places = [uses - program.operand_ptr[program.use_op[uses]] for uses in (read, read_by)]
    readers, makers = program.use_op, program.value_op[program.operands]
    return (
        np.append(readers[read], makers[read_by]),
        np.append(makers[read], readers[read_by]),
        np.append(2 * places[0], 2 * places[1] + 1),
    )
