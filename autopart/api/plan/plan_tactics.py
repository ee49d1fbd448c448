"""The tactics that a plan consists of: each takes the actions of one tactic again.

first     is this the mesh, is this the program?
each      keys -> values, rows -> actions, applied
last      does everything lie where the plan says?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from autopart.api.plan.other_program import OtherProgram
from autopart.api.plan.plan_check import check_layouts, check_mesh, check_options
from autopart.api.plan.value_keys import ValueKeys
from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.base.errors import MeshError, PlanError, TileError
from autopart.core.table.actions import Action, ActionError, action_of
from autopart.core.table.partitioning import Partitioning

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
    is_complete: ClassVar[bool] = True

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`. Raises `PlanError` where the plan is of another mesh or program."""
        if self.is_first:
            check_mesh(self.plan, partitioning.mesh)
            check_options(self.plan, context.options)
        other = OtherProgram.of(self.plan, partitioning.program)
        actions = self._actions(partitioning, other)
        try:
            partitioning.apply_all(actions)
        except (TileError, MeshError) as error:
            raise PlanError(f"the plan does not fit: {error.what}", why=error.why, hint=error.hint) from None
        if self.is_last:
            check_layouts(self.plan, other, partitioning, context.options)
        is_same = self.plan.program == partitioning.program.fingerprint
        report = {"hash": self.plan.hash, "program": "same" if is_same else "edited"}
        return TacticResult(actions, {"plan": report | ({} if other.is_same else {"differs": other.lines()})})

    def _actions(self, partitioning: Partitioning, other: OtherProgram) -> list[Action]:
        keys = ValueKeys(partitioning.program)
        try:
            if other.is_same:
                return [action_of(row, keys.value_of) for row in self.rows]
            return [action_of(row, keys.value_of) for row in self._rows_of(other, keys)]
        except ActionError as error:
            raise PlanError("the plan holds what is no action", why=error.what, hint=error.hint) from None

    def _rows_of(self, other: OtherProgram, keys: ValueKeys) -> Iterator[Sequence[Any]]:
        """The rows about values of a program that differs from the plan's, those of added layers behind the last."""
        planned = Counter(map(_about_role, self.rows))
        for row in self.rows:
            match row:
                case [str(word), ["argument" | "output" as what, str(name)], *rest]:
                    yield [word, [what, other.renamed.get(name, name)], *rest]
                    added = [new for new, old in other.like.items() if old == name] if what == "argument" else []
                    yield from ([word, [what, new], *rest] for new in added)
                case [str(word), ["tag" | "op", *_, str(), int(n), int(count)] as key, *rest]:
                    values = keys.by_role(key)
                    if len(values) != count and planned[_about_role(row)] == count:
                        values = values[n:] if n == count - 1 else values[n : n + 1]
                    elif len(values) == count:
                        values = values[n : n + 1]
                    else:
                        raise PlanError(
                            f"the plan decides about {key[0]} {key[1]!r}, and the program was edited there",
                            why=f"{count} played its role when the plan was made, and {len(values)} do",
                            hint="plan the program anew, or give the value a name with ap.tag and decide about that",
                        )
                    yield from ([word, keys.key_of(value), *rest] for value in values)
                case _:
                    yield row

    def __repr__(self) -> str:
        return f"PlannedTactic({self.name!r} of {self.plan!r})"


def _about_role(row: Sequence[Any]) -> str:
    """The row but for which of the values that play the key's role it is about."""
    match row:
        case [str(word), ["tag" | "op" as what, str(name), *_, str(role), int(), int(count)], *rest]:
            return repr((word, what, name, role, count, rest))
        case _:
            return ""
