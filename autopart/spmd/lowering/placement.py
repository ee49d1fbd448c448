"""Where redistributions stand: which uses share one, in which scope, before which op.

    %w [{B},{}]  ->  dot (forward)      all_gather, right before the dot
                 ->  dot (backward)     all_gather again: a stored-sharded parameter is gathered for each use (FSDP)
    %a [{B},{}]  ->  dot, dot           one all_gather, before the first
    while ... %a -> dot                 loop-invariant: before the loop; where loops hold parts (`ShardLoops`) and %a is
                                        stored in parts, in the loop

Redistributions of one value into one layout are shared, with one exception: a value that is an argument, or follows
from arguments by casts and changes of layout alone, and of which a use needs more than a device stores. Such a value
is gathered anew for each use, so that the whole value lives only during that use. `share_within` makes this a choice:
uses at most that many ops apart share a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.ops.rule import is_regathered, traits_of
from autopart.core.ops.traits import only_moves
from autopart.core.program import ROOT, Program


@dataclass(frozen=True, eq=False)
class Grouping:
    """By what uses of a value share a redistribution, besides layouts.

    grows[use]      the use needs more than is stored
    share_within    of what is stored, uses at most so many ops apart share one
    sharded_loops   only what does not grow is redistributed before loops
    """

    grows: np.ndarray
    share_within: int
    sharded_loops: bool


@dataclass(frozen=True)
class Placement:
    """Redistributions of values into the layouts that uses need.

    value[r], target[r]     what is redistributed, into which layout
    stretch[r]              the stretches of it that are read, as in `DeviceLocal`
    scope[r], position[r]   the scope it runs in and the op before which it stands
    of_use[u]               the redistribution that use u reads, or -1 where it reads the settled value
    head[r]                 the first of the uses that read it
    """

    value: np.ndarray
    target: np.ndarray
    scope: np.ndarray
    position: np.ndarray
    of_use: np.ndarray
    stretch: np.ndarray
    head: np.ndarray


def stored_values(program: Program, arguments: Sequence[int] | None = None) -> np.ndarray:
    """bool[values]: arguments (default all), and what follows from one by layout changes and casts alone."""
    cheap = np.array([is_regathered(s) for s in program.specs], np.bool_)
    is_argument = np.zeros(program.op_count, np.bool_)
    is_argument[program.value_op[np.array(program.arguments if arguments is None else arguments, np.int64)]] = True
    stored = np.zeros(program.value_count, np.bool_)
    _store(cheap[program.op_spec], is_argument, program.operand_ptr, program.operands, program.result_ptr, stored)
    return stored


@kernel
def _store(
    cheap: np.ndarray,
    is_argument: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    stored: np.ndarray,
) -> None:
    """Fills in `stored`, which begins with False."""
    for op in range(cheap.shape[0]):
        keeps = is_argument[op] or (
            cheap[op] and operand_ptr[op + 1] > operand_ptr[op] and stored[operands[operand_ptr[op]]]
        )
        for value in range(result_ptr[op], result_ptr[op + 1]):
            stored[value] = keeps


def use_places(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Per use (scope, position) where its redistribution may stand: at the use, or before the outermost loop around it
    that the value does not come from."""
    scope, position = program.use_scope.copy(), program.use_position.copy()
    defined = program.op_scope[program.value_op[program.operands]]
    for use in np.flatnonzero((scope != defined) & (scope != ROOT)):
        inner = int(scope[use])
        while inner != defined[use] and inner != ROOT:
            s = program.scopes[inner]
            if s.kind in ("body", "condition") and not _owns(program, s.op, int(program.operands[use])):
                scope[use], position[use] = s.parent, s.op
            inner = s.parent
    return scope, position


def read_positions(program: Program) -> np.ndarray:
    """int[uses]: the op that needs what a use reads: that of the use, or the one reader of the view that it makes."""
    moves = np.array([only_moves(traits_of(spec), spec) for spec in program.specs], np.bool_)[program.op_spec]
    pointer, users = program.users
    first = program.result_ptr[:-1].clip(max=program.value_count - 1)
    alone = moves & (np.diff(pointer)[first] == 1)
    reader = np.arange(program.op_count)
    reader[alone] = program.use_op[users[pointer[first[alone]]]]
    return reader[program.use_op]


def _owns(program: Program, loop: int, value: int) -> bool:
    """True if `value` is one that `loop` carries: it exists only inside."""
    op = int(program.value_op[value])
    return program.owners.get(op) == loop and value == program.result_ptr[op]


def place(
    program: Program,
    places: tuple[np.ndarray, np.ndarray],
    needed: np.ndarray,
    stored: np.ndarray,
    settled: np.ndarray,
    required: np.ndarray,
    stretch: np.ndarray,
    grouping: Grouping,
) -> Placement:
    """Groups the uses that need a redistribution; `places` are those of `use_places`, `needed` those of
    `read_positions`."""
    (scope, position), grows = places, grouping.grows
    if grouping.sharded_loops:
        at_use = stored[program.operands] & grows
        scope = np.where(at_use, program.use_scope, scope)
        position = np.where(at_use, program.use_position, position)
    uses = np.flatnonzero((settled[program.operands] != required) | (stretch != 0))
    values = program.operands[uses]
    alone = stored[values] & grows[uses]
    order = np.lexsort((position[uses], scope[uses], stretch[uses], required[uses], values))
    uses, values, alone = uses[order], values[order], alone[order]
    same = np.zeros(len(uses), np.bool_)
    if len(uses):
        near = position[uses][1:] - position[uses][:-1] <= grouping.share_within
        equal = (
            (values[1:] == values[:-1])
            & (required[uses][1:] == required[uses][:-1])
            & (scope[uses][1:] == scope[uses][:-1])
            & (stretch[uses][1:] == stretch[uses][:-1])
        )
        together = (position[uses][1:] == position[uses][:-1]) | (needed[uses][1:] == needed[uses][:-1])
        same[1:] = equal & (~alone[1:] | near | together)
    group = np.cumsum(~same) - 1
    first = np.flatnonzero(~same)
    of_use = np.full(len(program.operands), -1, np.int32)
    of_use[uses] = group
    heads = uses[first]
    return Placement(
        program.operands[heads], required[heads], scope[heads], position[heads], of_use, stretch[heads], heads
    )
