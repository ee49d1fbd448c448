"""Costs of states by a program with fewer of its repeated layers: as long for 96 layers as for 12.

    decisions  ->  carried out on the program with fewer layers  ->  lowered, simulated  ->  totals of the whole program
                   by the same value groups

Where the simulation is in no steady state, one with two more layers may be in one; where that is not, or gathers are
shared over a distance, a program with more layers is simulated (`longer_programs.py`). None says that decisions have to
be carried out on the whole program: where one is about single values, where layers are decided differently. It depends
on the state alone, so that every worker finds the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers, fewer_layers
from autopart.core.ragged import entries_of
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.costmodel.simulator.batch_period import MayWait
from autopart.costmodel.simulator.whole_program import WholeProgram
from autopart.search.cost import Cost, Objective, StateCosts
from autopart.search.longer_programs import LongerPrograms, WholeCosts
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


class Three(NamedTuple):
    """ops, values, uses: int[3, n]; those that correspond in the layer before the typical one, in it, and after it."""

    ops: np.ndarray
    values: np.ndarray
    uses: np.ndarray

    @staticmethod
    def of(fewer: FewerLayers) -> Three:
        """Those of a program with fewer layers."""
        program, ops = fewer.program, []
        for layer in (fewer.typical - 1, fewer.typical, fewer.typical + 1):
            of_layer = np.flatnonzero((fewer.chain >= 0) & (fewer.layer == layer))
            ops.append(of_layer[np.argsort(fewer.chain[of_layer])])
        values, uses = ([entries_of(ptr, row) for row in ops] for ptr in (program.result_ptr, program.operand_ptr))
        return Three(np.array(ops, np.int32), np.array(values), np.array(uses))


@dataclass(frozen=True, eq=False)
class FewerLayersCosts:
    """The program with fewer layers, on its way from state to state; make it with `FewerLayersCosts.of`.

    three      corresponding ops, values and uses of the layer before the typical one, of that, and of the one after
    may_wait   what batches of reductions are made of
    longer     programs with more layers
    """

    space: DecisionSpace
    whole: WholeProgram
    three: Three
    may_wait: MayWait
    longer: LongerPrograms
    _options: LoweringOptions
    _walk: Walk
    _statics: LoweringContext
    _price: StateCosts

    @staticmethod
    def of(
        space: DecisionSpace, options: LoweringOptions, objective: Objective, whole_costs: Callable[[], WholeCosts]
    ) -> FewerLayersCosts | None:
        """None where the program has no layers to leave out, or a decision may be about one of them."""
        if not all(_alike(kind) or type(kind).options is DecisionKind.options for kind in space.kinds.values()):
            return None
        fewer = fewer_layers(space.program)
        whole = WholeProgram.of(fewer) if fewer is not None else None
        smaller = space_of_fewer(space, fewer) if fewer is not None and whole is not None else None
        if fewer is None or whole is None or smaller is None:
            return None
        program, longer = fewer.program, LongerPrograms(fewer, space.program, whole_costs)
        return FewerLayersCosts(
            smaller, whole, Three.of(fewer), MayWait.of(space.program, fewer, longer.like_all), longer, options,
            Walk(smaller.start.copy(), smaller, fewer.times[program.value_op]),
            LoweringContext.of(program), StateCosts(program, space.start.mesh, None, objective, whole.left_out),
        )  # fmt: skip

    def reach(self, decisions: tuple[Decision, ...]) -> Reached | None:
        """Goes to the state after `decisions`; None where the whole program has to be costed."""
        if not all(_alike(self.space.kind_of(decision)) for decision in decisions):
            return None
        actions, partitioning = self._walk.go_to(decisions), self._walk.partitioning
        if not _agree(partitioning.state.mapping, self.three.ops):
            return None
        local = lower_for_device(partitioning, self._options, self._statics)
        return Reached(local, partitioning.fingerprint ^ local.fingerprint, actions)

    def cost(self, reached: Reached) -> Cost | None:
        """The whole program's cost in the state reached last; None where layers are lowered differently."""
        local, actions = reached.local, reached.actions
        repeats, priced = self._price.repeats(local, self.may_wait)
        if local.grouping.share_within:
            repeats = None
        throughout = repeats is not None and repeats.throughout(self.may_wait)
        cost = self._price.of_whole(local, actions, self.whole, priced) if throughout else None
        if cost is not None:
            return cost
        if not self._lowered_alike(local):
            return None
        for longer in self.longer.tried(repeats, throughout) if repeats is not None else ():
            cost = longer.cost(local, actions)
            if cost is not None:
                return cost
        return self.longer.with_all().cost(local, actions)

    def _lowered_alike(self, local: DeviceLocal) -> bool:
        """True if the three layers have the same layouts, so that those that are left out have them too."""
        of_values, of_uses = (local.native, local.settled), (local.required, local.stretch, local.grouping.grows)
        return (
            _agree(local.passing, self.three.ops)
            and all(_agree(of, self.three.values) for of in of_values)
            and all(_agree(of, self.three.uses) for of in of_uses)
        )

    def options(self) -> tuple[Option, ...]:
        """What may be decided in the state reached last."""
        return self.space.options(self._walk.partitioning)


def _alike(kind: DecisionKind) -> bool:
    return kind.goes_by_groups


def _agree(of: np.ndarray, three: np.ndarray) -> bool:
    """True if what is known of ops, values or uses is the same for those that correspond, `three` as in `Three`."""
    before, typical, after = of[three]
    return bool((before == typical).all() and (typical == after).all())
