"""The decision space: which decisions are legal in a state, and how much each has at stake.

    arguments  the roles of argument values, each on each dim along each axis
    tags       the roles of tagged values
    sums       computed values with a pending sum, which a tile turns into a reduce_scatter (sequence sharding)
    conflicts  the results of ops that several mappings fit: tiled, they carry on where propagation stopped
    whole      "stored" and "slots": all updated arrays at once; "keep": a role kept whole

The first two are tried once, one by one, on the starting state (`trials`), which gives their stakes and shows which of
them do exactly the same there; of those only the first is offered until its axis is in use. The others depend on the
state and are looked up in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.partitioning import Action, Atomic, Partitioning, Propagate, Tile
from autopart.core.program import Program
from autopart.core.quoting import one_line
from autopart.search.space.decisions import Decision, Option
from autopart.search.space.open_tiles import argument_dims, in_use, open_tiles, pending_bytes
from autopart.search.space.priors import MIN_STAKE, read_by_matrix_ops, updated_arguments, value_bytes
from autopart.search.space.probe import Probe, probe_each
from autopart.search.space.value_groups import ValueGroups, roles

MAX_PENDING = 6
"""Value groups with pending sums that are offered per axis, those with the most bytes first."""


@dataclass(frozen=True, eq=False)
class DecisionSpace:
    """The decisions about one program and mesh from one starting state; make it with `DecisionSpace.of`.

    axes      mesh axes that may be decided about
    twins     axis -> the axis that is like it in every way and comes first: its decisions wait until that one is used
    given     lists of actions that count as one decision each
    trials    decisions about arguments and tags, and what they did when tried once
    """

    program: Program
    axes: tuple[str, ...]
    twins: dict[str, str]
    given: tuple[tuple[Action, ...], ...]
    roles: ValueGroups
    exact: ValueGroups
    trials: tuple[Probe, ...]
    updated: np.ndarray = field(repr=False)
    slots: np.ndarray = field(repr=False)
    read_by_matrix: np.ndarray = field(repr=False)
    value_bytes: np.ndarray = field(repr=False)

    @staticmethod
    def of(
        partitioning: Partitioning,
        axes: Sequence[str],
        *,
        twins: dict[str, str] | None = None,
        given: Sequence[Sequence[Action]] = (),
    ) -> DecisionSpace:
        """The space from `partitioning` as it stands, which is left as it was.

        Raises `MeshError` for an axis that is not in the mesh.
        """
        for axis in axes:
            partitioning.mesh.index(axis)
        program = partitioning.program
        updated, read = updated_arguments(program), read_by_matrix_ops(program)
        space = DecisionSpace(
            program, tuple(axes), dict(twins or {}), tuple(tuple(g) for g in given), roles(program),
            roles(program, exact=True), (), updated, updated[~read[updated]], read, value_bytes(program),
        )  # fmt: skip
        return dataclasses.replace(space, trials=probe_each(space, partitioning))

    # ---- what a decision does

    def apply(self, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """Carries out what is still legal of `decision`; returns the actions taken, none if there was nothing to do."""
        axis = decision.axis
        match decision.kind:
            case "role" | "exact" | "value":
                values = self.values(decision)
                return _tiled(partitioning, values, np.full(len(values), decision.dim), axis)
            case "keep":
                return _kept(partitioning, self.values(decision), axis)
            case "stored":
                return _tiled(partitioning, self.updated, np.full(len(self.updated), -1), axis)
            case "slots":
                read = np.setdiff1d(self.updated, self.slots)
                kept = _kept(partitioning, read, axis)
                return kept + _tiled(partitioning, self.slots, np.full(len(self.slots), -1), axis)
            case _:
                return _replayed(partitioning, self.given[decision.target])

    @property
    def given_decisions(self) -> tuple[Decision, ...]:
        """A decision for each list of actions that was given."""
        return tuple(Decision("given", i, -1, "") for i in range(len(self.given)))

    def values(self, decision: Decision) -> np.ndarray:
        """The values a decision is about."""
        if decision.kind == "value":
            return np.array([decision.target], np.int32)
        return (self.exact if decision.kind == "exact" else self.roles).values(decision.target)

    def describe(self, decision: Decision) -> str:
        """A decision as text on one line: `tile<params/blocks/0/up and 31 more, 1, model>`."""
        return one_line(self._described(decision))

    def _described(self, decision: Decision) -> str:
        match decision.kind:
            case "stored":
                return f"tile<every updated array, first divisible dim, {decision.axis}>"
            case "slots":
                return f"tile<optimizer state, first divisible dim, {decision.axis}>, parameters whole"
            case "given":
                return f"schedule {decision.target}"
        values = self.values(decision)
        name = self.program.value_name(int(values[0])) + (f" and {len(values) - 1} more" if len(values) > 1 else "")
        return (
            f"atomic<{name}, {decision.axis}>"
            if decision.kind == "keep"
            else f"tile<{name}, {decision.dim}, {decision.axis}>"
        )

    def parts(self, decision: Decision) -> list[Decision]:
        """A role's decision taken apart: into its sizes, then into its values (ungrouping)."""
        values = self.values(decision) if decision.kind in ("role", "exact") else np.empty(0, np.int32)
        sizes = sorted(set(self.exact.of[values].tolist()))
        if decision.kind == "role" and len(sizes) > 1:
            return [Decision("exact", r, decision.dim, decision.axis) for r in sizes]
        return [Decision("value", v, decision.dim, decision.axis) for v in values.tolist()] if len(values) > 1 else []

    # ---- what may be decided

    def options(self, partitioning: Partitioning) -> tuple[Option, ...]:
        """Decisions that would do something in this state, with their priors."""
        axes = self._unlocked(partitioning)
        used = {a for a in axes if self._is_used(partitioning, a)}
        found = [t.option(t.decision.axis in used) for t in self.trials if t.decision.axis in axes]
        found = [o for o in found if o.prior > 0]
        found += (
            self._pending(partitioning, axes) + self._conflicting(partitioning, axes) + self._whole(partitioning, axes)
        )
        found = list({o.decision: o for o in reversed(found)}.values())[::-1]
        kept = [o for o, is_open in zip(found, self._open(partitioning, found), strict=True) if is_open]
        total = sum(o.prior for o in kept) or 1.0
        return tuple(Option(o.decision, o.prior / total) for o in kept)

    def _unlocked(self, partitioning: Partitioning) -> list[str]:
        """Axes in use, or whose twin is: of axes that are alike, the first is used first."""
        locked = [a for a, twin in self.twins.items() if not any(self._is_used(partitioning, x) for x in (a, twin))]
        return [a for a in self.axes if a not in locked]

    def _is_used(self, partitioning: Partitioning, axis: str) -> bool:
        return in_use(partitioning.state, partitioning.mesh.index(axis))

    def _open(self, partitioning: Partitioning, options: list[Option]) -> np.ndarray:
        is_open = np.ones(len(options), np.bool_)
        rows = [i for i, o in enumerate(options) if o.decision.kind == "role"]
        decisions = [options[i].decision for i in rows]
        out = np.empty(len(rows), np.bool_)
        open_tiles(
            partitioning.graph, partitioning.table.arrays, partitioning.state, partitioning.sizes,
            self.program.value_shape, self.program.value_rank, self.roles.pointer, self.roles.members,
            np.array([d.target for d in decisions], np.int32), np.array([d.dim for d in decisions], np.int32),
            np.array([partitioning.mesh.index(d.axis) for d in decisions], np.int32), out,
        )  # fmt: skip
        is_open[rows] = out
        return is_open

    def _pending(self, partitioning: Partitioning, axes: list[str]) -> list[Option]:
        found = []
        for axis in axes:
            stake = np.zeros(self.roles.count)
            pending_bytes(
                partitioning.graph, partitioning.table.arrays, partitioning.state, self.roles.of, self.value_bytes,
                partitioning.mesh.index(axis), stake,
            )  # fmt: skip
            most = np.argsort(-stake, kind="stable")[:MAX_PENDING]
            for role in most[stake[most] > MIN_STAKE * max(stake.sum(), 1.0)].tolist():
                rank = int(self.program.value_rank[self.roles.values(role)[0]])
                share = 0.3 * float(stake[role] / stake.sum())
                found += [Option(Decision("role", role, dim, axis), share) for dim in range(rank)]
        return found

    def _conflicting(self, partitioning: Partitioning, axes: list[str]) -> list[Option]:
        found: dict[Decision, float] = {}
        total = max(float(self.value_bytes.sum()), 1.0)
        for conflict in partitioning.conflicts():
            if conflict.axis not in axes:
                continue
            for position, value in enumerate(self.program.results_of(conflict.op)):
                for mapping in conflict.candidates:
                    dim = mapping.results[position]
                    if dim < LAST_TILE:
                        decision = Decision("role", int(self.roles.of[value]), dim, conflict.axis)
                        found[decision] = found.get(decision, 0.0) + float(self.value_bytes[value]) / total
        most = sorted(found, key=lambda d: (-found[d], d))[: 2 * MAX_PENDING]
        return [Option(d, min(found[d], 0.3)) for d in most]

    def _whole(self, partitioning: Partitioning, axes: list[str]) -> list[Option]:
        """ZeRO-like decisions, and keeping whole what an earlier step of the search could have tiled."""
        found = []
        for axis in axes:
            index = partitioning.mesh.index(axis)
            size = float(partitioning.mesh.axis_sizes[index])
            dims = np.empty(len(self.updated), np.int64)
            argument_dims(partitioning.graph, partitioning.table.arrays, partitioning.state, self.updated, index, dims)
            free = self.updated[(dims < 0) & (partitioning.state.action[self.updated, index] == 0)]
            if not len(free):
                continue
            share = float(self.value_bytes[free].sum() / max(self.value_bytes[self.updated].sum(), 1.0))
            found.append(Option(Decision("stored", 0, -1, axis), share * (1 - 1 / size)))
            if len(self.slots) and len(self.slots) < len(self.updated):
                found.append(Option(Decision("slots", 0, -1, axis), 0.7 * share * (1 - 1 / size)))
        return found


def _tiled(partitioning: Partitioning, values: np.ndarray, dims: np.ndarray, axis: str) -> list[Action]:
    actions: list[Action] = []
    for tile in partitioning.tile_in_turn(values.astype(np.int32), dims.astype(np.int32), axis):
        actions += [tile, Propagate(axis)]
    return actions


def _kept(partitioning: Partitioning, values: np.ndarray, axis: str) -> list[Action]:
    index, actions = partitioning.mesh.index(axis), []
    for value in values.tolist():
        if partitioning.state.action[value, index] == 0 and partitioning.tiled_dim(value, axis) < 0:
            actions.append(Atomic(value, axis))
            partitioning.apply(actions[-1])
    return actions


def _replayed(partitioning: Partitioning, actions: Sequence[Action]) -> list[Action]:
    """Applies what is legal of the actions, in order."""
    taken: list[Action] = []
    for action in actions:
        match action:
            case Tile(value, dim, axis):
                if partitioning.tiled_dim(value, axis) == dim or partitioning.why_not_tile(value, dim, axis):
                    continue
            case Atomic(value, axis):
                if partitioning.tiled_dim(value, axis) >= 0:
                    continue
        partitioning.apply(action)
        taken.append(action)
    return taken if any(not isinstance(a, Propagate) for a in taken) else []
