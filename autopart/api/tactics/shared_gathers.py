"""`ap.SharedGathers`: a tactic that trades memory for communication.

[BP, Z3]                              a parameter is gathered for the forward and again for the backward pass
[BP, Z3, ap.SharedGathers(1000)]      once for both, where these are at most 1000 ops apart; it is kept in between
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.base.arguments import STRING, check_fields, whole
from autopart.core.table.actions import ShareGathers
from autopart.core.table.partitioning import Partitioning


@dataclass(frozen=True)
class SharedGathers:
    """Gathers a value that is stored in parts once for uses that are near each other.

    within    how many ops apart two uses may be that share a gather; of several tactics the largest counts

    Raises `ArgumentError` for a negative distance.
    """

    within: int
    name: str = "SharedGathers"

    def __post_init__(self) -> None:
        check_fields(self, within=whole(0), name=STRING)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        partitioning.share_gathers(self.within)
        return TacticResult([ShareGathers(self.within)])
