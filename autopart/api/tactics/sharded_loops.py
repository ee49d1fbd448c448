"""`ap.ShardedLoops`: a tactic that trades communication for memory in loops, above all in loops over microbatches.

[Microbatch, BP, Z3]                       parameters are gathered before the loop, gradients reduced after it: both are
                                           held whole meanwhile
[Microbatch, BP, Z3, ap.ShardedLoops()]    gathered and reduce_scattered in every turn: the loop holds parts
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.base.arguments import STRING, check_fields
from autopart.core.table.actions import ShardLoops
from autopart.core.table.partitioning import Partitioning


@dataclass(frozen=True)
class ShardedLoops:
    """Has loops hold parts of what is stored in parts: less memory, a collective in every turn.

    An array from outside the loop that a turn reads whole is gathered in each turn instead of before the loop; sums
    that the loop adds up and that are kept in tiles are reduced in each turn instead of after it. Concerns every loop
    of the program. Of what other tactics decided nothing changes.
    """

    name: str = "ShardedLoops"

    def __post_init__(self) -> None:
        check_fields(self, name=STRING)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        partitioning.shard_loops()
        return TacticResult([ShardLoops()])
