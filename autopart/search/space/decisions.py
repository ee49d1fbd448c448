"""Decisions, and the kinds of decision that there are: what an optimizer chooses between.

    Decision("tile_group", 3, 0, "batch")     tile<v, 0, "batch"> for every value v of value group 3
    Decision("zero3", 0, -1, "batch")         every updated array on its first dim that divides
    Option(Decision(...), 0.31)               a decision that would do something in a state, and its prior

A decision is a name: a small value that is compared, hashed, sorted and written to records. Its kind says what it does,
in one file below `kinds/`, which also shows how to add a kind:

    @register_decision_kind("keep_inputs")
    @dataclass(frozen=True)
    class KeepInputs(DecisionKind):
        def options(self, space, partitioning, axes):
            return [Option(Decision("keep_inputs", 0, -1, axis), 0.1) for axis in axes]

        def apply(self, facts, partitioning, decision):
            return keep_each(partitioning, np.array(facts.program.arguments), decision.axis)

        def describe(self, facts, decision):
            return f"atomic<every input, {decision.axis}>"
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from autopart.base.arguments import maker
from autopart.base.registry import Registry
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.facts import ProgramFacts

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace


MAX_PARTS = 4
"""Of more parts, refinement leaves out only the first and last ones: inner layers are alike."""


class Decision(NamedTuple):
    """One decision. A search compares and hashes thousands a second, so it is a tuple.

    kind      a registered kind of decision, which gives the other fields their meaning
    target    a number: of a value group, of a value, of a given list of actions
    dim       the dim that is tiled; -1 where the decision chooses none
    axis      the mesh axis; "" where the decision is about none
    """

    kind: str
    target: int
    dim: int
    axis: str

    def to_json(self) -> list[Any]:
        """As it stands in records."""
        return [self.kind, self.target, self.dim, self.axis]

    @staticmethod
    def from_json(row: list[Any]) -> Decision:
        """What `to_json` wrote; raises `ValueError` on anything else, and for a kind that is not registered."""
        kind, target, dim, axis = row
        if kind not in DECISION_KINDS:
            raise ValueError(f"{row!r} is not a decision: no decision kind is called {kind!r}")
        if type(target) is not int or type(dim) is not int or not isinstance(axis, str):
            raise ValueError(f"{row!r} is not a decision")
        return Decision(kind, target, dim, axis)


class Option(NamedTuple):
    """A decision that would do something in a state.

    prior    the share of bytes and flop that it is expected to improve; `DecisionSpace.options` scales the priors of
             all options so that they add up to 1
    """

    decision: Decision
    prior: float


class DecisionKind(Protocol):
    """What decisions of one kind do, when they are offered, and what refinement may put in their place.

    Subclass it as a frozen dataclass. `apply` and `describe` must be written; every other method has a default, which
    says that the kind has nothing of that sort. `facts` is what is known of the program, whatever the state.
    """

    goes_by_groups: ClassVar[bool] = False
    """True if `options` and `apply` go by value groups and the other facts alone, never by the number of a value.

    They may then be asked of a program with fewer layers, whose groups have the same numbers (`fewer_layers_costs.py`).
    A search asks the whole program, which takes longer, where a registered kind offers decisions and does not say so.
    """

    # ---- what a decision does

    @abstractmethod
    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """Applies what is still legal of the decision and returns these actions; none where nothing is left to do."""

    @abstractmethod
    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """The decision as text, for reports: `tile<params/blocks/0/up and 31 more, 1, model>`."""

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """int32[n]: the values that the decision names; empty where it names none."""
        return np.empty(0, np.int32)

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """True if the program has what the decision names: what a file says is checked before it is believed.

        By default a decision of the kind names nothing but its axis. A kind that gives `target` or `dim` a meaning says
        here which numbers there are.
        """
        return decision.target == 0 and decision.dim == -1

    # ---- when it is offered

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """Decisions over `axes` that would do something in this state. Leaves the partitioning as it is."""
        return []

    def probed(self, facts: ProgramFacts, axes: Sequence[str]) -> list[Decision]:
        """Decisions to try once on the starting state; `space.probed_options` then knows what they reach."""
        return []

    def seeds(self, facts: ProgramFacts) -> list[tuple[Decision, ...]]:
        """Sequences of decisions that a seeded search costs first."""
        return []

    # ---- what refinement may put in its place

    def parts(self, facts: ProgramFacts, decision: Decision) -> list[Decision]:
        """Smaller decisions that together do what this one does (ungrouping); none if it cannot be taken apart."""
        return []

    def refinements(self, facts: ProgramFacts, decision: Decision) -> list[tuple[Decision, ...]]:
        """Sequences to try in place of the decision: by default all of its parts but one."""
        parts = self.parts(facts, decision)
        left_out = parts[: MAX_PARTS // 2] + parts[MAX_PARTS // 2 :][-MAX_PARTS // 2 :]
        return [tuple(p for p in parts if p != part) for part in left_out]


DECISION_KINDS: Registry[Callable[[], DecisionKind]] = Registry(
    "decision kind",
    accepts=maker("apply and describe, such as a subclass of DecisionKind", "apply", "describe"),
    entry_points="autopart.decision_kinds",
    load=lambda: importlib.import_module("autopart.search.space.kinds"),
)
"""What makes each kind of decision, by the name that decisions and records hold."""

T = TypeVar("T", bound=type[DecisionKind])


def register_decision_kind(name: str) -> Callable[[T], T]:
    """Class decorator: searches may then take decisions whose `kind` is `name`. A name can be taken once."""
    return DECISION_KINDS.register(name)
