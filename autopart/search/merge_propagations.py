"""Fewer propagations for what a search found: tiles are propagated together where that comes to the same.

tile<a0>, propagate, tile<a1>, propagate   ->   tile<a0>, tile<a1>, propagate
tile<w0, 1>, propagate, tile<w2, 1>, ...        stays, if w0 and w2 together would be a conflict
"""

from __future__ import annotations

from collections.abc import Sequence

from autopart.core.table.actions import Action, Propagate
from autopart.core.table.partitioning import Partitioning


def with_merged_propagations(partitioning: Partitioning, parts: Sequence[Sequence[Action]]) -> list[Action]:
    """The actions of each part, merged where possible. `partitioning` is left in the state they lead to."""
    return [action for part in parts for action in _merged(partitioning, list(part))]


def _merged(partitioning: Partitioning, part: list[Action]) -> list[Action]:
    """As few propagations as halving the part finds; applies what it returns."""
    mark = partitioning.mark()
    partitioning.apply_all(part)
    wanted = partitioning.fingerprint
    together = _together(part)
    if len(together) == len(part):
        return part
    partitioning.undo(mark)
    partitioning.apply_all(together)
    if partitioning.fingerprint == wanted:
        return together
    partitioning.undo(mark)
    middle = _boundary(part)
    return _merged(partitioning, part[:middle]) + _merged(partitioning, part[middle:])


def _together(part: Sequence[Action]) -> list[Action]:
    decided = [a for a in part if not isinstance(a, Propagate)]
    axes = dict.fromkeys(a.axis for a in part if isinstance(a, Propagate))
    return [*decided, *map(Propagate, axes)]


def _boundary(part: Sequence[Action]) -> int:
    """Where to cut a part in two: after the propagation nearest to its middle."""
    ends = [i + 1 for i, action in enumerate(part[:-1]) if isinstance(action, Propagate)]
    return min(ends, key=lambda end: abs(end - len(part) / 2))
