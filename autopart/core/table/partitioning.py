"""A partitioning in progress: the program, the mesh and the table that actions fill in.

    tile<%x, 0, "B">      an explicit decision about one value
    atomic<%p, "B">       an explicit decision to keep one value whole
    propagate "B"         what follows from the decisions, to a fixed point
    share_gathers<64>     a decision for the lowering: near uses of what is stored in parts share a gather
    shard_loops           another one: loops gather and reduce in every turn, rather than hold what is whole

After propagation each op sits in its own loop nest with at most one loop per axis, so PartIR:Core is determined by
which mapping each op's loop over each axis uses, which values are explicitly tiled or atomic, and the order in which
axes entered a nest (earlier is outer: deep tiling never undoes). That and what is decided for
the lowering is the whole state; it can be marked and undone.
"""

# pyright: reportArgumentType=false, reportReturnType=false, reportUnnecessaryIsInstance=false
# (an element of an array is a plain int in a kernel; a user may pass anything)
from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.base.errors import TileError
from autopart.core.layout import LAST_TILE
from autopart.core.manual_regions import closed_axes, manual_loops
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.core.ragged import entries_of
from autopart.core.table.actions import Action, Atomic, Propagate, ShardLoops, ShareGathers, Tile
from autopart.core.table.drawn_tiles import MOST_FOLLOWED
from autopart.core.table.fitting_mappings import fitting_mappings
from autopart.core.table.loop_nests import (
    ATOMIC,
    GraphArrays,
    LoopNests,
    StateArrays,
    mix,
    set_action,
    set_mapping,
    undo,
)
from autopart.core.table.mapping_table import MappingTable, mapping_table
from autopart.core.table.propagation import Scratch, propagate_and_tile, tiled_dims

NOTHING = np.empty(0, np.int32)
"""No ops, no values."""

MARK_BITS = 40
"""Bits of a mark that hold the length of the trail; those above hold how many choices were made for the lowering."""


class ForLowering(NamedTuple):
    """What was decided for the lowering alone; see `Partitioning.share_within` and `Partitioning.sharded_loops`."""

    share_within: int = 0
    sharded_loops: bool = False


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A state of one partitioning, which `Partitioning.restore` goes to from any other; its trail is cut to length."""

    state: StateArrays
    for_lowering: tuple[ForLowering, ...]
    seeds: tuple[tuple[int, ...], ...]

    @property
    def in_bytes(self) -> int:
        """What it takes."""
        return sum(array.nbytes for array in self.state)


class Partitioning:
    """The state that actions change; the only owner of its arrays.

    `mark()` and `undo(mark)` return to an earlier state; `fingerprint` identifies the current one.
    """

    def __init__(self, program: Program, mesh: Mesh):
        self.program, self.mesh = program, mesh
        self.table: MappingTable = mapping_table(program.specs)
        self.sizes = np.array(mesh.axis_sizes, np.int64)
        ops, values, axes = program.op_count, program.value_count, len(mesh.axis_sizes)
        user_ptr, user = program.users
        is_argument = np.zeros(ops, np.bool_)
        is_argument[program.value_op[program.arguments]] = True
        self.graph = GraphArrays(
            program.op_spec,
            program.operand_ptr,
            program.operands,
            program.result_ptr,
            program.value_op,
            program.use_op,
            user_ptr,
            user,
            is_argument,
            closed_axes(program, mesh),
        )
        self.state = StateArrays.empty(ops, values, axes)
        most = max((len(m) for m in self.table.of), default=0)
        self._scratch = Scratch(
            heap=np.zeros(ops + 1, np.int32), queued=np.zeros(ops, np.bool_),
            found=np.zeros(most + MOST_FOLLOWED, np.int32),
        )  # fmt: skip
        self._stamp = 0
        self._first_seeds = self._by_hand()
        self._seeds: list[list[int]] = [list(seeds) for seeds in self._first_seeds]
        self.blocked = np.zeros((axes, ops), np.bool_)
        """bool[axes, ops]: ops that propagation ever left in conflict; `conflicts.py` says which still are."""
        self._for_lowering: list[ForLowering] = []

    def _by_hand(self) -> list[list[int]]:
        """Sets what the model partitions by hand, for good; returns the ops to look at first along each axis."""
        seeds: list[list[int]] = [[] for _ in self.sizes]
        graph, program = self.graph, self.program
        for loop in manual_loops(program, self.mesh):
            self.state.mapping[loop.op, loop.axis] = loop.mapping
            self.state.op_stamp[loop.op, loop.axis] = loop.order
            seeds[loop.axis] += graph.value_op[program.operands_of(loop.op)].tolist()
            for value in program.results_of(loop.op):
                seeds[loop.axis] += graph.use_op[graph.user[graph.user_ptr[value] : graph.user_ptr[value + 1]]].tolist()
        for axis, name in enumerate(self.mesh.axis_names):
            inside = [i for i, other in enumerate(program.manual.names) if other == name]
            for i in inside:
                self.state.action[(program.manual.of_op >> i & 1).astype(np.bool_)[program.value_op], axis] = ATOMIC
        return seeds

    # ---- actions

    def apply(self, action: Action) -> None:
        """Carries out one action; raises `TileError` where it is not legal."""
        match action:
            case Tile(value, dim, axis):
                self.tile(value, dim, axis)
            case Atomic(value, axis):
                self.atomic(value, axis)
            case Propagate(axis):
                self.propagate([axis])
            case ShareGathers(within):
                self.share_gathers(within)
            case ShardLoops():
                self.shard_loops()

    def apply_all(self, actions: Iterable[Action]) -> None:
        """Carries out actions in order; raises `TileError` at the first that is not legal."""
        for action in actions:
            self.apply(action)

    def tile(self, value: int, dim: int, axis: str) -> None:
        """tile<value, dim, axis>. Repeating what already holds does nothing."""
        index = self.mesh.index(axis)
        if not self.why_not_tile(value, dim, axis):
            self._decide(value, index, dim + 1)
        elif not 0 <= self.tiled_dim(value, axis) == dim:
            self.check_tile(value, dim, axis)

    def atomic(self, value: int, axis: str) -> None:
        """atomic<value, axis>. Raises if the axis already tiles the value."""
        index = self.mesh.index(axis)
        self._check_value(value)
        if self.state.action[value, index] == ATOMIC:
            return
        dim = self.tiled_dim(value, axis)
        if dim >= 0:
            raise TileError(
                f'cannot keep {self._named(value)} whole along mesh axis "{axis}"',
                why=f"an earlier tactic tiled its dim {dim} along it",
                hint="put the tactic that keeps it whole first",
            )
        self._decide(value, index, ATOMIC)

    def propagate(self, axes: Iterable[str] | None = None) -> None:
        """Spreads decisions over the given axes (default all), in that order, each to a fixed point."""
        for axis in self.mesh.axis_names if axes is None else axes:
            index = self.mesh.index(axis)
            seeds = np.array(sorted(set(self._seeds[index])), np.int32)
            self._seeds[index] = []
            self._propagate_and_tile(index, seeds, NOTHING, NOTHING)

    def share_gathers(self, within: int) -> None:
        """share_gathers<within>. Does nothing where uses that far apart share a gather already.

        Raises `TileError` for a negative distance.
        """
        if within < 0:
            raise TileError(f"gathers cannot be shared within {within} ops", hint="a number of ops, 0 or more")
        if within > self.share_within:
            self._for_lowering.append(self.for_lowering._replace(share_within=within))

    def shard_loops(self) -> None:
        """shard_loops. Does nothing where loops hold parts already."""
        if not self.sharded_loops:
            self._for_lowering.append(self.for_lowering._replace(sharded_loops=True))

    def tile_in_turn(self, values: np.ndarray, dims: np.ndarray, axis: str) -> list[Tile]:
        """tile<value, dim, axis> and propagate, for each value in turn that may then still be tiled; returns those.

        So in a chain of equal layers the first is tiled, the second inferred, the third tiled. Dim -1 is the first that
        divides. For many values this is much faster than as many calls of `tile` and `propagate`.
        """
        self._check_values(values, dims)
        return [
            Tile(value, dim, axis)
            for value, dim in self._propagate_and_tile(self.mesh.index(axis), NOTHING, values, dims).tolist()
        ]

    def _propagate_and_tile(self, axis: int, seeds: np.ndarray, values: np.ndarray, dims: np.ndarray) -> np.ndarray:
        """Propagates from the ops in `seeds`, then tiles in turn; int32[n, 2]: the values and dims that were tiled."""
        program = self.program
        tiled = np.empty((len(values), 2), np.int32)
        blocked = np.empty(8 * program.op_count + 1, np.int32)
        count, stuck, self._stamp = propagate_and_tile(
            self.nests, program.value_shape, program.value_rank, seeds, values, dims, axis, self._stamp, self._scratch,
            tiled, blocked,
        )  # fmt: skip
        self.blocked[axis, blocked[:stuck]] = True
        return tiled[:count]

    def _decide(self, value: int, axis: int, action: int) -> None:
        self._stamp += 1
        set_action(self.state, value, axis, action, self._stamp)
        if action == ATOMIC:
            return
        first, last = self.graph.user_ptr[value], self.graph.user_ptr[value + 1]
        readers = self.graph.use_op[self.graph.user[first:last]].tolist()
        self._seeds[axis] += [int(self.graph.value_op[value]), *readers]

    # ---- questions

    def _check_value(self, value: int) -> None:
        """Kernels index arrays by values without looking."""
        if not isinstance(value, (int, np.integer)) or not 0 <= value < self.program.value_count:
            raise TileError(
                f"the program has no value {value!r:.40}", why=f"its values are 0 to {self.program.value_count - 1}"
            )

    def _check_values(self, values: np.ndarray, dims: np.ndarray) -> None:
        if len(values) != len(dims):
            raise TileError(f"{len(dims)} dims for {len(values)} values")
        for value in (values.min(), values.max()) if len(values) else ():
            self._check_value(value)

    @property
    def nests(self) -> LoopNests:
        """The arrays, for kernels."""
        return LoopNests(self.graph, self.table.arrays, self.state, self.sizes)

    @property
    def most_found(self) -> int:
        """Entries that `fitting_mappings` takes for what it finds."""
        return len(self._scratch.found)

    def tiled_dim(self, value: int, axis: str) -> int:
        """The dim of `value` that `axis` tiles, or -1. Raises `TileError` for a value that is not in the program."""
        self._check_value(value)
        dim = np.empty(1, np.int64)
        tiled_dims(self.nests, np.array([value], np.int32), self.mesh.index(axis), dim)
        return int(dim[0])

    @property
    def for_lowering(self) -> ForLowering:
        """What was decided for the lowering, all of it."""
        return self._for_lowering[-1] if self._for_lowering else ForLowering()

    @property
    def share_within(self) -> int:
        """Uses of a value stored in parts that are at most so many ops apart share a gather; 0: each has its own."""
        return self.for_lowering.share_within

    @property
    def sharded_loops(self) -> bool:
        """Loops gather what is stored in parts, and reduce sums that end in a tile, in every turn."""
        return self.for_lowering.sharded_loops

    def ways(self, value: int, dim: int) -> int:
        """Into how many parts the axes that tile `dim` of `value` already cut it."""
        self._check_value(value)
        return math.prod(size for axis, size in self.mesh.shape.items() if self.tiled_dim(value, axis) == dim)

    def why_not_tile(self, value: int, dim: int, axis: str) -> str:
        """Why tile<value, dim, axis> is illegal; empty if it is legal. Raises `TileError` for a value that is none."""
        self._check_value(value)
        index, shape = self.mesh.index(axis), self.program.type_of(value).shape
        size = self.mesh.axis_sizes[index]
        if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or not 0 <= dim < len(shape):
            return f"it has {len(shape)} dims"
        if self.state.action[value, index] == ATOMIC:
            return "an earlier action keeps it whole along this axis"
        current = self.tiled_dim(value, axis)
        if current >= 0:
            return f"this axis already tiles its dim {current}"
        if 0 in shape:
            return "it has no elements"
        ways = self.ways(value, dim)
        if shape[dim] % (ways * size):
            return f"{shape[dim] // ways} is not a multiple of {size}" + (
                f" (already divided by {ways})" if ways > 1 else ""
            )
        return ""

    def check_tile(self, value: int, dim: int, axis: str) -> None:
        """Raises `TileError` saying what is legal instead, if tile<value, dim, axis> is not."""
        why = self.why_not_tile(value, dim, axis)
        if not why:
            return
        size = self.mesh.shape[axis]
        raise TileError(
            f'cannot tile {self._named(value)} on dim {dim} along mesh axis "{axis}" (size {size})',
            why=why,
            hint=self._legal_instead(value, dim, axis),
        )

    def _legal_instead(self, value: int, dim: int, axis: str) -> str:
        shape = self.program.type_of(value).shape
        size = self.mesh.shape[axis]
        dims = [
            f"dim {d} ({n} = {size} * {n // size})"
            for d, n in enumerate(shape)
            if not self.why_not_tile(value, d, axis)
        ]
        axes = [
            f'axis "{a}" (size {n} divides {shape[dim]})'
            for a, n in self.mesh.shape.items()
            if a != axis and 0 <= dim < len(shape) and not self.why_not_tile(value, dim, a)
        ]
        return ", or ".join(dims + axes) or "leaving it whole (ap.UNKNOWN)"

    def _named(self, value: int) -> str:
        return f"{self.program.shown_name(value)}: {self.program.type_of(value)}"

    def resolve(self, op: int, axis: str, mapping: int) -> bool:
        """Has `op` loop over `axis` by its mapping number `mapping`, and propagates from there; False if it cannot.

        No tactic issues this: it is how one asks what follows if a conflict is settled in one way.
        """
        index = self.mesh.index(axis)
        if self.state.mapping[op, index] >= 0:
            return False
        count = fitting_mappings(self.nests, op, index, self._scratch.found)
        if mapping not in self._scratch.found[:count]:
            return False
        self._stamp += 1
        set_mapping(self.state, op, index, mapping, self._stamp)
        for value in self.program.results_of(op):
            first, last = self.graph.user_ptr[value], self.graph.user_ptr[value + 1]
            self._seeds[index] += self.graph.use_op[self.graph.user[first:last]].tolist()
        self._seeds[index] += self.graph.value_op[self.program.operands_of(op)].tolist()
        self.propagate([axis])
        return True

    def pending(self, value: int, axis: str) -> bool:
        """True if each device along `axis` holds only a part of the sum that `value` is."""
        op, index = self.program.value_op[value], self.mesh.index(axis)
        mapping = self.state.mapping[op, index]
        if mapping < 0:
            return False
        position = value - self.program.result_ptr[op]
        return self.table.of[self.program.op_spec[op]][mapping].results[position] > LAST_TILE

    # ---- copies

    def copy(self) -> Partitioning:
        """The same state with arrays of its own, which goes its own way; program, mesh and tables are shared."""
        twin = copy.copy(self)
        twin.state = StateArrays(*(array.copy() for array in self.state))
        twin._scratch = Scratch(*(array.copy() for array in self._scratch))
        twin._seeds = [list(seeds) for seeds in self._seeds]
        twin.blocked = self.blocked.copy()
        twin._for_lowering = list(self._for_lowering)
        return twin

    def of_part(self, program: Program, ops: np.ndarray, values: np.ndarray) -> Partitioning:
        """This state over a program that has only some of the ops and values, which can be undone no further.

        `ops` and `values` are what they are called here; `program` has the same specs.
        """
        part, mine = Partitioning(program, self.mesh), self.state
        for array, rows in (("mapping", ops), ("op_stamp", ops), ("action", values), ("value_stamp", values)):
            getattr(part.state, array)[:] = getattr(mine, array)[rows]
        part.state.fingerprint[:] = mine.fingerprint
        part.blocked = self.blocked[:, ops]
        part._stamp, part._for_lowering = self._stamp, list(self._for_lowering)
        return part

    def is_alike(self, ops: np.ndarray, others: np.ndarray) -> bool:
        """True if ops[i] and others[i], and what they compute, are decided alike, and their axes in one order.

        Entries of one axis that follow each other on the trail are of one rank.
        """
        length = int(self.state.length[0])
        where, axis = self.state.trail[:length].T
        rank = np.cumsum(np.diff(axis, prepend=-1) != 0)
        of_op, of_value = np.zeros_like(self.state.op_stamp), np.zeros_like(self.state.value_stamp)
        is_op = where >= 0
        of_op[where[is_op], axis[is_op]] = rank[is_op]
        of_value[-1 - where[~is_op], axis[~is_op]] = rank[~is_op]
        mine, theirs = (entries_of(self.program.result_ptr, some) for some in (ops, others))
        mapping, action = self.state.mapping, self.state.action
        same_loops = (mapping[ops] == mapping[others]).all() and (of_op[ops] == of_op[others]).all()
        return bool(
            same_loops and (action[mine] == action[theirs]).all() and (of_value[mine] == of_value[theirs]).all()
        )

    # ---- going back

    @property
    def fingerprint(self) -> int:
        """64 bits that identify the state; equal states have equal fingerprints."""
        chosen = self.for_lowering
        mixed = int(mix(chosen.share_within, int(chosen.sharded_loops), 0)) if self._for_lowering else 0
        return int(self.state.fingerprint[0]) ^ mixed

    def mark(self) -> int:
        """A point to which `undo` returns. Take it between propagations, not amid undone seeds."""
        return len(self._for_lowering) << MARK_BITS | int(self.state.length[0])

    def undo(self, mark: int) -> None:
        """Takes back every decision made since `mark`."""
        undo(self.state, mark & (1 << MARK_BITS) - 1)
        del self._for_lowering[mark >> MARK_BITS :]
        self._seeds = [list(seeds) for seeds in self._first_seeds]

    def loops_since(self, mark: int) -> tuple[np.ndarray, np.ndarray]:
        """(ops, axes): the entries of `state.mapping` that were set since `mark`."""
        where, axis = self.state.trail[mark & (1 << MARK_BITS) - 1 : int(self.state.length[0])].T
        return where[where >= 0], axis[where >= 0]

    def snapshot(self) -> Snapshot:
        """The state as it is now, marks included. To copy it is many times faster than to propagate to it again."""
        length = int(self.state.length[0])
        arrays = self.state._replace(trail=self.state.trail[:length])
        state = StateArrays(*(array.copy() for array in arrays))
        return Snapshot(state, tuple(self._for_lowering), tuple(map(tuple, self._seeds)))

    def restore(self, snapshot: Snapshot) -> None:
        """Goes to a state that this partitioning was in; marks that were taken on the way there are good again."""
        for mine, then in zip(self.state, snapshot.state, strict=True):
            mine[: len(then)] = then
        self._for_lowering = list(snapshot.for_lowering)
        self._seeds = [list(seeds) for seeds in snapshot.seeds]
