"""A reshape ends a kernel: what is computed before it is written for what is computed of several arrays behind it.

    %y = tanh %x              f32[128,256,256]: written, in bf16, 168 us
    %r = reshape %y           f32[32768,256]
    %p = dot_general %r, %w   57 us; it takes 117 us, and %y none, where it reads `tanh %x` without a reshape

    %q = dot_general %x, %w   f32[128,256,512]
    %h = reshape %q           f32[128,256,8,64]
    %z = multiply %h, %c      a kernel of its own, where without a reshape the product's kernel makes %z, too
    %e = exp %h               an op of one array is made before the reshape: by the product's kernel

A reduction reads what is computed before a reshape. A dim of size one that comes or goes makes no reshape, but beside a
single long dim; nor does one that is taken back behind ops of what is spread along a dim: groups of features, of which
each has a mean; there what is computed is written, or, if groups do not fill rows of layout tiles, what is spread:

    %p = reshape %y           f32[6144,18,51] of f32[6144,918]
    %b = broadcast %s         of f32[6144,18]: written, 74 us on v3; of groups of 40 the product of %p and %b is
    %r = reshape (%p * %b)    f32[6144,918] of a gradient

Images are left alone: `joined_images.py` has those that are reshaped. Found with libtpu 0.0.51 on v5e, in 70 programs
of two or three ops, and on v3 and v5e in 20 with groups.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.followed_marks import distinct_operands, follow_down, follow_up
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.rules.reshape import groups
from autopart.core.ops.traits import Elementwise, Traits, View
from autopart.core.program import Program
from autopart.costmodel.compiled.facts.op_classes import CONV, ELEMENTWISE, MATMUL

LANES = 128
"""So many numbers lie alike in an array of one dim and in a row of one of two."""

SUBLANES = 8

MOST_BEHIND = 64
"""Values between a reshape and the one that takes it back, at most."""


class BehindReshapes(NamedTuple):
    """What is written, and what ends kernels.

    written   bool[values]: what is computed and read behind a reshape
    of_parts  bool[values]: of groups that are taken back, what is computed of a number for each, or such numbers spread
    reshapes  bool[ops]: the reshapes that end a kernel
    mixes     bool[ops]: elementwise ops of several arrays, and products: reshapes in front of them stay there
    """

    written: np.ndarray
    of_parts: np.ndarray
    reshapes: np.ndarray
    mixes: np.ndarray


def behind_reshapes(program: Program, op_class: np.ndarray, fuses: np.ndarray, constant: np.ndarray) -> BehindReshapes:
    """Those of a program; constant: bool[ops], made of constants alone."""
    look = _Look(program, op_class, fuses, constant)
    if look.reshapes.any():
        look.through()
    return BehindReshapes(look.written, look.of_parts, look.reshapes, look.mixes)


def is_view(spec: OpSpec) -> bool:
    """True for a view of one array."""
    return isinstance(traits_of(spec), View) and len(spec.operands) == len(spec.results) == 1


def runs(spec: OpSpec, side: int) -> list[list[int]]:
    """The dims of a view's operand, or of its result for `side` 1, that are one dim on the other side, several each."""
    if not is_view(spec):
        return []
    before, after = spec.operands[0].shape, spec.results[0].shape
    if 0 in before or math.prod(before) != math.prod(after):
        return []
    return [pair[side] for pair in groups(before, after) if len(pair[1 - side]) == 1 and len(pair[side]) > 1]


def _reshapes(spec: OpSpec) -> bool:
    """True for a view in which dims are merged or split, or which comes to or from the other tiles of one dim."""
    if not is_view(spec):
        return False
    before, after = spec.operands[0].shape, spec.results[0].shape
    of_one = 1 in (len(before), len(after)) and max((*before, *after), default=0) > LANES
    return before != after and (of_one or _sizes(before) != _sizes(after))


def _merges_last(spec: OpSpec) -> bool:
    """True for a view that makes one dim of the last two."""
    before, after = spec.operands[0].shape, spec.results[0].shape
    return len(before) > 2 and before[:-2] == after[:-1]


def _sizes(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size > 1]


def _turns(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Elementwise) and traits.turns is not None and traits.weight == 0


def _in_step(spec: OpSpec) -> bool:
    """True for an elementwise op of arrays that all have the shape of its result."""
    traits: Traits = traits_of(spec)
    if not isinstance(traits, Elementwise) or traits.joins or traits.turns is not None or len(spec.results) != 1:
        return False
    return len(spec.operands) > 0 and all(read.shape in ((), spec.results[0].shape) for read in spec.operands)


class _Look:
    """A look at one program; see `behind_reshapes` and `BehindReshapes`."""

    def __init__(self, program: Program, op_class: np.ndarray, fuses: np.ndarray, constant: np.ndarray):
        self.program, self.fuses = program, fuses
        self.views, self.reshapes, self.turns, self.in_step = (
            np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec]
            for test in (is_view, _reshapes, _turns, _in_step)
        )
        self.elements = program.value_elements
        self.is_array = (self.elements > 1) & ~constant[program.value_op]
        """What is neither made of constants alone nor a single number."""
        self.reshapes &= ~self._of_images(op_class == CONV)
        self.mixes = (op_class == MATMUL) | (
            self.in_step & (op_class == ELEMENTWISE) & (distinct_operands(program, self.is_array) > 1)
        )
        self.written, self.of_parts = np.zeros((2, program.value_count), np.bool_)
        self.behind = np.zeros(program.value_count, np.bool_)
        """What is a reshape of something, or a transpose or an op of one array on top."""
        self.computed = np.zeros(program.value_count, np.bool_)
        """Of what is behind: something is computed before the reshape, be it after that has been moved behind it."""

    def through(self) -> None:
        """Fills in `reshapes` and `written`."""
        for op in np.flatnonzero(self.reshapes).tolist():
            self._take_back(op)
        program = self.program
        looked_at = self.views | self.turns | self.in_step | self.mixes
        _follow(
            program.operand_ptr, program.operands, program.result_ptr, program.value_op, looked_at, self.mixes,
            self.reshapes, self.views, self.turns, self.in_step, self.fuses, self.is_array, self.behind, self.computed,
            self.written,
        )  # fmt: skip

    def _of_images(self, convolves: np.ndarray) -> np.ndarray:
        """bool[ops]: what reads or makes what a convolution makes or reads, element by element."""
        program, moves = self.program, self.views | self.turns | self.in_step
        reads, makes = np.zeros(program.value_count, np.bool_), np.zeros(program.value_count, np.bool_)
        makes[program.result_ptr[:-1][convolves]] = True
        reads[program.operands[convolves[program.use_op]]] = True
        if convolves.any():
            follow_down(program, moves, self.is_array, makes)
            follow_up(program, moves, self.is_array, reads)
        return np.append(makes | reads, False)[program.result_ptr[:-1]]

    def _arrays(self, op: int) -> Iterator[int]:
        """The arrays that an op reads."""
        program = self.program
        for read in program.operands[program.operand_ptr[op] : program.operand_ptr[op + 1]].tolist():
            if self.is_array[read]:
                yield read

    def _take_back(self, reshape: int) -> None:
        """Takes a reshape away, and those that it takes back: what it shows is computed of reshapes of arrays of just
        that shape, and of what is spread."""
        program = self.program
        wanted, values, taken = program.value_shape[program.result_ptr[reshape]], [], [reshape]
        spread = list[int]()
        values.append(int(program.operands[program.operand_ptr[reshape]]))
        for value in values:
            op = int(program.value_op[value])
            if self.reshapes[op]:
                if not (program.value_shape[program.operands[program.operand_ptr[op]]] == wanted).all():
                    return
                taken.append(op)
            elif self.in_step[op] and len(values) < MOST_BEHIND:
                values += [read for read in self._arrays(op) if read not in values]
            elif self._is_spread(op):
                spread.append(value)
            else:
                return
        if len(taken) > 1:
            self.reshapes[taken] = False
            if spread and _merges_last(program.spec(reshape)):
                whole = program.type_of(values[0]).shape[-1] % SUBLANES == 0
                self.of_parts[values[:1] if whole else spread] = True

    def _is_spread(self, op: int) -> bool:
        """True for an op that makes more elements of an array."""
        arrays = list(self._arrays(op))
        return len(arrays) == 1 and self.elements[self.program.result_ptr[op]] > self.elements[arrays[0]]


@kernel
def _follow(
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    value_op: np.ndarray,
    looked_at: np.ndarray,
    mixes: np.ndarray,
    reshapes: np.ndarray,
    views: np.ndarray,
    turns: np.ndarray,
    in_step: np.ndarray,
    fuses: np.ndarray,
    is_array: np.ndarray,
    behind: np.ndarray,
    computed: np.ndarray,
    written: np.ndarray,
) -> None:
    """Fills in `_Look.behind`, `computed` and `written`, all False at first, in the order of the program."""
    for op in range(looked_at.shape[0]):
        if not looked_at[op]:
            continue
        for use in range(operand_ptr[op], operand_ptr[op + 1]):
            read = operands[use]
            if not is_array[read]:
                continue
            if mixes[op]:
                if computed[read]:
                    _write(operand_ptr, operands, value_op, reshapes, views, turns, fuses, written, read)
                continue
            value = result_ptr[op]
            behind[value] = behind[read] or reshapes[op]
            made = computed[read] or (reshapes[op] and fuses[value_op[read]])
            computed[value] = made or (behind[read] and in_step[op])
            break


@kernel
def _write(
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    value_op: np.ndarray,
    reshapes: np.ndarray,
    views: np.ndarray,
    turns: np.ndarray,
    fuses: np.ndarray,
    written: np.ndarray,
    value: int,
) -> None:
    """Notes what is written where a value behind a reshape is read."""
    before, op = False, value_op[value]
    while views[op] or (turns[op] and not before):
        before = before or reshapes[op]
        value = operands[operand_ptr[op]]
        op = value_op[value]
    written[value] = fuses[op]
