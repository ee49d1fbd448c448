"""Value groups: which values play the same part in repeated layers, so that one decision stands for all of them.

    params/blocks/0/up  f32[64,256]  read by a dot_general of activations [8,16,64]
    params/blocks/1/up  f32[64,256]  read by a dot_general of activations [8,16,64]      -> the same group

Groups are found by colour refinement: an op's first colour is its kind, its reducer and the ranks of its operands and
results, an argument's also its path without digits; then each op's colour is hashed with those of the producers of its
operands and of the readers of its results. Attributes are left out: layers may slice a stacked array at different
offsets. Sizes are left out as well: the blocks of a UNet play the same part with more channels. With `same_shape`,
sizes count too; refinement splits a group into such groups, and those into single values.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import named
from autopart.core.program import Program
from autopart.core.repeats.colours import mixed, path_without_digits, refined, text_colour

ROUNDS = 1
"""Hops that a group looks at: the op that reads a matrix. One more would tell the last layer from the others."""


@dataclass(frozen=True)
class ValueGroups:
    """The groups of a program's values, numbered by their first value.

    of[v]      the group of value v
    members    values of each group, CSR: those of group g are `members[pointer[g]:pointer[g+1]]`, in program order
    """

    of: np.ndarray
    pointer: np.ndarray
    members: np.ndarray

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.pointer) - 1

    def values(self, group: int) -> np.ndarray:
        """The values of a group, in program order."""
        return self.members[self.pointer[group] : self.pointer[group + 1]]


def value_groups(program: Program, *, same_shape: bool = False, rounds: int = ROUNDS) -> ValueGroups:
    """Colours every value; see the module."""
    colour = _first_colours(program, same_shape or not _names_tell(program))
    for _ in range(rounds):
        colour = refined(program, colour)
    position = np.arange(program.value_count) - program.result_ptr[program.value_op]
    return _numbered(mixed(colour[program.value_op], position.astype(np.uint64)))


def _numbered(colours: np.ndarray) -> ValueGroups:
    _, first, inverse = np.unique(colours, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    of = rank[inverse.reshape(-1)]
    pointer = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(first)))]).astype(np.int32)
    return ValueGroups(of, pointer, np.argsort(of, kind="stable").astype(np.int32))


def _names_tell(program: Program) -> bool:
    """False where most arguments have one name (arg0, arg1, ...): then only sizes can tell matrices apart."""
    names = Counter(map(path_without_digits, program.argument_names))
    return not names or names.most_common(1)[0][1] <= max(1, len(program.argument_names) // 2)


def _first_colours(program: Program, same_shape: bool) -> np.ndarray:
    colour = np.array([text_colour(_spec_text(s, same_shape)) for s in program.specs], np.uint64)[program.op_spec]
    for value, name in zip(program.arguments, program.argument_names, strict=True):
        op = program.value_op[value]
        colour[op] ^= text_colour(path_without_digits(name))
    return colour


def _spec_text(spec: OpSpec, same_shape: bool) -> str:
    def text(type_: TensorType) -> str:
        return str(type_) if same_shape else str(len(type_.shape))

    operands, results = ",".join(map(text, spec.operands)), ",".join(map(text, spec.results))
    return f"{named(spec)}({operands})->{results} {spec.region}"
