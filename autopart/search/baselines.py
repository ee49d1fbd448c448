"""Which named schedules a search costs first, before its optimizer decides anything.

    1  DP on every axis, its state in parts; DP and Megatron                FSDP(data,model), DP(data)+Megatron(model)
    2  on each axis another schedule than DP, and none                      DP(data), DP(data)+Context(model), ...
    3  what was best on each axis together, by what it gained there         Experts(data)+Megatron(model), ...
    4  the fastest, and those of least memory, with state in parts          ...+ZeRO3(data)
    5  the best of these, where loops hold whole what is in parts           ...+ShardedLoops

For k axes with n schedules each there are (n+1)^k combinations, times the ways to store state. What is slower on an
axis than `KEPT` others is combined no further (dominance), and combinations that come to one state are one: about 30
are costed for two axes and 50 for three, never more than `MOST`. A budget that ends earlier ends with the likeliest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from autopart.search.evaluation.jobs import State
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named.inputs import Inputs, scratch
from autopart.search.space.named_schedules import Named, found_schedules
from autopart.search.space.several_axes import Combined, combined

MOST = 64
"""Named schedules that are costed at most."""

KEPT = 2
"""Schedules of an axis, besides data parallelism, that are combined with those of the other axes."""

MOST_PRODUCTS = 10
"""Combinations of them that are costed, those first whose parts gained most alone."""

FASTEST, BEST = 3, 2
"""Combinations that are costed with state in parts: so many of the fastest, and of the best where memory counts too.
As many of those with state in parts are costed with loops that hold parts."""

FULL = 0.8
"""Where whole state fills a device's memory to this share, state in parts is tried first."""

DATA, MATRICES, PARAMETERS, OPTIMIZER_STATE = ("DP", "Edges"), "Megatron", "ZeRO3", "ZeRO2"
LARGE_PARAMETERS = "ZeRO3Large"

SHARDED_LOOPS = Named("ShardedLoops", (Decision("shard_loops", 0, -1, ""),), (), stores=True)
"""Comes after what stores state in parts."""

Roles = tuple[str, ...]
"""Per axis of the space the role of the schedule on it; "" for none."""

Price = Callable[[Sequence[Combined]], Sequence[State]]
"""Costs combinations, one evaluation each; may raise once no more may be costed."""


@dataclass(frozen=True, eq=False)
class ByAxis:
    """The named schedules of a space, by axis; to find them takes a while, in which workers start.

    work             per axis its schedules by role, without those that say how state is stored
    stores           those that do, by label
    several          those over several axes
    divides_state    (place of an axis, role) of those that tile something of what the program updates besides data
    """

    space: DecisionSpace
    work: list[dict[str, Named]]
    stores: dict[str, Named]
    several: list[Named]
    divides_state: set[tuple[int, str]]

    @staticmethod
    def of(space: DecisionSpace) -> ByAxis:
        """Finds them."""
        found = found_schedules(space)
        work = [{n.role: n for n in found if n.axes == (a,) and not n.stores} for a in space.axes]
        return ByAxis(
            space, work, {n.label: n for n in found if n.stores and len(n.axes) == 1},
            [n for n in found if len(n.axes) > 1],
            {(i, role) for i, on in enumerate(work) for role, named in on.items() if _on_state(space, named)},
        )  # fmt: skip


def cost_baselines(named: ByAxis, price: Price, memory_bytes: float) -> None:
    """Has `price` cost the named schedules of a space, wave by wave; see the module."""
    rounds = Rounds(named, price)
    rounds.usual(memory_bytes)
    rounds.one_other()
    rounds.products()
    rounds.stored()
    rounds.looped()


class Rounds:
    """What was costed, and what is next."""

    def __init__(self, named: ByAxis, price: Price):
        self._space, self._price, self._axes = named.space, price, named.space.axes
        self._work, self._stores, self._several = named.work, named.stores, named.several
        self._divides_state = named.divides_state
        self._data: Roles = tuple(next((r for r in DATA if r in work), "") for work in self._work)
        self._seen = {combined(self._space, ()).state}
        self._costed: dict[Roles, State] = {}
        self._stored: list[tuple[State, Roles, tuple[Named, ...]]] = []
        self._count = 0

    # ---- rounds

    def usual(self, memory_bytes: float) -> None:
        """Data parallelism over all axes, and with Megatron on the last; each with state in parts."""
        plain = [self._data, (*self._data[:-1], MATRICES)] if self._axes else []
        rows = [(roles, stores) for roles in plain for stores in ((), self._shards(PARAMETERS, self._free(roles)))]
        program, tied = self._space.program, self._space.facts.tied
        state_bytes = sum(program.type_of(int(v)).bytes for v in tied)
        if state_bytes > FULL * memory_bytes:
            rows.sort(key=lambda row: not row[1])
        self._cost(rows)

    def one_other(self) -> None:
        """On one axis another schedule than data parallelism, the last registered first, or none; then the others."""
        self._cost(
            (self._with(axis, role), ()) for axis, work in enumerate(self._work) for role in (*reversed(work), "")
        )
        self._cost((("",) * len(self._axes), (named,)) for named in self._several)

    def products(self) -> None:
        """What was fastest on each axis, together; the order is that of the product of what each gained alone."""
        best = [self._best_on(axis) for axis in range(len(self._axes))]
        products = {self._canonical(roles) for roles in itertools.product(*best)}
        fresh = sorted((r for r in products if r not in self._costed), key=lambda r: (self._predicted(r), r))
        self._cost((roles, ()) for roles in fresh[:MOST_PRODUCTS])

    def stored(self) -> None:
        """State in parts: over all axes without weights on them, over one of them, over all; of large arrays alone; and
        optimizer state alone."""
        fastest = sorted(self._costed, key=lambda r: self._costed[r].cost.step_s)[:FASTEST]
        best = sorted(self._costed, key=lambda r: self._costed[r].cost.rank)[:BEST]
        everywhere = range(len(self._axes))
        rows: list[tuple[Roles, tuple[Named, ...]]] = []
        for roles in dict.fromkeys([*best, *fastest]):
            free = self._free(roles)
            rows += [(roles, self._shards(kind, free)) for kind in (PARAMETERS, LARGE_PARAMETERS, OPTIMIZER_STATE)]
            rows += [(roles, self._shards(PARAMETERS, [axis])) for axis in free]
            rows.append((roles, self._shards(PARAMETERS, everywhere)))
        self._cost(rows)

    def looped(self) -> None:
        """Loops that hold parts, such as those over microbatches, where state is stored in parts."""
        if not self._space.facts.loop_reads.total:
            return
        fastest = sorted(self._stored, key=lambda row: row[0].cost.step_s)[:FASTEST]
        best = sorted(self._stored, key=lambda row: row[0].cost.rank)[:BEST]
        self._cost((roles, (*stores, SHARDED_LOOPS)) for _, roles, stores in [*best, *fastest])

    # ---- what they choose between

    def _with(self, axis: int, role: str) -> Roles:
        return self._canonical((*self._data[:axis], role, *self._data[axis + 1 :]))

    def _canonical(self, roles: Roles) -> Roles:
        """Of assignments that only exchange axes that are alike, the one whose first axis has the first role."""
        alike, given = self._space.symmetric_to, list(roles)
        for first in set(alike.values()):
            places = [i for i, a in enumerate(self._axes) if alike.get(a, a) == first]
            order = [*self._work[places[0]], ""]
            for place, role in zip(places, sorted((given[i] for i in places), key=order.index), strict=True):
                given[place] = role
        return tuple(given)

    def _best_on(self, axis: int) -> list[str]:
        """Data parallelism and the `KEPT` fastest others on an axis, by what was costed with the others on data."""
        others = [r for r in (*self._work[axis], "") if r != self._data[axis] and self._with(axis, r) in self._costed]
        others.sort(key=lambda r: self._costed[self._with(axis, r)].cost.step_s)
        return [self._data[axis], *others[:KEPT]]

    def _predicted(self, roles: Roles) -> float:
        """Seconds, if what a schedule gains on one axis did not depend on the other axes."""
        if self._data not in self._costed:
            return math.inf
        whole = self._costed[self._data].cost.step_s or 1.0
        alone = [self._costed[self._with(i, r)].cost.step_s for i, r in enumerate(roles) if r != self._data[i]]
        return whole * math.prod(s / whole for s in alone)

    def _free(self, roles: Roles) -> list[int]:
        """Axes that divide nothing which the program updates, where there are any; else all."""
        free = [i for i, role in enumerate(roles) if (i, role) not in self._divides_state]
        return free or list(range(len(roles)))

    def _shards(self, kind: str, axes: Iterable[int]) -> tuple[Named, ...]:
        found = (self._stores.get(f"{kind}({self._axes[i]})") for i in axes)
        return tuple(named for named in found if named is not None)

    # ---- costing

    def _cost(self, rows: Iterable[tuple[Roles, tuple[Named, ...]]]) -> None:
        """Costs those whose state is new, at most `MOST` in all."""
        wave = list(itertools.islice(self._fresh(rows), max(0, MOST - self._count)))
        self._count += len(wave)
        if wave:
            for (roles, stores, _), state in zip(wave, self._price([c for _, _, c in wave]), strict=True):
                if stores:
                    self._stored.append((state, roles, stores))
                else:
                    self._costed[roles] = state

    def _fresh(
        self, rows: Iterable[tuple[Roles, tuple[Named, ...]]]
    ) -> Iterator[tuple[Roles, tuple[Named, ...], Combined]]:
        for roles, stores in rows:
            parts = [work[role] for work, role in zip(self._work, roles, strict=True) if role in work]
            found = combined(self._space, (*parts, *stores))
            if found.state not in self._seen and (parts or stores):
                self._seen.add(found.state)
                yield roles, stores, found


def _on_state(space: DecisionSpace, named: Named) -> bool:
    """True if the schedule tiles something of what the program updates besides data."""
    space = space.trying(named.decisions)
    state, [axis] = set(space.facts.updated.tolist()), named.axes
    state -= Inputs.of(space, axis).arguments
    with scratch(space) as partitioning:
        for decision in named.decisions:
            space.apply(partitioning, decision)
        return any(partitioning.tiled_dim(v, axis) >= 0 for v in state)
