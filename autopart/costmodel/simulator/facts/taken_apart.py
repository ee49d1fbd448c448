"""Arrays that are taken apart along a dim of their own, and put together along one: queries, keys and values.

    %p = dot_general %x, %w         bf16[8,256,3072]
    %a = reshape %p                 bf16[8,256,3,16,64]     a copy of %a: with the three most major, each lies by itself
    %q = slice %a [:, :, 0:1]       bf16[8,256,1,16,64]

    %s = add (pad %dq), (pad %dk)   bf16[8,256,3,16,64]     written with the three most major, and
    %d = reshape %s                 bf16[8,256,3072]        copied, as the product that reads %d has them behind the 8
    %g = dot_general %d, %w

The same where it is transposed first, where the three come after the heads, for the two halves of a gated layer, and
where gradients are concatenated. A sequence by itself needs no copy, since nothing is more major than the three, nor do
128 images, which lie along the lanes. Found with libtpu 0.0.51 on v5e, of 20 blocks of attention in bf16 and f32: a
copy takes 14.7 ps for each element, with those that fill up the lanes, and 9 to 12 where it passes through HBM.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, Matmul, Slicing, Structural, View
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.behind_reshapes import runs
from autopart.costmodel.simulator.facts.head_layouts import source_dim

ON_CHIP, THROUGH_HBM = 4.8, 3.5
"""How often the bytes of a copy pass at HBM's rate: of one between two places on the chip, and of any other."""

MOST_PARTS = 32
"""Of a sum that is followed back, with the sums in between."""

FREE_ON_CHIP = 1 << 15
"""Beside the bits of `TakenApart.features`: rows lie as the product has them, and move on the chip at no cost."""


class TakenApart(NamedTuple):
    """What is copied behind the kernels of ops, and what is written.

    copied     int32[ops]: the value that is copied, as it is taken apart; -1 for none
    features   int32[ops]: a bit for each of its dims that a product has as one
    written    bool[values]: what is put together
    """

    copied: np.ndarray
    features: np.ndarray
    written: np.ndarray


class _Place(NamedTuple):
    """A dim of a value."""

    value: int
    dim: int


class _Behind(NamedTuple):
    """What a dim of a result is of what the op reads: one of several, with a bit for each, that are one dim there; or
    which dim, -1 for none."""

    features: int | None
    dim: int


def taken_apart(program: Program) -> TakenApart:
    """What is copied where arrays are taken apart, or put together for a product."""
    found = TakenApart(
        np.full(program.op_count, -1, np.int32),
        np.zeros(program.op_count, np.int32),
        np.zeros(program.value_count, np.bool_),
    )
    alone = np.array([_takes_one(spec) for spec in program.specs], np.int32)[program.op_spec]
    known: dict[tuple[int, int], _Behind] = {}
    for op in np.flatnonzero(alone >= 0).tolist():
        _take_apart(program, _Place(int(program.operands[program.operand_ptr[op]]), int(alone[op])), found, known)
    merges = np.array([len(runs(spec, 0)) > 0 for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(merges).tolist():
        _put_together(program, op, found)
    return found


def _takes_one(spec: OpSpec) -> int:
    """The only dim of which a slice leaves less, if that is one of several elements; else -1."""
    traits = traits_of(spec)
    if not isinstance(traits, Slicing) or traits.indexed:
        return -1
    return _only(spec.results[0].shape, spec.operands[0].shape)


def _only(part: tuple[int, ...], whole: tuple[int, ...]) -> int:
    """The only dim in which two shapes differ, if `part` has one element there; else -1."""
    if len(part) != len(whole):
        return -1
    differ = [d for d, sizes in enumerate(zip(part, whole, strict=True)) if sizes[0] != sizes[1]]
    return differ[0] if len(differ) == 1 and part[differ[0]] == 1 else -1


def _take_apart(program: Program, place: _Place, found: TakenApart, known: dict[tuple[int, int], _Behind]) -> None:
    """Notes the array that is copied so that each element along a dim of a value lies by itself; `known` by spec and
    dim."""
    while True:
        maker = int(program.value_op[place.value])
        key = int(program.op_spec[maker]), place.dim
        if key not in known:
            known[key] = _behind(program.specs[key[0]], place.dim)
        behind = known[key]
        if behind.features is not None:
            source = int(program.value_op[program.operands[program.operand_ptr[maker]]])
            if not isinstance(traits_of(program.spec(source)), Structural):
                found.copied[source], found.features[source] = place.value, behind.features
            return
        if behind.dim < 0:
            return
        place = _Place(int(program.operands[program.operand_ptr[maker]]), behind.dim)


def _behind(spec: OpSpec, dim: int) -> _Behind:
    features = next((dims for dims in runs(spec, 1) if dim in dims), None)
    return _Behind(None, _moved_from(spec, dim)) if features is None else _Behind(sum(1 << d for d in features), -1)


def _moved_from(spec: OpSpec, dim: int) -> int:
    """Which dim of its operand a dim of the result is of an op that only moves elements; -1 for none."""
    traits = traits_of(spec)
    moves = (isinstance(traits, Elementwise) and traits.weight == 0 and not traits.joins) or isinstance(traits, View)
    if not moves or len(spec.operands) != 1 or len(spec.results) != 1:
        return -1
    source = source_dim(spec, dim)
    return -1 if source is None else source[1]


def _put_together(program: Program, reshape: int, found: TakenApart) -> None:
    """Notes what is written, and copied, in front of a reshape that a product reads."""
    first = int(program.operands[program.operand_ptr[reshape]])
    if not _is_multiplied(program, int(program.result_ptr[reshape])):
        return
    for features in runs(program.spec(reshape), 0):
        for dim in features:
            place = _Place(first, dim)
            while (along := _laid_along(program, place.value)) < 0:
                maker = int(program.value_op[place.value])
                at = _moved_from(program.spec(maker), place.dim)
                if at < 0:
                    break
                place = _Place(int(program.operands[program.operand_ptr[maker]]), at)
            if along == place.dim:
                maker = int(program.value_op[place.value])
                found.written[place.value] = True
                found.copied[maker], found.features[maker] = first, sum(1 << d for d in features)
                if sum(program.value_shape[first][features] > 1) == 2:
                    found.features[maker] |= FREE_ON_CHIP
                return


def _is_multiplied(program: Program, value: int) -> bool:
    """True if a product reads the value, or what it is with its dims in another order."""
    for by in program.readers_of(value):
        traits = traits_of(program.spec(by))
        if isinstance(traits, Matmul):
            return True
        moves = isinstance(traits, Elementwise) and traits.turns is not None and traits.weight == 0
        if moves and _is_multiplied(program, int(program.result_ptr[by])):
            return True
    return False


def _laid_along(program: Program, value: int) -> int:
    """Along which dim a value is put together of parts that have one element each, laid out or padded and added up; -1
    for any other value."""
    parts, along = [value], -1
    for part in parts:
        op = int(program.value_op[part])
        traits = traits_of(program.spec(op))
        if not isinstance(traits, Elementwise) or not (traits.joins or traits.sums) or len(parts) > MOST_PARTS:
            return -1
        read = program.operands[program.operand_ptr[op] : program.operand_ptr[op + 1]].tolist()
        if traits.sums:
            parts += read
            continue
        shapes = [program.type_of(each).shape for each in read]
        dims = {_only(shape, program.type_of(part).shape) for shape in shapes if shape}
        if len(dims) != 1 or -1 in dims or (along >= 0 and along not in dims):
            return -1
        (along,) = dims
    return along
