"""Nodes: which ops and values decide together, and what each may choose.

    %x argument, read by 3 ops     a node: the label in which it is stored
    %y = dot_general %x %w         a node: its strategies. Read once: no node of its own, the edge to its reader prices
                                   the cheapest label to settle in
    %z = tanh %y                   a node; read by 2 ops: %z is another, the label in which it waits for both

    layers 0 .. 31 of a decoder    grouped: one node for the 32 tanh, that counts 32 times (`Classes`)

An argument's op is no node: it does nothing but store its value. Grouped or not, the same functions build the problem:
without grouping every op is a class of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.program import Program
from autopart.core.table.loop_nests import ATOMIC
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.search.ilp.labels import Label, is_pending, legal_labels
from autopart.search.ilp.pending_ways import PendingWays, may_go_on
from autopart.search.ilp.strategies import Fixed, OpStrategies, op_strategies
from autopart.search.space.value_groups import value_groups
from autopart.spmd.device_local import LoweringContext, lower

ROUNDS = 4
"""Hops over which ops of repeated layers must look alike to be grouped; more would tell layers at the ends apart."""

ARGUMENT = -1
"""In place of a node: the op stores an argument."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Which ops, and which values, decide together.

    of_op[op], of_value[value]    their class; ops and values of a class have one type, one starting state, one place
    """

    of_op: np.ndarray
    of_value: np.ndarray

    @staticmethod
    def of(
        start: Partitioning, waits: np.ndarray, ways: PendingWays, may_loop: np.ndarray, *, grouped: bool
    ) -> Classes:
        """Classes of ops and values that play the same part in repeated layers; each by itself if not `grouped`.

        `waits[value]` is True for values that have a node of their own; `may_loop[op, axis]` as in `_may_loop`.
        """
        program = start.program
        if not grouped:
            return Classes(np.arange(program.op_count), np.arange(program.value_count))
        colour = value_groups(program, same_shape=True, rounds=ROUNDS).of
        first = program.result_ptr[:-1].clip(max=program.value_count - 1)
        has_result = np.diff(program.result_ptr) > 0
        own = np.where(has_result, 1 + colour[first], 0)
        table = np.column_stack([start.state.mapping, may_loop])
        ops = np.column_stack([program.op_spec, own, ways.of_op, table])
        made = np.column_stack([ways.of_op, table])[program.value_op]
        values = np.column_stack([colour, waits, start.state.action, made])
        return Classes(_numbers(ops), _numbers(values))


def _numbers(rows: np.ndarray) -> np.ndarray:
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a problem; make it with `Nodes.of`.

    of_op[op]           the node of an op, or `ARGUMENT`
    of_value[value]     the node of a value that waits for its uses, else -1
    strategies[node]    of an op's node: its strategies, else None
    labels[node]        of a value's node: the labels in which it may wait, else ()
    member[node]        an op, or a value, of the node
    is_open[axis]       True for the mesh axes that the search uses
    """

    start: Partitioning
    of_op: np.ndarray
    of_value: np.ndarray
    strategies: tuple[OpStrategies | None, ...]
    labels: tuple[tuple[Label, ...], ...]
    member: tuple[int, ...]
    is_open: tuple[bool, ...]

    @staticmethod
    def of(
        start: Partitioning,
        axes: Sequence[str],
        arrays: ProgramArrays,
        statics: LoweringContext,
        ways: PendingWays,
        *,
        grouped: bool,
    ) -> Nodes:
        """The nodes of a search over `axes` from a starting state."""
        program = start.program
        waits = _waits(start, statics)
        is_open = tuple(name in axes for name in start.mesh.axis_names)
        may_loop = _may_loop(start, is_open, statics)
        classes = Classes.of(start, waits, ways, may_loop, grouped=grouped)
        op_rows = np.flatnonzero(~arrays.ops["is_argument"])
        _, op_first, op_node = np.unique(classes.of_op[op_rows], return_index=True, return_inverse=True)
        value_rows = np.flatnonzero(waits)
        _, value_first, value_node = np.unique(classes.of_value[value_rows], return_index=True, return_inverse=True)
        of_op, of_value = np.full(program.op_count, ARGUMENT), np.full(program.value_count, -1)
        of_op[op_rows] = op_node.reshape(-1)
        of_value[value_rows] = len(op_first) + value_node.reshape(-1)
        ops, values = op_rows[op_first].tolist(), value_rows[value_first].tolist()
        known: dict[tuple[int, int, Label, tuple[bool, ...]], OpStrategies] = {}
        made = [_of_op(start, op, tuple(may_loop[op].tolist()), arrays, statics, ways, known) for op in ops]
        makers = [int(of_op[program.value_op[v]]) for v in values]
        shared: dict[tuple[Label, ...], tuple[Label, ...]] = {}
        labels: list[tuple[Label, ...]] = []
        goes_on = may_go_on(program, statics).tolist()
        for v, node in zip(values, makers, strict=True):
            found = _of_value(start, v, is_open, statics, goes_on[v], None if node == ARGUMENT else made[node])
            labels.append(shared.setdefault(found, found))
        return Nodes(
            start=start,
            of_op=of_op,
            of_value=of_value,
            strategies=(*made, *([None] * len(values))),
            labels=(*([()] * len(ops)), *labels),
            member=(*ops, *values),
            is_open=is_open,
        )

    @property
    def count(self) -> int:
        """Their number."""
        return len(self.member)

    def options(self, node: int) -> int:
        """How many strategies, or labels, a node has."""
        found = self.strategies[node]
        return found.count if found is not None else len(self.labels[node])


def _may_loop(start: Partitioning, is_open: tuple[bool, ...], statics: LoweringContext) -> np.ndarray:
    """bool[ops, axes]: the op may get a loop over the axis from the search, or, being undecided, from the lowering."""
    undecided = lower(start, statics=statics).mapping != start.state.mapping
    return (np.array(is_open) | undecided) & ~start.graph.closed


def _waits(start: Partitioning, statics: LoweringContext) -> np.ndarray:
    """bool[values]: arguments, outputs, values with several uses, and those that something is decided about."""
    program = start.program
    waits = np.diff(program.users[0]) > 1
    waits |= statics.is_output | (start.state.action != 0).any(axis=1)
    waits[program.arguments] = True
    return waits


def _of_op(
    start: Partitioning,
    op: int,
    may_loop: tuple[bool, ...],
    arrays: ProgramArrays,
    statics: LoweringContext,
    ways: PendingWays,
    known: dict[tuple[int, int, Label, tuple[bool, ...]], OpStrategies],
) -> OpStrategies:
    spec, mapping = int(start.program.op_spec[op]), tuple(start.state.mapping[op].tolist())
    key, maps = (spec, int(ways.of_op[op]), mapping, may_loop), start.table.arrays
    if key not in known:
        known[key] = op_strategies(
            start.program.specs[spec], start.table.of[spec], start.mesh.axis_sizes, Fixed(mapping, may_loop),
            passages=ways.passages[key[1]], divided=bool(statics.passages.divided[spec]),
            free=bool(statics.passages.free[spec]), repeated=bool(maps.repeats[spec] or maps.moves[spec]),
            from_scalars=bool(statics.passages.from_scalars[op]), repeats=int(arrays.specs["repeats"][spec]),
            stretches=start.table.stretches,
        )  # fmt: skip
    return known[key]


def _of_value(
    start: Partitioning,
    value: int,
    is_open: tuple[bool, ...],
    statics: LoweringContext,
    goes_on: bool,
    producer: OpStrategies | None,
) -> tuple[Label, ...]:
    """The labels in which a value may wait: every dim on every axis that is open, what is decided on the others, and
    pending where its readers may pass that on (`goes_on`)."""
    program, sizes = start.program, start.mesh.axis_sizes
    op = int(program.value_op[value])
    shape = program.type_of(value).shape
    left = {} if producer is None else _codes(producer, value - int(program.result_ptr[op]))
    choices: list[list[int]] = []
    for axis, name in enumerate(start.mesh.axis_names):
        tiled, action = start.tiled_dim(value, name) + 1, int(start.state.action[value, axis])
        codes = left.get(axis, {0})
        pends = any(map(is_pending, codes))
        if action == ATOMIC:
            choices.append([0, *(_as_read(codes, len(shape)) if _may_stay_in_parts(program, value, statics) else ())])
        elif action != 0:
            choices.append([action])
        elif tiled or (producer is None and not is_open[axis]):
            choices.append([tiled])
        elif is_open[axis] or pends:
            choices.append([0, *range(1, len(shape) + 1)])
        else:
            choices.append(sorted(codes))
        if action == 0 and pends and (goes_on or _is_unread(program, value, statics)):
            choices[-1] += sorted(c for c in codes if is_pending(c))
    return tuple(legal_labels(shape, choices, sizes))


def _codes(producer: OpStrategies, result: int) -> dict[int, set[int]]:
    columns = zip(*producer.native[result], strict=True)
    return {axis: set(codes) for axis, codes in enumerate(columns)}


def _as_read(codes: set[int], dims: int) -> list[int]:
    """Tiles in which a value that is left so may go straight to readers that slice it, although it is kept whole."""
    return list(range(1, dims + 1)) if any(map(is_pending, codes)) else sorted(codes - {0})


def _may_stay_in_parts(program: Program, value: int, statics: LoweringContext) -> bool:
    """True for what is computed and read within the program: all its readers may slice it."""
    computed = value not in program.argument_place and not statics.is_output[value]
    return computed and program.users[0][value + 1] > program.users[0][value]


def _is_unread(program: Program, value: int, statics: LoweringContext) -> bool:
    """True for what nobody reads: it may stay pending."""
    return not statics.is_output[value] and program.users[0][value + 1] == program.users[0][value]
