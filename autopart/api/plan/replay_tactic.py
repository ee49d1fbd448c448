"""`ap.Replay`: a tactic that does again what was done.

[ap.Replay(row.tactic.actions)]     actions by number: of one program and one mesh
[BP, ap.Replay(plan)]               a plan, as one tactic among others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autopart.api.plan.plan import Plan
from autopart.api.tactics.tactic import ACTION, TacticContext, TacticResult
from autopart.base.arguments import STRING, Kind, check_fields, sequence
from autopart.base.errors import PlanError
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning

_ACTIONS = sequence(ACTION, "actions, such as a sweep found")
_GIVEN = Kind(
    "a plan (lowered.plan, ap.Plan.load(path)), or a list of actions (sweep.best.tactic.actions, what a tactic's "
    "result holds); the text of actions in the metadata, a schedule or a path is neither",
    lambda value: isinstance(value, Plan) or _ACTIONS.legal(value),
)


@dataclass(frozen=True)
class Replay:
    """A tactic that does again what was done.

    actions   an `ap.Plan`, which is checked against program and mesh and raises `PlanError` where they are others; or
              actions, such as a sweep found, which name values by number and hold for one program and mesh

    Raises `ArgumentError` for anything else. A plan with microbatches rewrites the program, so it has to be the
    schedule itself.
    """

    actions: Sequence[Action] | Plan
    name: str = "Replay"
    is_complete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, actions=_GIVEN, name=STRING)
        rewriting = [s.name for s in self.actions.steps if s.rewrite] if isinstance(self.actions, Plan) else []
        if rewriting:
            raise PlanError(
                f'ap.Replay cannot take a plan with "{rewriting[0]}"',
                why="that tactic writes another program before the first tactic acts",
                hint="ap.jit(fun, mesh, plan)",
            )

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        if isinstance(self.actions, Plan):
            return TacticResult(
                [action for tactic in self.actions.tactics for action in tactic.act(partitioning, context).actions]
            )
        partitioning.apply_all(self.actions)
        return TacticResult(self.actions)
