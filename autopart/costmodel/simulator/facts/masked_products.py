"""Which products a ReLU alone reads; what the compiler keeps of them is in `packed_masks.py`.

%y = dot %x %w
%z = add %y (broadcast %b)     on the way, elementwise ops with what is the same along a dim
%r = maximum %z 0              computed inside what reads it; written where something else than products or ops does
%m = compare %z > 0            elementwise ops alone choose by it
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, MATMUL

TRUTH = "i1"
"""The dtype of what is chosen by."""

FOR_PRODUCTS, FOR_OTHERS, WRITTEN = 1, 2, 3
"""What is made of a product beside its mask: what products alone read; what others read, too; an array of its own."""


class MaskedProducts(NamedTuple):
    """Products' results of which nothing is read but a mask, and what elementwise ops of one array make of them.

    masked   int8[values]: what is made of a product's result, 0 for all other values
    apart    int32[ops]: of an op that makes an array of its own of such a result: that; -1 for all other ops
    """

    masked: np.ndarray
    apart: np.ndarray


def masked_products(
    program: Program, op_class: np.ndarray, moves: np.ndarray, is_splat: np.ndarray, written: np.ndarray
) -> MaskedProducts:
    """Those of a program.

    op_class   of each op
    moves      bool[ops]: views, and elementwise ops that compute nothing
    is_splat   bool[values]: one number everywhere
    written    bool[values]: what no reader computes inside itself
    """
    found = MaskedProducts(np.zeros(program.value_count, np.int8), np.full(program.op_count, -1, np.int32))
    if masks := _masks(program, op_class):
        look = _Look(program, op_class, moves, is_splat, written)
        for op in masks:
            look.follow(op, found)
    return found


def _masks(program: Program, op_class: np.ndarray) -> list[int]:
    """The elementwise ops that make truth values of others."""
    made = np.array(
        [
            any(r.dtype == TRUTH for r in spec.results) and not any(t.dtype == TRUTH for t in spec.operands)
            for spec in program.specs
        ],
        np.bool_,
    )
    return np.flatnonzero(made[program.op_spec] & (op_class == ELEMENTWISE)).tolist()


class _Look:
    """A look at one program."""

    def __init__(
        self, program: Program, op_class: np.ndarray, moves: np.ndarray, is_splat: np.ndarray, written: np.ndarray
    ):
        self.program, self.op_class, self.moves, self.is_splat = program, op_class, moves, is_splat
        self.written = written
        self.elements, self.outputs = program.value_shape.prod(axis=1), set(program.outputs)
        self.known: dict[int, set[int]] = {}
        """By value: see `_unlike`."""

    def follow(self, op: int, found: MaskedProducts) -> None:
        """Notes the product's result of which `op` makes the mask, if there is one."""
        (mask,), read = self._results(op), self._arrays_of(op)
        chooses = [self.op_class[reader] == ELEMENTWISE for reader in self.program.readers_of(mask)]
        if len(read) != 1 or not chooses or not all(chooses):
            return
        value, unlike = read[0], self._unlike(read[0])
        if len(unlike) > (op in unlike) or value in self.outputs:
            return
        while self.op_class[maker := int(self.program.value_op[value])] == ELEMENTWISE:
            of = self._arrays_of(maker)
            if len(of) != 1 or not self._is_read_once(of[0]) or of[0] in self.outputs:
                return
            value = of[0]
        if self.op_class[maker] not in (MATMUL, CONV):
            return
        others = [reader for reader in self.program.readers_of(read[0]) if reader != op]
        if others:
            found.masked[value] = max(self._made_by(reader) for reader in others)
            if found.masked[value] == WRITTEN:
                found.apart[others] = value

    def _is_read_once(self, value: int) -> bool:
        pointer, _ = self.program.users
        return bool(pointer[value + 1] - pointer[value] == 1)

    def _unlike(self, value: int) -> set[int]:
        """The readers of a value that do not compute something of one array; each is looked at once."""
        if value not in self.known:
            readers = self.program.readers_of(value)
            self.known[value] = {reader for reader in readers if not self._computes_of_one(reader)}
        return self.known[value]

    def _computes_of_one(self, op: int) -> bool:
        """True if an op computes something of one array, element by element."""
        return bool(self.op_class[op] == ELEMENTWISE and not self.moves[op] and len(self._arrays_of(op)) == 1)

    def _made_by(self, op: int) -> int:
        """For what an op makes its results."""
        if any(self.written[value] for value in self._results(op)):
            return WRITTEN
        return FOR_PRODUCTS if all(self._only_products(value) for value in self._results(op)) else FOR_OTHERS

    def _only_products(self, value: int) -> bool:
        """True if nothing but products reads a value, at once or as it is moved or rounded."""
        readers = self.program.readers_of(value)
        for reader in readers:
            moved = self.moves[reader] and all(self._only_products(v) for v in self._results(reader))
            if self.op_class[reader] not in (MATMUL, CONV) and not moved:
                return False
        return len(readers) > 0 and value not in self.outputs

    def _arrays_of(self, op: int) -> list[int]:
        """What an op reads that is not the same along a dim."""
        return [value for value in self._operands(op) if not self.is_splat[value] and not self._is_spread(value)]

    def _is_spread(self, value: int) -> bool:
        """True for what a move makes longer."""
        maker = int(self.program.value_op[value])
        return bool(self.moves[maker]) and all(self.elements[v] < self.elements[value] for v in self._operands(maker))

    def _operands(self, op: int) -> list[int]:
        return self.program.operands[self.program.operand_ptr[op] : self.program.operand_ptr[op + 1]].tolist()

    def _results(self, op: int) -> list[int]:
        return list(range(int(self.program.result_ptr[op]), int(self.program.result_ptr[op + 1])))
