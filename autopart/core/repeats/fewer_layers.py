"""A program with fewer of its repeated layers: what is true of one layer inside the stack is true of the others.

    layers      1  2  3  4  5  6  7  8          forward and backward; parameters, gradients, updates
    kept        1  2  3                 8        layer 8 reads of layer 3 what it read of layer 7; 4 to 7 are left out
    stands for  1  1  5                 1        layers of the whole program

A layer is left out of all chains (`repeated_layers.py`), whichever way they run. What is left is a program of its own:
partitioned like the whole one, each of its ops is what some op is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autopart.core.passes.dead_code import kept_ops
from autopart.core.program import ROOT, Program
from autopart.core.ragged import entries_of
from autopart.core.repeats.repeated_layers import RepeatedLayers, like_specs, repeated_layers

LEAST_LEFT_OUT = 2
"""Layers that are worth leaving out."""


class Three(NamedTuple):
    """ops, values, uses: int[3, n]; those that correspond in the layer before the typical one, in it, and after it."""

    ops: np.ndarray
    values: np.ndarray
    uses: np.ndarray

    def agree(self, of: np.ndarray, three: np.ndarray) -> bool:
        """True if what is known of ops, values or uses is the same for those that correspond: the rows of `three`."""
        before, typical, after = of[three]
        return bool((before == typical).all() and (typical == after).all())


@dataclass(frozen=True, eq=False)
class FewerLayers:
    """A program with fewer layers, beside the whole one; numbers of its own ops unless said otherwise.

    program     with fewer layers
    layers      those of the whole program
    ops         int32[ops]: the ops of the whole program that are kept
    values      int32[values]: its values that are kept
    stands_in   int32[ops of the whole program]: the op that is, or stands for, an op of the whole program
    chain       int32[ops]: as in `RepeatedLayers`
    layer       int32[ops]: the layers that are left are numbered without a gap
    typical     the layer that stands for those that are left out
    left_out    how many layers that is
    gap         int32[chains]: the op that comes after the ops that are left out of a chain; -1 for arguments
    """

    program: Program
    layers: RepeatedLayers = field(repr=False)
    ops: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    stands_in: np.ndarray = field(repr=False)
    chain: np.ndarray = field(repr=False)
    layer: np.ndarray = field(repr=False)
    typical: int
    left_out: int
    gap: np.ndarray = field(repr=False)

    @cached_property
    def times(self) -> np.ndarray:
        """int64[ops]: how many ops of the whole program each op stands for, itself included."""
        return 1 + self.left_out * ((self.chain >= 0) & (self.layer == self.typical)).astype(np.int64)

    @cached_property
    def three(self) -> Three:
        """What corresponds in the layer before the typical one, in it, and after it."""
        ops = []
        for layer in (self.typical - 1, self.typical, self.typical + 1):
            of_layer = np.flatnonzero((self.chain >= 0) & (self.layer == layer))
            ops.append(of_layer[np.argsort(self.chain[of_layer])])
        values, uses = (
            [entries_of(ptr, row) for row in ops] for ptr in (self.program.result_ptr, self.program.operand_ptr)
        )
        return Three(np.array(ops, np.int32), np.array(values), np.array(uses))

    def with_more(self, whole: Program, count: int, first: int, last: int) -> FewerLayers | None:
        """Three times `count` of layers `first` to `last` inside the stack, from 0, and all others of the `whole`."""
        begin = self.layers.first
        return _with_three(whole, replace(self.layers, first=begin + first, last=begin + last).taken_together(count))


def fewer_layers(program: Program) -> FewerLayers | None:
    """The program with three layers inside the stack, and what is at its ends; None where layers are not alike.

    Nor is there one of a program with regions that are partitioned by hand, whose edges name each other.
    """
    layers = None if program.manual.names else repeated_layers(program)
    return None if layers is None else _with_three(program, layers)


def _with_three(program: Program, layers: RepeatedLayers) -> FewerLayers | None:
    typical, end = layers.first + 1, layers.last
    left_out = end - typical - 1
    if left_out < LEAST_LEFT_OUT:
        return None
    whole = _Whole(program, layers, layers.table(), typical, end)
    dropped = whole.dropped
    if not whole.is_regular() or not whole.scopes_agree():
        return None
    gap = whole.gaps()
    operands = whole.operands()
    if gap is None or operands is None:
        return None
    shorter = replace(
        kept_ops(whole.without_ends(operands), ~dropped), specs=program.specs, op_spec=program.op_spec[~dropped]
    )
    ops = np.flatnonzero(~dropped).astype(np.int32)
    number = np.cumsum(~dropped) - 1
    like = np.where(dropped, layers.table()[layers.chain, typical - layers.low], np.arange(program.op_count))
    layer = layers.layer[ops]
    return FewerLayers(
        program=shorter,
        layers=layers,
        ops=ops,
        values=np.flatnonzero(~dropped[program.value_op]).astype(np.int32),
        stands_in=number[like].astype(np.int32),
        chain=layers.chain[ops],
        layer=np.where(layer >= end, layer - left_out, layer).astype(np.int32),
        typical=typical,
        left_out=left_out,
        gap=gap,
    )


@dataclass(frozen=True)
class _Whole:
    """The whole program; layers between `typical` and `end` are dropped. `table` is that of `layers`."""

    program: Program
    layers: RepeatedLayers
    table: np.ndarray
    typical: int
    end: int

    @property
    def dropped(self) -> np.ndarray:
        """bool[ops]: the op is left out."""
        layer = self.layers.layer
        return (self.layers.chain >= 0) & (layer > self.typical) & (layer < self.end)

    def moved(self, ops: np.ndarray, by: int | np.ndarray) -> np.ndarray:
        """int64[n]: the ops of the same chains so many layers on, -1 where there is none."""
        chain, column = self.layers.chain[ops], self.layers.layer[ops] + by - self.layers.low
        inside = (chain >= 0) & (column >= 0) & (column < self.table.shape[1])
        return np.where(inside, self.table[chain, np.where(inside, column, 0)], -1)

    def is_regular(self) -> bool:
        """True if a layer that is left out reads of its neighbours what the next one reads of its own."""
        program, layer = self.program, self.layers.layer
        inner = np.flatnonzero(self.dropped & (layer < self.end - 1))
        after = self.moved(inner, 1)
        spec = like_specs(program)[program.op_spec]
        if (after < 0).any() or (spec[inner] != spec[after]).any():
            return False
        nested = (program.op_scope[inner] != ROOT) != (program.op_scope[after] != ROOT)
        mine, theirs = (entries_of(program.operand_ptr, ops) for ops in (inner, after))
        one, other = program.operands[mine], program.operands[theirs]
        producer = program.value_op[one]
        following = self.moved(producer, 1)
        place = one - program.result_ptr[producer]
        alike = (following >= 0) & (program.result_ptr[following] + place == other)
        return not nested.any() and bool((alike | (one == other)).all())

    def scopes_agree(self) -> bool:
        """True if a loop, a branch or a barrier is left out whole."""
        program, dropped = self.program, self.dropped
        around = np.array([scope.op for scope in program.scopes], np.int64)[program.op_scope]
        inside = program.op_scope != ROOT
        if (dropped[inside] != dropped[around[inside]]).any():
            return False
        owned = all(dropped[part] == dropped[owner] for part, owner in program.owners.items())
        return owned and all(len(set(dropped[b.start : b.stop].tolist())) == 1 for b in program.barriers)

    def gaps(self) -> np.ndarray | None:
        """`FewerLayers.gap`; None where ops of a chain that are left out have kept ones between them."""
        dropped = self.dropped
        is_argument = np.zeros(len(dropped), np.bool_)
        is_argument[self.program.value_op[self.program.arguments]] = True
        ops = np.flatnonzero(dropped & ~is_argument)
        chain, after = self.layers.chain[ops], np.cumsum(~dropped)[ops]
        gap = np.full(len(self.table), -1, np.int32)
        gap[chain] = after
        return gap if (gap[chain] == after).all() else None

    def operands(self) -> np.ndarray | None:
        """The operands once kept ops read of layers that are kept; None where one reads all layers at once."""
        program, dropped = self.program, self.dropped
        producer = program.value_op[program.operands]
        uses = np.flatnonzero(~dropped[program.use_op] & dropped[producer])
        reader, read = program.use_op[uses], producer[uses]
        left_out = self.end - self.typical - 1
        instead = self.moved(read, np.where(self.layers.layer[reader] >= self.end, -left_out, left_out))
        if (self.layers.chain[reader] < 0).any() or (instead < 0).any() or dropped[instead].any():
            return None
        operands = program.operands.copy()
        operands[uses] = program.result_ptr[instead] + program.operands[uses] - program.result_ptr[read]
        return operands

    def without_ends(self, operands: np.ndarray) -> Program:
        """The program without the arguments and outputs of layers that are left out; its ops are all still there."""
        program, dropped = self.program, self.dropped
        kept = [n for n, value in enumerate(program.arguments) if not dropped[program.value_op[value]]]
        number = {old: new for new, old in enumerate(kept)}
        next_value = {
            n: int(operands[program.operand_ptr[program.value_op[program.arguments[n]]]]) for n in program.ties.values()
        }
        outputs: list[tuple[int, str, int]] = []
        for place, (value, name) in enumerate(zip(program.outputs, program.output_names, strict=True)):
            argument = program.ties.get(place, -1)
            if number.get(argument, -1) >= 0:
                outputs.append((next_value[argument], name, number[argument]))
            elif argument < 0 and not dropped[program.value_op[value]]:
                outputs.append((value, name, -1))
        return replace(
            program,
            operands=operands,
            arguments=[program.arguments[n] for n in kept],
            argument_names=[program.argument_names[n] for n in kept],
            outputs=[value for value, _, _ in outputs],
            output_names=[name for _, name, _ in outputs],
            ties={place: argument for place, (_, _, argument) in enumerate(outputs) if argument >= 0},
            donated=frozenset(number[n] for n in program.donated if n in number),
            source=None,
        )
