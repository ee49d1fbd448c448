"""The decision space: which decisions would do something in a state, and with which priors.

    DecisionSpace.of(partitioning, axes)      each kind names decisions to probe: they are tried once on the start
    space.options(partitioning)               each kind offers decisions in this state; their priors add up to 1
    space.apply(partitioning, decision)       the decision's kind carries it out

The space knows no kind by name: it asks every registered kind (`decisions.py`), in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autopart.base.quoting import one_line
from autopart.core.program import Program
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import DECISION_KINDS, Decision, DecisionKind, Option
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.facts_of_fewer import facts_of_fewer
from autopart.search.space.open_tiles import in_use
from autopart.search.space.probe import Probe, probe_each


@dataclass(frozen=True, eq=False)
class DecisionSpace:
    """The decisions about one program and mesh from one starting state; make it with `DecisionSpace.of`.

    axes            mesh axes that may be decided about
    symmetric_to    axis -> the axis that is like it in every way and comes first: decisions about the former are
                    offered once the latter is in use
    kinds           the kinds of decision by name, as they were registered when the space was made
    probes          decisions that were tried once on the starting state, those that reach most first
    start           the starting state; who tries something on it undoes that
    of_fewer        the same decisions about the program with fewer layers, where some can be left out
    """

    facts: ProgramFacts
    axes: tuple[str, ...]
    symmetric_to: Mapping[str, str]
    kinds: Mapping[str, DecisionKind]
    probes: tuple[Probe, ...]
    start: Partitioning
    of_fewer: DecisionSpace | None = None
    _probed: dict[Any, list[Option]] = field(default_factory=dict[Any, list[Option]], init=False, repr=False)

    @staticmethod
    def of(
        partitioning: Partitioning,
        axes: Sequence[str],
        *,
        symmetric_to: Mapping[str, str] | None = None,
        given: Sequence[Sequence[Action]] = (),
    ) -> DecisionSpace:
        """The space from `partitioning` as it stands, which is left as it was.

        Raises `MeshError` for an axis that is not in the mesh.
        """
        for axis in axes:
            partitioning.mesh.index(axis)
        facts, kinds = ProgramFacts.of(partitioning.program, given), registered_kinds()
        decisions = [d for kind in kinds.values() for d in kind.probed(facts, axes)]
        fewer, probes, smaller = facts_of_fewer(partitioning, facts), None, None
        by_groups = all(kinds[d.kind].goes_by_groups for d in decisions)
        if fewer is not None and by_groups and fewer.has_all(decisions):
            smaller = DecisionSpace(fewer, tuple(axes), dict(symmetric_to or {}), kinds, (), fewer.start(partitioning))
            probes = probe_each(smaller.start, fewer, kinds, decisions)
        if probes is None:
            probes = probe_each(partitioning, facts, kinds, decisions) or ()
        smaller = replace(smaller, probes=probes) if smaller is not None else None
        return DecisionSpace(facts, tuple(axes), dict(symmetric_to or {}), kinds, probes, partitioning, smaller)

    @property
    def program(self) -> Program:
        """The program that is decided about."""
        return self.facts.program

    @property
    def seeds(self) -> list[tuple[Decision, ...]]:
        """Sequences of decisions that a seeded search costs first."""
        return [seed for kind in self.kinds.values() for seed in kind.seeds(self.facts)]

    def trying(self, decisions: Iterable[Decision]) -> DecisionSpace:
        """The space to try decisions in: that of fewer layers where there is one and they go by groups; else this."""
        by_groups = all(self.kind_of(decision).goes_by_groups for decision in decisions)
        return self.of_fewer if self.of_fewer is not None and by_groups else self

    # ---- one decision: its kind answers

    def kind_of(self, decision: Decision) -> DecisionKind:
        """The kind of a decision; raises `UnknownNameError` for one that is not registered."""
        return self.kinds.get(decision.kind) or DECISION_KINDS.named(decision.kind)()

    def apply(self, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """Carries out what is still legal of `decision`; returns the actions taken, none if there was nothing to do."""
        return self.kind_of(decision).apply(self.facts, partitioning, decision)

    def values(self, decision: Decision) -> np.ndarray:
        """The values that a decision names."""
        return self.kind_of(decision).values(self.facts, decision)

    def describe(self, decision: Decision) -> str:
        """A decision as text on one line: `tile<params/blocks/0/up and 31 more, 1, model>`."""
        return one_line(self.kind_of(decision).describe(self.facts, decision))

    def parts(self, decision: Decision) -> list[Decision]:
        """A decision taken apart (ungrouping): a group's into its sizes, then into its values."""
        return self.kind_of(decision).parts(self.facts, decision)

    def refinements(self, decision: Decision) -> list[tuple[Decision, ...]]:
        """Sequences that refinement tries in place of a decision."""
        return self.kind_of(decision).refinements(self.facts, decision)

    # ---- what may be decided

    def options(self, partitioning: Partitioning) -> tuple[Option, ...]:
        """Decisions that would do something in this state, with their priors.

        Decisions about a dim come first. Then come those about the whole program, axis by axis, the largest priors
        first.
        """
        axes = self._offered_axes(partitioning)
        offered = [o for kind in self.kinds.values() for o in kind.options(self, partitioning, axes)]
        about_a_dim = [o for o in offered if o.decision.dim >= 0]
        found = about_a_dim + sorted((o for o in offered if o.decision.dim < 0), key=self._place)
        total = sum(o.prior for o in found) or 1.0
        return tuple(Option(o.decision, o.prior / total) for o in found)

    def probed_options(self, kind: str, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """The probed decisions of a kind, with priors from what they reached on the starting state."""
        key = kind, tuple((axis, self._is_used(partitioning, axis)) for axis in axes)
        if key not in self._probed:
            used = dict(key[1])
            found = [
                probe.option(used[probe.decision.axis])
                for probe in self.probes
                if probe.decision.kind == kind and probe.decision.axis in used
            ]
            self._probed[key] = [o for o in found if o.prior > 0]
        return self._probed[key].copy()

    def _place(self, option: Option) -> tuple[int, float]:
        decision = option.decision
        return self.axes.index(decision.axis) if decision.axis else len(self.axes), -option.prior

    def _offered_axes(self, partitioning: Partitioning) -> list[str]:
        """Of axes that are alike, the first is used first; the others wait for it, unless they are in use already."""
        waiting = {
            axis
            for axis, first in self.symmetric_to.items()
            if not self._is_used(partitioning, axis) and not self._is_used(partitioning, first)
        }
        return [a for a in self.axes if a not in waiting]

    def _is_used(self, partitioning: Partitioning, axis: str) -> bool:
        return in_use(partitioning.state, partitioning.mesh.index(axis))


def registered_kinds() -> dict[str, DecisionKind]:
    """Every registered kind of decision, in the order of their names: when they were registered changes nothing."""
    return {name: DECISION_KINDS[name]() for name in sorted(DECISION_KINDS)}
