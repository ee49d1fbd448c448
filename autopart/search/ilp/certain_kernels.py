"""Which elementwise ops some state may compute inside their readers; all others are kernels, whatever is decided.

    %x = add %y %z       %y, %z: two large arrays, each read along a way of its own
    %n = reduce_sum %x   kernels that end apart, so that inside them %x would be computed twice, from more bytes than
    %h = dot %x %w       it has: the compiler writes it, with and without collectives on the way
    %g = gelu %h         from one array: computed inside its readers, unless something is moved in between
    %d = multiply %p %q  from two large arrays, which the readers of %s would both read: %d is a kernel, or %s is with
    %s = negate %d       %d inside it, which moves no less

The simulator's own rule (`fusion.py`) with nothing moved says what may be fused at most. What is moved ends a way
sooner: readers that end apart do so in every state.
"""

from __future__ import annotations

import numpy as np

from autopart.costmodel.simulator.arrays import F32_BYTES, ProgramArrays
from autopart.costmodel.simulator.fusion import most_fused
from autopart.costmodel.simulator.merged_kernels import LARGE_SHARE
from autopart.costmodel.simulator.op_classes import FREE

MOST_BEHIND = 64
"""How many ops behind one are looked at: of what is made of more, nothing is certain."""


NOTHING = -1
"""In place of a leaf: a value is made of smaller arrays."""


def fusable_ops(arrays: ProgramArrays, bases: np.ndarray, devices: int, *, into_matmul: bool) -> np.ndarray:
    """bool[ops]: False for what is never computed inside others.

    bases         the value that each value is a view of, or itself
    devices       a dim may be cut into so many parts at most
    into_matmul   products compute what they read, on this device
    """
    able, splits = most_fused(arrays, into_matmul)
    return _Walk(arrays, bases, devices, able, splits).fusable()


class _Walk:
    """A walk over one program, ops in order; `leaf[v]` is where the way begins that v is computed along."""

    def __init__(self, arrays: ProgramArrays, bases: np.ndarray, devices: int, able: np.ndarray, splits: np.ndarray):
        self.arrays, self.devices, self.bases = arrays, devices, bases.tolist()
        ops, values = arrays.ops, arrays.values
        may = ops["fuses"] & (np.diff(arrays.result_ptr) == 1) & (ops["op_class"] != FREE)
        self.may = (may & able[arrays.result_ptr[:-1].clip(max=len(values) - 1)]).tolist()
        self.splits = _behind_views(arrays, splits).tolist()
        self.operand_ptr, self.result_ptr = arrays.operand_ptr.tolist(), arrays.result_ptr.tolist()
        self.operands, self.maker = arrays.uses["operands"].tolist(), values["value_op"].tolist()
        self.elements, self.element_bytes = values["elements"].tolist(), values["element_bytes"].tolist()
        self.is_splat, self.uses = values["is_splat"].tolist(), np.diff(arrays.user_ptr).tolist()

    def fusable(self) -> np.ndarray:
        """bool[ops]: False for what is never computed inside others."""
        leaf = [value if self.elements[value] > 1 else NOTHING for value in range(len(self.maker))]
        for op, may in enumerate(self.may):
            if not may:
                continue
            value = self.result_ptr[op]
            leaf[value] = next((leaf[o] for o in self._alike(op, leaf)), NOTHING)
            if self.splits[value] and self._reads_more(value):
                self._written(op, leaf)
        return np.array(self.may, np.bool_)

    def _written(self, op: int, leaf: list[int]) -> None:
        """Notes the kernel without which readers of the op's result would read two arrays each: the op, or the first
        of the ops behind it, each with no other reader, from which on there is one array."""
        behind = [op]
        while len({leaf[o] for o in self._alike(behind[-1], leaf)}) < 2:
            before = self._only_read_by(behind[-1], leaf)
            if before is None:
                return
            behind.append(before)
        self.may[behind[-1]] = False
        for each in behind:
            leaf[self.result_ptr[each]] = self.result_ptr[behind[-1]]

    def _only_read_by(self, op: int, leaf: list[int]) -> int | None:
        """The op that makes the one array of the op's size that it reads, if it does so inside this op alone."""
        alike = self._alike(op, leaf)
        read = [o for o in self.operands[self.operand_ptr[op] : self.operand_ptr[op + 1]] if self.bases[o] in alike]
        if len(read) != 1:
            return None
        value = read[0]
        while self.uses[value] == 1 and self.bases[value] != value:
            view = self.maker[value]
            value = self.operands[self.operand_ptr[view] + value - self.result_ptr[view]]
        return self.maker[value] if self.uses[value] == 1 and self.may[self.maker[value]] else None

    def _alike(self, op: int, leaf: list[int]) -> list[int]:
        """What an op reads that has as many elements as its result, and is no smaller array that was spread."""
        held = self.elements[self.result_ptr[op]]
        return [o for o in self._inputs(op) if self.elements[o] == held and leaf[o] != NOTHING]

    def _inputs(self, op: int) -> list[int]:
        """What an op reads, behind views; no constants."""
        read = self.operands[self.operand_ptr[op] : self.operand_ptr[op + 1]]
        return [self.bases[value] for value in read if not self.is_splat[value]]

    def _reads_more(self, value: int) -> bool:
        """True if any two large arrays that the value may be computed from have more bytes than the value."""
        held, front, seen = self.element_bytes[value], [value], {value}
        if held < F32_BYTES or any(self.may[self.maker[o]] for o in self._inputs(self.maker[value])):
            return False  # products may compute what is rounded for them, and what several ops make may be merged
        alike, partial = [held], list[float]()
        while front:
            at = front.pop()
            for read in self._inputs(self.maker[at]):
                if read in seen or self.elements[read] * self.devices < LARGE_SHARE * self.elements[value]:
                    continue
                seen.add(read)
                if self.elements[read] == self.elements[value]:
                    alike.append(self.element_bytes[read])
                else:
                    partial.append(LARGE_SHARE * self.element_bytes[read])
                if self.may[self.maker[read]]:
                    front.append(read)
            if len(seen) > MOST_BEHIND or len(partial) > 1:
                return False
        return sum(sorted(alike + partial)[:2]) > held


def _behind_views(arrays: ProgramArrays, splits: np.ndarray) -> np.ndarray:
    """bool[values]: the readers of the value, or of a view of it, end apart."""
    found, ops = splits.copy(), arrays.ops
    for op in np.flatnonzero(ops["is_view"])[::-1].tolist():
        for place in range(int(arrays.result_ptr[op + 1] - arrays.result_ptr[op])):
            shown = int(arrays.uses["operands"][arrays.operand_ptr[op] + place])
            found[shown] |= found[arrays.result_ptr[op] + place]
    return found
