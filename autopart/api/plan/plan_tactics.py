"""The tactics that a plan consists of: each takes the actions of one tactic again.

first     is this the mesh, is this the program?
each      keys -> values, rows -> actions, applied
last      does everything lie where the plan says?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autopart.api.plan.plan_check import check_layouts, check_mesh, check_options, check_program
from autopart.api.plan.value_keys import ValueKeys
from autopart.api.tactic import TacticContext, TacticResult
from autopart.core.actions import Action, ActionError, action_of
from autopart.core.errors import MeshError, PlanError, TileError
from autopart.core.partitioning import Partitioning

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan


@dataclass(frozen=True, repr=False)
class PlannedTactic:
    """One tactic of a plan: checks where it is the first or the last, and takes its actions."""

    plan: Plan
    name: str
    rows: Sequence[Sequence[Any]]
    is_first: bool
    is_last: bool

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`. Raises `PlanError` where the plan is of another mesh or program."""
        if self.is_first:
            check_mesh(self.plan, partitioning.mesh)
            check_program(self.plan, partitioning.program)
            check_options(self.plan, context.options)
        actions = self._actions(partitioning)
        try:
            partitioning.apply_all(actions)
        except (TileError, MeshError) as error:
            raise PlanError(f"the plan does not fit: {error.what}", why=error.why, hint=error.hint) from None
        if self.is_last:
            check_layouts(self.plan, partitioning, context.options)
        is_same = self.plan.program == partitioning.program.fingerprint
        return TacticResult(actions, {"plan": {"hash": self.plan.hash, "program": "same" if is_same else "edited"}})

    def _actions(self, partitioning: Partitioning) -> list[Action]:
        keys = ValueKeys(partitioning.program)
        try:
            return [action_of(row, keys.value_of) for row in self.rows]
        except ActionError as error:
            raise PlanError("the plan holds what is no action", why=error.what, hint=error.hint) from None

    def __repr__(self) -> str:
        return f"PlannedTactic({self.name!r} of {self.plan!r})"
