"""The same state by the same actions, whoever found it and in whatever order.

    seed 0   tile<w2, 0, model>, propagate, tile<x, 0, batch>, propagate
    seed 1   tile<x, 0, batch>, propagate, tile<w1, 1, model>, propagate       w2 follows from w1, and w1 from w2
    both     tile<x, 0, batch>, tile<w1, 1, model>, propagate<batch>, propagate<model>

The actions are made anew from the table that a tactic left: what it tiles of the arguments, in their order, axis by
axis, each followed by a propagation and taken only if the table then says nothing else than the tactic's. An argument
that an earlier one implies is left out. Whether the actions lead to the same program is checked, layout by layout;
where they do not, the tactic's own explicit decisions are tried in this order, and in the end its actions as they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autopart.base.errors import TileError
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.core.table.actions import Action, Atomic, Propagate, ShardLoops, ShareGathers, Tile
from autopart.core.table.loop_nests import ATOMIC
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import DeviceLocal, LoweringContext, LoweringOptions

MAX_ORDERS = 24
"""Orders that are tried of the axes that a tactic acts along: all of four axes."""

Way = Callable[[], list[list[Action]]]


def canonical_actions(
    program: Program, mesh: Mesh, options: LoweringOptions, parts: Sequence[Sequence[Action]]
) -> list[list[Action]]:
    """The actions of each tactic, made canonical; as they are where that leads to another program.

    parts   the actions of each tactic, in the order of the schedule
    """
    statics = LoweringContext.of(program)

    def lowered(partitioning: Partitioning) -> DeviceLocal:
        return lower_for_device(partitioning, options, statics)

    theirs, own = Partitioning(program, mesh), Partitioning(program, mesh)
    found: list[list[Action]] = []
    for part in parts:
        theirs.apply_all(part)
        actions = _canonical(own, theirs, part, lowered)
        if actions is None:
            return [list(part) for part in parts]
        found.append(actions)
    return found


def _canonical(
    own: Partitioning, theirs: Partitioning, part: Sequence[Action], lowered: Callable[[Partitioning], DeviceLocal]
) -> list[Action] | None:
    """The first way that takes `own` to what `theirs` is lowered to; leaves `own` there. None where no way does."""
    wanted, start = lowered(theirs), own.mark()
    for way in _ways(own, theirs, part):
        for arranged in (_grouped, _in_turn):
            own.undo(start)
            try:
                actions = arranged(way())
                own.undo(start)
                own.apply_all(actions)
            except TileError:  # the order matters to what is legal
                continue
            is_same_table = np.array_equal(own.state.mapping, theirs.state.mapping)
            if is_same_table and same_program(lowered(own), wanted):
                return actions
    own.undo(start)
    return None


def _ways(own: Partitioning, theirs: Partitioning, part: Sequence[Action]) -> Iterator[Way]:
    """Ways to make actions, the most canonical first."""
    acted = [a.axis for a in part if not isinstance(a, ShareGathers | ShardLoops)]
    orders = list(itertools.islice(itertools.permutations(sorted(set(acted), key=theirs.mesh.index)), MAX_ORDERS))
    for axes in orders:
        yield lambda axes=axes: _one_by_one(own, theirs, axes)
    for axes in orders:
        yield lambda axes=axes: _together(own, theirs, axes)
    yield lambda: [list(part)]


def _one_by_one(own: Partitioning, theirs: Partitioning, axes: Sequence[str]) -> list[list[Action]]:
    """Tiles, one after the other, that leave `own` within the table of `theirs`."""
    parts: list[list[Action]] = [_first(own, theirs)]
    own.apply_all(parts[0])
    waiting = {axis: _tilings(theirs, axis) for axis in axes}
    progress = True
    while progress:
        progress = False
        for axis in axes:
            left: list[Tile] = []
            for tile in waiting[axis]:
                if own.tiled_dim(tile.value, axis) == tile.dim:
                    continue
                if _taken(own, theirs, tile):
                    parts.append([tile, Propagate(axis)])
                    progress = True
                else:
                    left.append(tile)
            waiting[axis] = left
    return parts


def _taken(own: Partitioning, theirs: Partitioning, tile: Tile) -> bool:
    """Takes a tile, unless it is not legal or leads out of the table of `theirs`."""
    if own.why_not_tile(tile.value, tile.dim, tile.axis):
        return False
    before = own.mark()
    own.apply_all([tile, Propagate(tile.axis)])
    entered = own.loops_since(before)
    if np.array_equal(own.state.mapping[entered], theirs.state.mapping[entered]):
        return True
    own.undo(before)
    return False


def _together(own: Partitioning, theirs: Partitioning, axes: Sequence[str]) -> list[list[Action]]:
    """What `theirs` decided explicitly and `own` has not, all of an axis before its propagation."""
    parts: list[list[Action]] = [_first(own, theirs)]
    for axis in axes:
        tiles = [t for t in _explicit(theirs, axis) if own.tiled_dim(t.value, axis) != t.dim]
        parts.append([*tiles, Propagate(axis)] if tiles else [])
    return parts


def _in_turn(parts: Sequence[Sequence[Action]]) -> list[Action]:
    """Each decision with its propagation."""
    return [action for part in parts for action in part]


def _grouped(parts: Sequence[Sequence[Action]]) -> list[Action]:
    """All decisions, and then one propagation along each axis."""
    actions = _in_turn(parts)
    axes = dict.fromkeys(a.axis for a in actions if isinstance(a, Propagate))
    return [*(a for a in actions if not isinstance(a, Propagate)), *map(Propagate, axes)]


def _first(own: Partitioning, theirs: Partitioning) -> list[Action]:
    """What does not depend on an order: values that are kept whole, and what is decided for the lowering."""
    kept = np.argwhere((theirs.state.action == ATOMIC) & (own.state.action != ATOMIC))
    names = theirs.mesh.axis_names
    actions: list[Action] = [Atomic(value, names[axis]) for value, axis in kept.tolist()]
    if theirs.share_within > own.share_within:
        actions.append(ShareGathers(theirs.share_within))
    if theirs.sharded_loops and not own.sharded_loops:
        actions.append(ShardLoops())
    return actions


def _tilings(theirs: Partitioning, axis: str) -> list[Tile]:
    """What an axis tiles of the arguments, decided or inferred, and then of the values that were decided about."""
    arguments = [(v, theirs.tiled_dim(v, axis)) for v in theirs.program.arguments]
    tiles = [Tile(value, dim, axis) for value, dim in arguments if dim >= 0]
    return [*dict.fromkeys([*tiles, *_explicit(theirs, axis)])]


def _explicit(theirs: Partitioning, axis: str) -> list[Tile]:
    """The explicit tiles along an axis, in the order of their values."""
    action = theirs.state.action[:, theirs.mesh.index(axis)]
    return [Tile(int(v), int(action[v]) - 1, axis) for v in np.flatnonzero(action > 0)]


def same_program(one: DeviceLocal, other: DeviceLocal) -> bool:
    """True if two lowerings of a program are alike in every loop, layout and redistribution."""
    arrays = [
        (one.mapping, other.mapping), (one.native, other.native), (one.settled, other.settled),
        (one.required, other.required), (one.passing, other.passing), (one.at_def, other.at_def),
        *zip(vars(one.placement).values(), vars(other.placement).values(), strict=True),
    ]  # fmt: skip
    return all(np.array_equal(a, b) for a, b in arrays) and _dims(one) == _dims(other)


def _dims(local: DeviceLocal) -> list[list[tuple[int, int]]]:
    """The loops of each op by mapping: which is the outer of two loops over one dim matters, and nothing else."""
    sorted_nests = {nest: sorted(nest, key=lambda loop: loop[1]) for nest in set(local.nests)}
    return [sorted_nests[nest] for nest in local.nests]
