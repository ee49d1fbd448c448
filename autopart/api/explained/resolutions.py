"""Conflicts with a price on each way out.

    dot_general on "model", 32 x  at model.py:41     its operands are tiled, one on its rows, one on its columns
      (0, _) -> tile 0    12.1 ms (-0.8 ms), 4.2 GB   a loop over the rows: the other operand is gathered
      (_, 1) -> tile 1    14.0 ms (+1.1 ms), 4.2 GB

Propagation settles no conflict: several mappings fit, and only a decision says which is meant. Each way is tried on a
copy of the partitioning: all conflicts of the same op, line and axis take the mapping, it is propagated, and the
program is lowered and priced as a whole. Such a way costs a lowering, so metadata tries those that stay within
`METADATA_OPS`; `Lowered.conflicts` tries all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from autopart.api.explained.priced_conflict import PricedConflict, Resolution
from autopart.api.tactics.schedule import Scheduled
from autopart.core.op import TileMapping
from autopart.core.ops.ops_table import factor_text
from autopart.core.ops.rule import describe
from autopart.core.table.conflicts import Conflict, conflicts
from autopart.costmodel.lower_for_device import lower_for_device

METADATA_OPS = 200_000
"""How many ops, counted once per way tried, metadata lowers for the prices of conflicts: about a second."""


def priced_conflicts(scheduled: Scheduled, most_ops: float = float("inf")) -> tuple[PricedConflict, ...]:
    """The conflicts that the schedule left, in program order; at most so many ops are lowered for their prices."""
    partitioning, program = scheduled.partitioning, scheduled.partitioning.program
    groups: dict[tuple[str, int, str], list[Conflict]] = {}
    for conflict in conflicts(partitioning):
        key = (conflict.axis, int(program.op_spec[conflict.op]), conflict.where)
        groups.setdefault(key, []).append(conflict)
    now = scheduled.estimate
    found: list[PricedConflict] = []
    for members in groups.values():
        first, ways = members[0], []
        for mapping in first.candidates:
            most_ops -= program.op_count
            ways.append(_resolved(scheduled, members, mapping, most_ops >= 0))
        op = describe(program.spec(first.op))
        found.append(
            PricedConflict(
                first.kind, first.axis, op, first.where, len(members), now.step_s if now else None, tuple(ways)
            )
        )
    return tuple(found)


def _resolved(scheduled: Scheduled, members: Sequence[Conflict], mapping: TileMapping, tried: bool) -> Resolution:
    if not tried:
        return Resolution(factor_text(mapping), None, None, False)
    partitioning = scheduled.partitioning.copy()
    for conflict in members:
        of = partitioning.table.of[partitioning.program.op_spec[conflict.op]]
        partitioning.resolve(conflict.op, conflict.axis, of.index(mapping))
    estimate = scheduled.price(lower_for_device(partitioning, scheduled.device_local.options))
    if estimate is None:
        return Resolution(factor_text(mapping), None, None, True)
    return Resolution(factor_text(mapping), estimate.step_s, estimate.peak_bytes, True)
