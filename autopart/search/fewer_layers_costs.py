"""Costs of states by a program with fewer of its repeated layers: as long for 96 layers as for 12.

    decisions  ->  carried out on the program with fewer layers  ->  lowered, simulated  ->  totals of the whole program
                   by the same value groups                                                  or None: not exact here

None says that the whole program has to be costed: where a decision is about single values, where layers are decided
differently, where gathers are shared over a distance, where the simulation is in no steady state. It depends on the
state alone, so that every worker finds the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers, fewer_layers
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.costmodel.simulator.whole_program import WholeProgram
from autopart.search.cost import Cost, Objective, StateCosts
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision, DecisionKind, Option
from autopart.search.space.space_of_fewer import space_of_fewer
from autopart.search.state_walk import Walk
from autopart.spmd.device_local import DeviceLocal, LoweringContext, LoweringOptions


class Reached(NamedTuple):
    """A state of the program with fewer layers: its key, and how many actions on the whole program lead there."""

    local: DeviceLocal
    key: int
    actions: int


@dataclass(frozen=True, eq=False)
class FewerLayersCosts:
    """The program with fewer layers, on its way from state to state; make it with `FewerLayersCosts.of`.

    three    int32[3, n]: corresponding ops of the layer before the typical one, of that, and of the one after
    """

    space: DecisionSpace
    whole: WholeProgram
    three: np.ndarray
    _options: LoweringOptions
    _walk: Walk
    _statics: LoweringContext
    _price: StateCosts

    @staticmethod
    def of(space: DecisionSpace, options: LoweringOptions, objective: Objective) -> FewerLayersCosts | None:
        """None where the program has no layers to leave out, or a decision may be about one of them."""
        if not all(_alike(kind) or type(kind).options is DecisionKind.options for kind in space.kinds.values()):
            return None
        fewer = fewer_layers(space.program)
        whole = WholeProgram.of(fewer) if fewer is not None else None
        smaller = space_of_fewer(space, fewer) if fewer is not None and whole is not None else None
        if fewer is None or whole is None or smaller is None:
            return None
        program = fewer.program
        return FewerLayersCosts(
            smaller, whole, _three(fewer), options,
            Walk(smaller.start.copy(), smaller, fewer.times[program.value_op]),
            LoweringContext.of(program), StateCosts(program, space.start.mesh, None, objective, whole.left_out),
        )  # fmt: skip

    def reach(self, decisions: tuple[Decision, ...]) -> Reached | None:
        """Goes to the state after `decisions`; None where the whole program has to be costed."""
        if not all(_alike(self.space.kind_of(decision)) for decision in decisions):
            return None
        actions, partitioning = self._walk.go_to(decisions), self._walk.partitioning
        before, typical, after = partitioning.state.mapping[self.three]
        alike = (before == typical).all() and (typical == after).all()
        if partitioning.share_within or self._options.share_within or not alike:
            return None
        local = lower_for_device(partitioning, self._options, self._statics)
        return Reached(local, partitioning.fingerprint ^ local.fingerprint, actions)

    def cost(self, reached: Reached) -> Cost | None:
        """The whole program's cost in the state reached last; None where the simulation is in no steady state."""
        return self._price.of_whole(reached.local, reached.actions, self.whole)

    def options(self) -> tuple[Option, ...]:
        """What may be decided in the state reached last."""
        return self.space.options(self._walk.partitioning)


def _alike(kind: DecisionKind) -> bool:
    return kind.goes_by_groups


def _three(fewer: FewerLayers) -> np.ndarray:
    """See `FewerLayersCosts`."""
    rows: list[np.ndarray] = []
    for layer in (fewer.typical - 1, fewer.typical, fewer.typical + 1):
        ops = np.flatnonzero((fewer.chain >= 0) & (fewer.layer == layer))
        rows.append(ops[np.argsort(fewer.chain[ops])])
    return np.array(rows, np.int32)
