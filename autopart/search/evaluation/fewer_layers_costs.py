"""Costs of states by a program with fewer of its repeated layers: as long for 96 layers as for 12.

    decisions  ->  carried out on the program with fewer layers  ->  lowered, simulated  ->  totals of the whole program
                   by the same value groups

Where the simulation is in no steady state, a program with a few more layers is simulated where that is worth making it
(`longer_programs.py`), and the whole one where that does not say all, or where gathers are shared over a distance that
some layers span and others do not. None says that decisions have to be carried out on the whole program: where one is
about single values, where layers are decided differently. It depends on the state alone, so that every worker finds the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from autopart.core.repeats.like_ops import Like
from autopart.costmodel.compiled.layers.batch_period import MayWait
from autopart.costmodel.compiled.whole_program import WholeProgram
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.evaluation.cost import Cost, Objective, StateCosts
from autopart.search.evaluation.longer_programs import LongerPrograms, WholeCosts
from autopart.search.evaluation.state_walk import Walk
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision, DecisionKind, Option
from autopart.search.space.facts_of_fewer import FactsOfFewer
from autopart.spmd.device_local import DeviceLocal, LoweringContext, LoweringOptions


class Reached(NamedTuple):
    """A state of the program with fewer layers: its key, and how many actions on the whole program lead there."""

    local: DeviceLocal
    key: int
    actions: int


@dataclass(frozen=True, eq=False)
class FewerLayersCosts:
    """The program with fewer layers, on its way from state to state; make it with `FewerLayersCosts.of`.

    may_wait   what batches of reductions are made of
    longer     programs with more layers
    """

    space: DecisionSpace
    whole: WholeProgram
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
        smaller = space.of_fewer
        facts = smaller.facts if smaller is not None else None
        whole = WholeProgram.of(facts.fewer) if isinstance(facts, FactsOfFewer) else None
        if smaller is None or whole is None:
            return None
        fewer = whole.fewer
        program, like = fewer.program, Like.of(space.program, fewer.program, fewer.stands_in)
        longer = LongerPrograms(fewer, space.program, like, whole_costs)
        return FewerLayersCosts(
            smaller, whole, MayWait.of(space.program, fewer, like), longer, options,
            Walk(smaller.start.copy(), smaller, fewer.times[program.value_op]),
            LoweringContext.of(program), StateCosts(program, space.start.mesh, None, objective, whole.left_out),
        )  # fmt: skip

    def reach(self, decisions: tuple[Decision, ...]) -> Reached | None:
        """Goes to the state after `decisions`; None where the whole program has to be costed."""
        if not all(_alike(self.space.kind_of(decision)) for decision in decisions):
            return None
        actions, partitioning = self._walk.go_to(decisions), self._walk.partitioning
        if not self.space.facts.holds_for_whole(partitioning):
            return None
        local = lower_for_device(partitioning, self._options, self._statics)
        return Reached(local, partitioning.fingerprint ^ local.fingerprint, actions)

    def cost(self, reached: Reached) -> Cost | None:
        """The whole program's cost in the state reached last; None where layers are lowered differently."""
        local, actions = reached.local, reached.actions
        repeats, priced = self._price.repeats(local, self.may_wait)
        shares_alike = self._shares_alike(local)
        if not shares_alike:
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

    def _shares_alike(self, local: DeviceLocal) -> bool:
        """True if uses share gathers in the whole program as they do here, where they are nearer to each other."""
        if not local.grouping.share_within:
            return True
        return self._lowered_alike(local) and self.longer.with_all().shares_alike(local)

    def _lowered_alike(self, local: DeviceLocal) -> bool:
        """True if the three layers have the same layouts, so that those that are left out have them too."""
        of_values, of_uses = (local.native, local.settled), (local.required, local.stretch, local.grouping.grows)
        three = self.whole.fewer.three
        return (
            three.agree(local.passing, three.ops)
            and all(three.agree(of, three.values) for of in of_values)
            and all(three.agree(of, three.uses) for of in of_uses)
        )

    def options(self) -> tuple[Option, ...]:
        """What may be decided in the state reached last."""
        return self.space.options(self._walk.partitioning)


def _alike(kind: DecisionKind) -> bool:
    return kind.goes_by_groups
